"""Events that wait in memory for one endpoint, and the bytes of all that wait for any.

An event that waits for several endpoints is there once, and counts once. The log is the real queue: where there is no
room here, events are read from it later. An endpoint always has room for one event, lest it never gets on.
"""

from __future__ import annotations

from collections import deque

from ..notifications.stored import Stored

QUEUED_BYTES_MAX = 64 * 1024 * 1024


class QueuedBytes:
    """What all queues hold. Used on one event loop."""

    def __init__(self, bytes_max: int = QUEUED_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        """Bytes of the events that wait."""

    def enter(self, stored: Stored, *, is_first: bool) -> bool:
        """One more queue takes an event, its first one if `is_first`; False: there is no room for it."""
        if not stored.queues:
            if not is_first and self.bytes + stored.bytes > self.bytes_max:
                return False
            self.bytes += stored.bytes
        stored.queues += 1
        return True

    def leave(self, stored: Stored) -> None:
        """It waits in one queue less."""
        stored.queues -= 1
        if not stored.queues:
            self.bytes -= stored.bytes


class EventQueue:
    """Those of one endpoint, in the order of the log."""

    def __init__(self, queued: QueuedBytes, events_max: int) -> None:
        self._queued, self._events_max = queued, events_max
        self._events: deque[Stored] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._events)

    @property
    def last(self) -> int:
        """The number of the last one; there must be one."""
        return self._events[-1].sequence_number

    def append(self, stored: Stored) -> bool:
        """One more, if there is room."""
        if len(self._events) >= self._events_max or not self._queued.enter(stored, is_first=not self._events):
            return False
        self._events.append(stored)
        return True

    def popleft(self) -> Stored:
        """Take the first one."""
        stored = self._events.popleft()
        self._queued.leave(stored)
        return stored

    def clear(self) -> None:
        """Forget all."""
        while self._events:
            self.popleft()
