"""Folding: the states of several projections, from the events of the reads that they need. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..core.event import SequencedEvent
from ..core.query import Query, QueryItem
from ..core.shown import show
from .errors import InvalidDefinition, UnreadableEvent
from .events import EventType
from .projection import Knowledge, Projection, query_of

KEY = "idempotency-key"
"""The key of the tag by which the events of a command are found when it comes again."""


Part = tuple[int, str | None, tuple[str, ...], Callable[..., Any], bool]
"""What one projection does with an event of one type: its place, its first tag and the others, its handler, and whether
that takes the event as it is stored. Plain tuples, because this is read for each event."""
Table = Mapping[str, tuple[EventType[Any], list[Part]]]
"""How the events of each type are read, and who handles them."""


class Plan:
    """What is to be read for a decision: made once, used by each of its attempts."""

    def __init__(self, knowledge: Sequence[Knowledge[Any]]) -> None:
        """Raises InvalidDefinition: no handler, or two classes for one type."""
        self._knowledge = knowledge
        self.projections = projections = [part for each in knowledge for part in each.parts]
        self.query = query_of(projections) if projections else None
        """All that they need together: what the append condition asks for."""
        self.kept: list[int] = []
        """Those that have snapshots, and take a read each."""
        self.newest: list[int] = []
        """Those of the newest event, which take a read each."""
        self.together: list[int] = []
        """Those that one read serves."""
        for index, each in enumerate(projections):
            (self.newest if each.newest_only else self.kept if each.keeping else self.together).append(index)
        self._all = _table(projections, range(len(projections)))

    def states(self, values: Sequence[Any]) -> list[Any]:
        """What the decision asked for, of the states of all projections."""
        states, begin = [], 0
        for each in self._knowledge:
            end = begin + len(each.parts)
            states.append(each.state_of(values[begin:end]))
            begin = end
        return states

    def asked(self, indexes: Sequence[int], key: str) -> Query | None:
        """The query of these projections, and of the events of a command, if it has a key; None if that is nothing."""
        more = [QueryItem(tags=(f"{KEY}:{key}",))] if key else []
        if len(indexes) == len(self.projections) and not more:
            return self.query
        return query_of([self.projections[index] for index in indexes], *more) if indexes or more else None

    def table(self, indexes: Sequence[int]) -> Table:
        """How events are folded into these projections."""
        return self._all if len(indexes) == len(self.projections) else _table(self.projections, indexes)


def _table(projections: Sequence[Projection[Any]], indexes: Sequence[int]) -> Table:
    found: dict[str, tuple[EventType[Any], list[Part]]] = {}
    for index in indexes:
        projection = projections[index]
        first, *others = projection.tags or (None,)
        for type, apply, takes_stored in projection.handled.values():
            part = (index, first, tuple(others), apply, takes_stored)
            for name in type.names:
                if (entry := found.get(name)) is None:
                    found[name] = type, [part]
                elif entry[0] is type:
                    entry[1].append(part)
                else:
                    pair = f"{entry[0].kind.__qualname__} and {type.kind.__qualname__}"
                    raise InvalidDefinition(f"{pair} are both stored as {show(name)}")
    return found


class States:
    """The states of a plan's projections, as events come in."""

    def __init__(self, plan: Plan, key: str = "") -> None:
        """`key` is the idempotency key of the command, if it has one."""
        self.values = [each.initial() for each in plan.projections]
        self.repeated: list[SequencedEvent] = []
        """The events that this very command has stored before."""
        self._key_tag = f"{KEY}:{key}" if key else ""

    def take(self, events: Iterable[SequencedEvent], table: Table, upto: int | None = None) -> None:
        """Fold these events, up to that number, into the states of a table's projections. Raises UnreadableEvent.

        What handlers raise passes through.
        """
        if upto is not None:
            events = [each for each in events if each.sequence_number <= upto]
        if self._key_tag:
            events = self._noted(events)
        values = self.values
        for stored in events:
            if (entry := table.get(stored.type)) is None:
                continue
            type, parts = entry
            tags = stored.tags
            happened: object = None
            for index, tag, others, apply, takes_stored in parts:
                if tag is not None and (tag not in tags or (others and not all([each in tags for each in others]))):
                    continue
                if happened is None:
                    if type.decode is None or stored.attributes or not stored.data:
                        happened = type.read(stored)
                    else:  # as `read` does, without a call
                        try:
                            happened = type.decode(stored.data)
                        except Exception as error:
                            raise UnreadableEvent(stored.type, stored.sequence_number, str(error)) from error
                if takes_stored:
                    values[index] = apply(values[index], happened, stored)
                else:
                    values[index] = apply(values[index], happened)

    def _noted(self, events: Iterable[SequencedEvent]) -> Iterator[SequencedEvent]:
        for each in events:
            if self._key_tag in each.tags:
                self.repeated.append(each)
            yield each
