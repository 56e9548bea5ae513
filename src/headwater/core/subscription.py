"""Subscriptions: catch up, then follow. A subscription holds a cursor, never a queue of events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from .closing import Closing
from .event import SequencedEvent


class Subscription(Closing):
    """Iterate it for the events; it blocks where the log has no more, until there are some or it is closed."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        """Everything up to this number was seen, whether it matched or not; where to resume after an interruption.
        While it is iterated, that is the event last given out."""
        self.is_closed = False

    @abstractmethod
    def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        """The events after `cursor`, which moves over them; empty after `timeout_s` without any, None at the end."""

    def poll(self, timeout_s: float | None = 0.0) -> Sequence[SequencedEvent]:
        """The events that follow, at most one page; empty if none come in `timeout_s` (None = wait for ever)."""
        return self._next_events(timeout_s) or ()

    def __iter__(self) -> Iterator[SequencedEvent]:
        while (events := self._next_events(None)) is not None:
            reached = self.cursor
            for event in events:
                self.cursor = event.sequence_number
                yield event
            self.cursor = max(self.cursor, reached)

    def close(self) -> None:
        """End it: a waiting iteration stops."""
        self.is_closed = True
