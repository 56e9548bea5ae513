"""Names of webhooks' hosts, resolved to addresses where a webhook may be."""

from __future__ import annotations

from aiohttp.abc import AbstractResolver, ResolveResult

from .allowed import AllowedHosts, HostNotAllowed


class AllowedResolver(AbstractResolver):
    """Resolves names, and answers allowed addresses only."""

    def __init__(self, allowed: AllowedHosts, resolver: AbstractResolver) -> None:
        self._allowed, self._resolver = allowed, resolver

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        """See AbstractResolver. Raises HostNotAllowed, OSError."""
        found = await self._resolver.resolve(host, port, family)  # type: ignore[arg-type]
        if self._allowed.permits_name(host):
            return found
        kept = [each for each in found if self._allowed.permits_address(each["host"])]
        if not kept:
            raise HostNotAllowed(f"{host} is not a host that webhooks may be on")
        return kept

    async def close(self) -> None:
        """See AbstractResolver."""
        await self._resolver.close()
