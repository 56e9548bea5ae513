"""Names of webhooks' hosts, resolved to addresses where a webhook may be."""

from __future__ import annotations

from collections.abc import Sequence

from ..http.outgoing.resolving import Resolve
from .allowed import AllowedHosts, HostNotAllowed


class AllowedResolver:
    """Resolves names, and answers allowed addresses only: connections are made to these, and to no others."""

    def __init__(self, allowed: AllowedHosts, resolve: Resolve) -> None:
        self._allowed, self._resolve = allowed, resolve

    async def resolve(self, host: str) -> Sequence[str]:
        """The addresses of that name. Raises HostNotAllowed, and what `resolve` raises."""
        found = await self._resolve(host)
        if self._allowed.permits_name(host):
            return found
        kept = [address for address in found if self._allowed.permits_address(address)]
        if not kept:
            raise HostNotAllowed(f"{host} is not a host that webhooks may be on")
        return kept
