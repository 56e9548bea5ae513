"""What detached links of producers leave behind, in case they are recovered (2.6.13): so much, and for so long."""

from __future__ import annotations

from typing import NamedTuple

from ..connections.shared import LinkKey

LINKS_MAX = 1000
DELIVERIES_MAX = 100_000
SUSPENDED_S = 600.0
"""How many links are remembered, with how many deliveries in all, and for how long."""


class SuspendedLinks:
    """Deliveries of detached links that were accepted, and that their senders have not settled; and where to."""

    def __init__(self) -> None:
        self._by_key: dict[LinkKey, _Suspended] = {}
        """The oldest first."""

    def put(self, key: LinkKey, accepted: dict[bytes, None], now: float, address: str | None = None) -> None:
        """Keep the tags of a link to that address that is detached; `now` is the loop's time."""
        self._by_key.pop(key, None)
        count = len(accepted) + sum(len(each.accepted) for each in self._by_key.values())
        while self._by_key and (len(self._by_key) >= LINKS_MAX or count > DELIVERIES_MAX):
            count -= len(self._by_key.pop(next(iter(self._by_key))).accepted)
        self._by_key[key] = _Suspended(accepted, now + SUSPENDED_S, address)

    def take(self, key: LinkKey) -> dict[bytes, None]:
        """The tags of a link that is attached again, which are kept no longer; empty if there are none."""
        found = self._by_key.pop(key, None)
        return {} if found is None else found.accepted

    def holds(self, key: LinkKey) -> bool:
        """Whether something is kept of that link."""
        return key in self._by_key

    def address(self, key: LinkKey) -> str | None:
        """Where the link led; None for one that is not kept, or had no target address."""
        found = self._by_key.get(key)
        return None if found is None else found.address

    def tick(self, now: float) -> None:
        """Time has passed: forget what was kept long enough."""
        while self._by_key and next(iter(self._by_key.values())).until < now:
            del self._by_key[next(iter(self._by_key))]


class _Suspended(NamedTuple):
    accepted: dict[bytes, None]
    until: float
    address: str | None
