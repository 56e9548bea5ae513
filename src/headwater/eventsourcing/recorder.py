"""A `DCBRecorder` over any log: on a server, in this process, or in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventsourcing.dcb.api import (
    DCBAppendCondition,
    DCBEvent,
    DCBQuery,
    DCBReadResponse,
    DCBRecorder,
    DCBSequencedEvent,
    DCBSubscription,
)
from eventsourcing.persistence import ProgrammingError

from ..core.event import SequencedEvent
from ..core.log import EventLog
from .errors import as_theirs
from .values import condition_of, event_of, query_of, their_event


class HeadwaterRecorder(DCBRecorder):
    """Reads, appends and subscribes. Positions are the log's sequence numbers. Safe to use from any thread.

    It raises the errors of `eventsourcing.persistence`: IntegrityError where a condition fails, OperationalError where
    the server is away or refuses, DataError for an event that the log does not take.
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log
        """What is below: it has more than `eventsourcing` asks for."""

    def read(
        self, query: DCBQuery | None = None, *, after: int | None = None, limit: int | None = None
    ) -> DCBReadResponse:
        """See DCBRecorder. Without a limit the events stream, and the head is that of the log when the read began."""
        with as_theirs:
            reading = self.log.read(query_of(query), after=after, limit=limit)
            if limit is None:
                return _Response(reading, reading.head or None)
            events = list(reading)
        return _Response(iter(events), events[-1].sequence_number if events else None)

    def append(self, events: Sequence[DCBEvent], condition: DCBAppendCondition | None = None) -> int:
        """See DCBRecorder. The events get ids first: repeated because an answer was lost, they are stored once."""
        if not events:
            raise ProgrammingError("at least one event is to be appended, none given")
        with as_theirs:
            return self.log.append([event_of(event) for event in events], condition_of(condition)).last

    def subscribe(self, query: DCBQuery | None = None, *, after: int | None = None) -> HeadwaterSubscription:
        """See DCBRecorder."""
        return HeadwaterSubscription(self, query, after)


class HeadwaterSubscription(DCBSubscription[HeadwaterRecorder]):
    """Blocks where the log has no more; `stop`, from any thread, ends it."""

    def __init__(self, recorder: HeadwaterRecorder, query: DCBQuery | None, after: int | None) -> None:
        super().__init__(recorder, query, after)
        with as_theirs:
            self._subscription = recorder.log.subscribe(query_of(query), after=after)
        self._events = iter(self._subscription)

    def __next__(self) -> DCBSequencedEvent:
        with as_theirs:
            event = next(self._events)
        self._last_position = event.sequence_number
        return their_event(event)

    def stop(self) -> None:
        """End it: whoever waits for its next event gets StopIteration."""
        super().stop()
        self._subscription.close()


class _Response(DCBReadResponse):
    def __init__(self, events: Iterator[SequencedEvent], head: int | None) -> None:
        self._events, self._head = events, head

    @property
    def head(self) -> int | None:
        return self._head

    def __next__(self) -> DCBSequencedEvent:
        with as_theirs:
            return their_event(next(self._events))
