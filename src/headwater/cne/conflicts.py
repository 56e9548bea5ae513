"""The endpoints of the recent 409s of an address. They determine which subscriptions its DELETE of all removes.

A restarted consumer of cloud-event-proxy gets 409, deletes all subscriptions without naming any, and subscribes again.
If several consumers share an address, each DELETE takes the oldest unused 409. That 409 may belong to another consumer,
which then finds that its subscription is gone and creates it again."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from urllib.parse import urlsplit

REMEMBERED_S = 60.0
REMEMBERED_MAX = 1000
"""The maximum number of 409s of all addresses together. The oldest is dropped first."""


@dataclass(slots=True)
class _Conflict:
    owner: str
    origin: tuple[str, ...]
    at: float
    is_used: bool = False


class Conflicts:
    """The 409s of the last minute, by the owner who received them. Use it on one event loop."""

    def __init__(self) -> None:
        self._all: deque[_Conflict] = deque(maxlen=REMEMBERED_MAX)

    def add(self, owner: str, endpoint: str) -> None:
        """Record that `owner` got 409 because the subscription of that endpoint exists."""
        self._all.append(_Conflict(owner, origins(endpoint), time.monotonic()))

    def settle(self, owner: str, endpoint: str) -> None:
        """A subscription of that endpoint was created. Earlier 409s of its host and port must not delete it."""
        origin = origins(endpoint)
        for each in self._of(owner):
            each.is_used = each.is_used or each.origin == origin

    def callers(self, owner: str) -> set[tuple[str, ...]]:
        """The origins of the endpoints of the owner's 409s, including used ones."""
        return {each.origin for each in self._of(owner)}

    def take(self, owner: str) -> tuple[str, ...] | None:
        """Use the oldest unused 409 and return the origins of its endpoint; None if there is none."""
        for each in self._of(owner):
            if not each.is_used:
                each.is_used = True
                return each.origin
        return None

    def _of(self, owner: str) -> list[_Conflict]:
        while self._all and time.monotonic() - self._all[0].at >= REMEMBERED_S:
            self._all.popleft()
        return [each for each in self._all if each.owner == owner]


def origins(endpoint: str) -> tuple[str, ...]:
    """`http://host:port` and `host:port` of an endpoint; empty without an endpoint."""
    try:
        parts = urlsplit(endpoint.lower())
    except ValueError:
        return ()
    place = parts.netloc.rpartition("@")[2]
    return (f"{parts.scheme}://{place}", place) if place else ()
