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

from ..core.condition import AppendCondition
from ..core.event import Event, SequencedEvent
from ..core.log import EventLog
from ..core.query import ALL, Query, QueryItem
from .errors import as_theirs


def event_of(event: DCBEvent) -> Event:
    """The event to append; it gets its id there."""
    return Event(event.type, event.data, tuple(dict.fromkeys(event.tags)))


def their_event(event: SequencedEvent) -> DCBSequencedEvent:
    """An event that was read."""
    return DCBSequencedEvent(DCBEvent(event.type, event.data, list(event.tags)), event.sequence_number)


def query_of(query: DCBQuery | None) -> Query:
    """The query; without an item, or with one that asks for nothing, it matches all events."""
    if query is None or not query.items or not all(item.types or item.tags for item in query.items):
        return ALL
    return Query(
        tuple(
            QueryItem(tuple(dict.fromkeys(item.types)), exact_tags=tuple(dict.fromkeys(item.tags)))
            for item in query.items
        )
    )


def condition_of(condition: DCBAppendCondition | None) -> AppendCondition | None:
    """The condition; without a position it covers every event ever stored."""
    if condition is None:
        return None
    return AppendCondition(query_of(condition.fail_if_events_match), condition.after or 0)


class HeadwaterRecorder(DCBRecorder):
    """Reads, appends and subscribes. Positions are the log's sequence numbers. Safe to use from any thread.

    Raises the errors of `eventsourcing.persistence`: IntegrityError if a condition fails, OperationalError if the
    server is away or refuses, DataError for an event that the log does not accept.
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log
        """The underlying log, which offers more than `eventsourcing` uses."""

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
        """See DCBRecorder. The events get ids first: repeating them after a lost answer stores them once."""
        if not events:
            raise ProgrammingError("expected at least one event, got none")
        with as_theirs:
            return self.log.append([event_of(event) for event in events], condition_of(condition)).last

    def subscribe(self, query: DCBQuery | None = None, *, after: int | None = None) -> HeadwaterSubscription:
        return HeadwaterSubscription(self, query, after)


class HeadwaterSubscription(DCBSubscription[HeadwaterRecorder]):
    """Iteration blocks at the end of the log; `stop`, from any thread, ends it."""

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
        """End it: a waiting iteration raises StopIteration."""
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
