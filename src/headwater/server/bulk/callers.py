"""Recent callers of the bulk process. While there are calls, it asks the server about each caller once a second."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

CALLERS_MAX = 1000
IDLE_MS = 3_600_000
"""How long a caller is remembered after its last call."""


@dataclass(slots=True)
class BulkCaller:
    """One user at one address. gRPC connections are not distinguished."""

    user: str
    """Empty if no user is configured."""
    peer: str
    first_at: int
    last_at: int
    """The first and last call, in ms since 1970; the latter may be a second old."""


class BulkCallers:
    """The most recent callers of one server."""

    def __init__(self, clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock = clock
        self._known: OrderedDict[str, BulkCaller] = OrderedDict()
        """By name; the most recent caller is last."""

    def seen(self, user: str, peer: str) -> None:
        """Record a call of a user from an address."""
        if not peer:
            return  # a handshake, which does not identify its peer; the next call does
        name, now = f"flight/{user}@{peer}", self._clock()
        caller = self._known.setdefault(name, BulkCaller(user, peer, now, now))
        caller.last_at = now
        self._known.move_to_end(name)
        self._forget(now)

    @property
    def known(self) -> Mapping[str, BulkCaller]:
        """All remembered callers, by name; a view."""
        self._forget(self._clock())
        return self._known

    def _forget(self, now: int) -> None:
        while self._known:
            name, oldest = next(iter(self._known.items()))
            if len(self._known) <= CALLERS_MAX and now - oldest.last_at < IDLE_MS:
                return
            del self._known[name]
