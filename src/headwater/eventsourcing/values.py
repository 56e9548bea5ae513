"""Events and queries of `eventsourcing` and of a log, both ways. A tag is one text, not a key with a value."""

from __future__ import annotations

from eventsourcing.dcb.api import DCBAppendCondition, DCBEvent, DCBQuery, DCBSequencedEvent

from ..core.condition import AppendCondition
from ..core.event import Event, SequencedEvent
from ..core.query import ALL, Query, QueryItem


def event_of(event: DCBEvent) -> Event:
    """An event to append; it gets its id there."""
    return Event(event.type, event.data, tuple(dict.fromkeys(event.tags)))


def their_event(event: SequencedEvent) -> DCBSequencedEvent:
    """An event that was read."""
    return DCBSequencedEvent(DCBEvent(event.type, event.data, list(event.tags)), event.sequence_number)


def query_of(query: DCBQuery | None) -> Query:
    """A query; without an item, or with one that asks for nothing, it is for all events."""
    if query is None or not query.items or not all(item.types or item.tags for item in query.items):
        return ALL
    return Query(
        tuple(
            QueryItem(tuple(dict.fromkeys(item.types)), exact_tags=tuple(dict.fromkeys(item.tags)))
            for item in query.items
        )
    )


def condition_of(condition: DCBAppendCondition | None) -> AppendCondition | None:
    """A condition; without a position it is about every event that there ever was."""
    if condition is None:
        return None
    return AppendCondition(query_of(condition.fail_if_events_match), condition.after or 0)
