"""Projections: what is to be known for a decision, as an initial state and what each event does to it.

Which events must be read is derived: those of the classes that have a handler, with the projection's tags.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ..core.event import SequencedEvent
from ..core.query import Query, QueryItem
from .errors import InvalidDefinition
from .events import EventType, event_type
from .snapshots import EVERY, Keeping, SnapshotStore
from .tags import TagValue, tag_of

S = TypeVar("S")
E = TypeVar("E")
Handler = Callable[[S, E], S]
"""The state after an event. It changes nothing of the state that it is given, unless that came of a `factory`."""
StoredHandler = Callable[[S, E, SequencedEvent], S]
"""The same, with the event as it is stored: its number, and when it was recorded."""


class Handled(NamedTuple):
    """What a projection does with the events of one class."""

    type: EventType[Any]
    apply: Callable[..., Any]
    takes_stored: bool
    """Whether `apply` is given the event as it is stored, after the state and the event."""


class Knowledge(ABC, Generic[S]):
    """What a decision can ask for: one `Projection`, or `Several` of a kind."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Projection[Any], ...]:
        """The projections that it is made of."""

    @abstractmethod
    def state_of(self, states: Sequence[Any]) -> S:
        """Its state, of the states of its parts."""


class Projection(Knowledge[S]):
    """A state that follows from events: `Projection(0, tags={"course": "chess"}).on(Subscribed, lambda n, _: n + 1)`.

    It is a value: `on` answers another one, and a projection may be used any number of times, by any thread.
    """

    def __init__(self, initial: S, *, tags: Mapping[str, TagValue] | None = None, newest_only: bool = False) -> None:
        """All of `tags`, by key, must be on an event for it to count.

        `newest_only`: the state follows from the newest event alone, so that only that one is read.
        Raises InvalidEvent for a value that is no tag's.
        """
        self._initial: Callable[[], S] = lambda: initial
        self.tags = tuple([tag_of(key, value) for key, value in tags.items()]) if tags else ()
        self.newest_only = newest_only
        self.handled: dict[type, Handled] = {}
        self.keeping: Keeping | None = None
        """How its snapshots are kept, if they are."""
        self._keys = frozenset(tags or ())

    @staticmethod
    def made_by(
        factory: Callable[[], S], *, tags: Mapping[str, TagValue] | None = None, newest_only: bool = False
    ) -> Projection[S]:
        """As `Projection`, for a state that its handlers may change and answer: `Projection.made_by(set[str])`."""
        made: Projection[S] = Projection(factory(), tags=tags, newest_only=newest_only)
        made._initial = factory
        return made

    @property
    def parts(self) -> tuple[Projection[Any], ...]:
        """See Knowledge."""
        return (self,)

    def state_of(self, states: Sequence[Any]) -> S:
        """See Knowledge."""
        (state,) = states
        found: S = state
        return found

    def initial(self) -> S:
        """The state before the first event."""
        return self._initial()

    def on(self, kind: type[E], handler: Handler[S, E]) -> Projection[S]:
        """With what events of that class do to the state.

        Raises InvalidDefinition for a class without one of the projection's tags, which would never be found.
        """
        return self._with(kind, handler, takes_stored=False)

    def on_stored(self, kind: type[E], handler: StoredHandler[S, E]) -> Projection[S]:
        """As `on`; the handler gets the event as it is stored, too."""
        return self._with(kind, handler, takes_stored=True)

    def _with(self, kind: type[Any], handler: Callable[..., S], *, takes_stored: bool) -> Projection[S]:
        described = event_type(kind)
        if not self._keys <= described.tag_keys:
            missing = self._keys - described.tag_keys
            known = ", ".join(sorted(described.tag_keys)) or "none"
            raise InvalidDefinition(
                f"{kind.__qualname__} has no tag {', '.join(sorted(missing))} and would never be found; it has: {known}"
            )
        return self._but(handled={**self.handled, kind: Handled(described, handler, takes_stored)})

    def with_snapshots(self, store: SnapshotStore, state: Any, *, version: str, every: int = EVERY) -> Projection[S]:
        """With a snapshot after so many events, from which later decisions go on. It gets a read of its own.

        `state` is the type of the state, which msgspec must be able to encode: `frozenset[str]`. `version` is that of
        the handlers: change it whenever they change, or old states are taken for new ones.
        Raises InvalidDefinition for a projection of the newest event, and for an `every` below 1.
        """
        if self.newest_only or every < 1:
            raise InvalidDefinition("snapshots are for projections of all events, after 1 event or more")
        return self._but(keeping=Keeping(store, state, version, every))

    def _but(self, **changed: Any) -> Projection[S]:
        made: Projection[S] = object.__new__(Projection)
        made.__dict__ = {**self.__dict__, **changed}
        return made

    @property
    def types(self) -> tuple[str, ...]:
        """The types of events that it needs. Raises InvalidDefinition if nothing is handled."""
        if not self.handled:
            raise InvalidDefinition("a projection handles no event; give it some with `on`")
        return tuple([name for each in self.handled.values() for name in each.type.names])

    @property
    def query(self) -> Query:
        """Which events it needs. Raises InvalidDefinition if nothing is handled."""
        return Query.of(QueryItem(self.types, self.tags))


class Several(Knowledge[tuple[S, ...]]):
    """Any number of projections of one kind: `Several([price_of(each) for each in products])`. Its state is a tuple."""

    def __init__(self, projections: Iterable[Projection[S]]) -> None:
        self._parts = tuple(projections)

    @property
    def parts(self) -> tuple[Projection[Any], ...]:
        """See Knowledge."""
        return self._parts

    def state_of(self, states: Sequence[Any]) -> tuple[S, ...]:
        """See Knowledge."""
        return tuple(states)


def query_of(projections: Iterable[Projection[Any]], *more: QueryItem) -> Query:
    """What all of them need together: an item for each set of tags. Raises InvalidDefinition if one handles nothing."""
    types: dict[tuple[str, ...], tuple[str, ...]] = {}
    for each in projections:
        types[each.tags] = types.get(each.tags, ()) + each.types
    return Query.of(*[QueryItem(of, tags) for tags, of in types.items()], *more)
