"""Notifications of refused connections: the first ones in each second individually, the others as a count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..watch.bus import Bus
from ..watch.notification_types import NotificationType

EACH_MAX = 10
"""The number of individual notifications per second: a burst may have thousands, and each is a line in the server's
log."""
INTERVAL_S = 1.0


class RefusedConnections:
    """Refused connections of one protocol, on one event loop. The counts in its notifications cover all of them."""

    def __init__(self, bus: Bus, protocol: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`protocol` is its name in notifications; the clock counts seconds."""
        self._bus, self._protocol, self._clock = bus, protocol, clock
        self._began = -INTERVAL_S
        self._told = self._more = 0
        self._last: tuple[str, str, str | None] = "", "", None

    def tell(self, peer: str, reason: str, description: str | None = None) -> None:
        """Report that a connection of that peer was refused."""
        if (now := self._clock()) - self._began >= INTERVAL_S and not self._more:
            self._began, self._told = now, 0
        if self._told < EACH_MAX:
            self._told += 1
            self._emit(peer, reason, description)
            return
        self._more += 1
        self._last = peer, reason, description
        if self._more == 1:
            asyncio.get_running_loop().call_later(INTERVAL_S, self._tell_more)

    def _tell_more(self) -> None:
        count, self._more = self._more, 0
        self._emit(*self._last, count)

    def _emit(self, peer: str, reason: str, description: str | None, count: int | None = None) -> None:
        self._bus.emit(
            NotificationType.CONNECTION_REFUSED,
            protocol=self._protocol,
            peer=peer,
            reason=reason,
            description=description,
            count=count,
        )
