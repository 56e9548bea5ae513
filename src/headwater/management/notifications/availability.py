"""Notifies when a log becomes unavailable, when a read finds damage, and when the log is available again.

The store knows which logs are unavailable, and why. Once a second, its answer is compared with the previous one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType


class Availability:
    """Call `look` once a second, from any thread."""

    def __init__(self, bus: Bus, unavailable: Callable[[], Mapping[str, str]]) -> None:
        """`unavailable`: see LogStore."""
        self._bus, self._unavailable = bus, unavailable
        self._looking = threading.Lock()
        self._told: Mapping[str, str] = {}

    def look(self) -> None:
        """Notify of each change since the last look."""
        with self._looking:
            told, self._told = self._told, self._unavailable()
            for name, problem in self._told.items():
                if told.get(name) != problem:
                    self._bus.emit(NotificationType.LOG_UNAVAILABLE, log=name, problem=problem)
            for name in told.keys() - self._told.keys():
                self._bus.emit(NotificationType.LOG_AVAILABLE, log=name)

    def forget(self) -> None:
        """Notify of all of them again at the next check, for a new listener."""
        with self._looking:
            self._told = {}
