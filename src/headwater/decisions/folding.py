"""Folding: the states of several projections, built from the events they read. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ..core.errors import InvalidInput, InvalidQuery
from ..core.event import NO_ATTRIBUTES, SequencedEvent
from ..core.query import Query, QueryItem
from ..core.quoting import show
from .errors import InvalidDefinition, UnreadableEvent
from .events import EventType
from .projection import Knowledge, Projection, query_of
from .shapes import layout_of

KEY = "idempotency-key"
"""The key of the tag that finds a command's events when the command is repeated."""


Plain = tuple[int, str, Callable[..., Any]]
"""How most projections handle an event of one type: their index, their single tag and their handler. A plain tuple,
because it is read for each event.
"""
Part = tuple[int, tuple[str, ...], Callable[..., Any], bool, bool]
"""The same for any projection: its tags, whether its handler accepts the event as stored, and whether it skips an event
that cannot be read.
"""
Entry = tuple[Callable[[bytes], Any] | None, EventType[Any], list[Plain], list[Part]]
Table = Mapping[str, Entry]
"""How the events of each type are read, and which projections handle them."""
_ITEMS = "items"
"""The path of an error about a query that is too large as a whole."""
_logger = logging.getLogger(__name__)


class Plan:
    """What to read for a decision. It is made once and used by each attempt."""

    def __init__(self, knowledge: Sequence[Knowledge[Any]]) -> None:
        """Raises InvalidDefinition: no handler, two classes for one type, or more than one query can contain."""
        self._knowledge = knowledge
        self._is_flat = all([each.__class__ is Projection for each in knowledge])
        projections: Any = knowledge if self._is_flat else [part for each in knowledge for part in each.parts]
        self.projections: Sequence[Projection[Any]] = projections
        self.query = _asked_for(projections) if projections else None
        """The query of all projections together, as in the append condition."""
        self.layout = layout_of(tuple([each.shape for each in projections]))
        """Which reads they need, and which projection handles which event."""

    def states(self, values: Sequence[Any]) -> Sequence[Any]:
        """The states that the decision requested, out of the states of all projections."""
        if self._is_flat:
            return values
        states, begin = [], 0
        for each in self._knowledge:
            end = begin + len(each.parts)
            states.append(each.state_of(values[begin:end]))
            begin = end
        return states

    def asked(self, indexes: Sequence[int], key: str) -> Query | None:
        """The query of these projections, and of a command's events if it has a key; None if that is empty.

        Raises InvalidInput if there is no room for the key.
        """
        more = [QueryItem(tags=(f"{KEY}:{key}",))] if key else []
        if len(indexes) == len(self.projections) and not more:
            return self.query
        try:
            return query_of([self.projections[index] for index in indexes], *more) if indexes or more else None
        except InvalidQuery as error:
            if error.where != _ITEMS:
                raise
            problem = f"the boundary of this decision leaves no room for the key's own tag: {error.problem}"
            raise InvalidInput(problem, "key") from None

    def table(self, indexes: Sequence[int]) -> Table:
        """How events are folded into these projections."""
        found: dict[str, Entry] = {}
        projections, are_all = self.projections, len(indexes) == len(self.projections)
        for name, type, handlers in self.layout.readers:
            plain: list[Plain] = []
            others: list[Part] = []
            for index, place, takes_stored in handlers:
                if are_all or index in indexes:
                    projection = projections[index]
                    apply, tags = projection.handlers[place], projection.tags
                    if projection.shape.newest_only:
                        apply = _alone(projection, apply)
                    if len(tags) == 1 and not (takes_stored or projection.skips):
                        plain.append((index, tags[0], apply))
                    else:
                        others.append((index, tags, apply, takes_stored, projection.skips))
            found[name] = type.decode, type, plain, others
        return found


class States:
    """The states of a plan's projections, updated as events arrive."""

    def __init__(self, plan: Plan, key: str = "") -> None:
        """`key` is the idempotency key of the command, if it has one."""
        self.values = [each.first if each.factory is None else each.factory() for each in plan.projections]
        self.repeated: list[SequencedEvent] = []
        """The events that this same command stored before."""
        self._key_tag = f"{KEY}:{key}" if key else ""
        self._changing = [index for index, each in enumerate(plan.projections) if each.factory is not None]

    def for_rule(self) -> Sequence[Any]:
        """The states as a rule gets them: copies if handlers change a state that the next attempt needs."""
        if not self._changing:
            return self.values
        values = list(self.values)
        for index in self._changing:
            values[index] = _copy_of(values[index])
        return values

    def take(self, events: Iterable[SequencedEvent], table: Table, upto: int | None = None) -> None:
        """Fold these events, up to that number, into the states of a table's projections. Raises UnreadableEvent.

        Exceptions of handlers propagate, with a note that names the event.
        """
        if upto is not None:
            events = [each for each in events if each.sequence_number <= upto]
        if self._key_tag:
            events = self._noted(events)
        values = self.values
        for stored in events:
            if (entry := table.get(stored.type)) is None:
                continue
            decode, type, plain, others = entry
            tags = stored.tags
            happened: object = None
            try:
                for index, tag, apply in plain:
                    if tag in tags:
                        if happened is None:
                            if decode is None or stored.attributes is not NO_ATTRIBUTES:
                                happened = type.read(stored)
                            else:  # as `read` does, without a call
                                try:
                                    happened = decode(stored.data)
                                except Exception:
                                    happened = type.read(stored)
                        values[index] = apply(values[index], happened)
                if others:
                    self._take_one(stored, type, others, happened)
            except UnreadableEvent:
                raise  # its message names the event
            except Exception as error:
                error.add_note(
                    f"It was raised while handling event {stored.sequence_number} of type {show(stored.type)}."
                )
                raise

    def _take_one(self, stored: SequencedEvent, type: EventType[Any], parts: list[Part], happened: object) -> None:
        """Fold one event into the parts that are not plain; `happened` is the event if already read."""
        values, tags = self.values, stored.tags
        for index, asked, apply, takes_stored, skips in parts:
            if not asked or all([each in tags for each in asked]):
                if happened is None:
                    try:
                        happened = type.read(stored)
                    except UnreadableEvent as error:
                        if not skips:
                            raise
                        _logger.warning("skipped: %s", error)
                        continue
                state = values[index]
                values[index] = apply(state, happened, stored) if takes_stored else apply(state, happened)

    def _noted(self, events: Iterable[SequencedEvent]) -> Iterator[SequencedEvent]:
        for each in events:
            if self._key_tag in each.tags:
                self.repeated.append(each)
            yield each


def _asked_for(projections: Sequence[Projection[Any]]) -> Query:
    try:
        return query_of(projections)
    except InvalidQuery as error:
        if error.where != _ITEMS:
            raise
        problem = f"the {len(projections)} projections need more than one query can contain: {error.problem}"
        raise InvalidDefinition(f"{problem}; each set of tags needs one item") from None


def _alone(projection: Projection[Any], apply: Callable[..., Any]) -> Callable[..., Any]:
    """The handler of a projection whose state follows from the newest event alone: it starts from the initial state."""
    return lambda _, *happened: apply(projection.initial(), *happened)


_FIXED = frozenset({str, int, float, bool, bytes, type(None)})
_FLAT = (set, list)


def _copy_of(state: object) -> object:
    """A deep copy; immediate for many plain values."""
    if state.__class__ in _FLAT and _FIXED.issuperset(map(type, state)):
        return state.copy()
    return deepcopy(state)
