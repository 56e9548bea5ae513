"""The events waiting in memory for one endpoint, and the byte count of all endpoints' waiting events.

An event waiting for several endpoints is stored once and counts once. The log is the real queue: if there is no room
here, events are read from the log later. An endpoint always has room for one event, so that it always makes progress.
"""

from __future__ import annotations

from collections import deque

from ..notifications.stored import Stored

QUEUED_BYTES_MAX = 64 * 1024 * 1024


class QueuedBytes:
    """The number of bytes in all queues. Use it on one event loop."""

    def __init__(self, bytes_max: int = QUEUED_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        """Bytes of the waiting events."""

    def enter(self, stored: Stored, *, is_first: bool) -> bool:
        """Count an event that enters a queue. `is_first`: it is the first event in its queue. Returns False if there is
        no room.
        """
        if not stored.queues:
            if not is_first and self.bytes + stored.bytes > self.bytes_max:
                return False
            self.bytes += stored.bytes
        stored.queues += 1
        return True

    def leave(self, stored: Stored) -> None:
        """Count an event that leaves a queue."""
        stored.queues -= 1
        if not stored.queues:
            self.bytes -= stored.bytes


class EventQueue:
    """The waiting events of one endpoint, in log order."""

    def __init__(self, queued: QueuedBytes, events_max: int) -> None:
        self._queued, self._events_max = queued, events_max
        self._events: deque[Stored] = deque()

    def __len__(self) -> int:
        """The number of waiting events."""
        return len(self._events)

    @property
    def last(self) -> int:
        """The number of the last event; the queue must not be empty."""
        return self._events[-1].sequence_number

    def append(self, stored: Stored) -> bool:
        """Add an event if there is room. Returns whether there was."""
        if len(self._events) >= self._events_max or not self._queued.enter(stored, is_first=not self._events):
            return False
        self._events.append(stored)
        return True

    def popleft(self) -> Stored:
        """Take the first event."""
        stored = self._events.popleft()
        self._queued.leave(stored)
        return stored

    def clear(self) -> None:
        """Drop all events."""
        while self._events:
            self.popleft()
