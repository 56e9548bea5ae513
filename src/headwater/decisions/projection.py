"""Projections: the knowledge that a decision needs, as an initial state and the effect of each event on it.

The events to read are derived: they are the events of the classes that have a handler, with the projection's tags.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from ..core.event import SequencedEvent
from ..core.limits import TYPE_CHARS_MAX
from ..core.query import Query, QueryItem
from ..core.quoting import show
from .errors import InvalidDefinition
from .shapes import Shape, shape_of
from .snapshots import EVERY, Keeping, SnapshotStore
from .tags import TagValue, tag_of

S = TypeVar("S")
E = TypeVar("E")
Handler = Callable[[S, E], S]
"""The state after an event. It must not change the given state, unless a `factory` made that state."""
StoredHandler = Callable[[S, E, SequencedEvent], S]
"""Like `Handler`, with the event as stored: its number, and when it was recorded."""
Unreadable = Literal["fail", "skip"]
"""How to treat a stored event that does not match its class: an error, or a line in the program's log."""
_new = object.__new__
_CHANGEABLE = (list, dict, set, bytearray)
PLAIN_ITEMS_MAX = 16
"""Queries of more projections than this are always checked."""


class Knowledge(ABC, Generic[S]):
    """The knowledge that a decision can request: one `Projection`, or `Several` of a kind."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> tuple[Projection[Any], ...]:
        """Its component projections."""

    @abstractmethod
    def state_of(self, states: Sequence[Any]) -> S:
        """Its state, computed from the states of its parts."""


class Projection(Knowledge[S]):
    """A state that follows from events: `Projection(0, tags={"course": "chess"}).on(Subscribed, lambda n, _: n + 1)`.

    It is a value: `on` returns a new one, and any thread can use a projection any number of times.
    """

    __slots__ = ("factory", "first", "handlers", "is_plain", "keeping", "shape", "skips", "tags")

    if not TYPE_CHECKING:

        def __class_getitem__(cls, state: object) -> type:
            """`Projection[int]` is for type checkers: `Generic` would take longer than everything else here."""
            return cls

    def __init__(
        self,
        initial: S,
        *,
        tags: Mapping[str, TagValue] | None = None,
        newest_only: bool = False,
        unreadable: Unreadable = "fail",
    ) -> None:
        """An event counts only if it has all of `tags` (values by key).

        `newest_only`: the state follows from the newest event alone, so only that one is read. `unreadable`: a stored
        event that does not match its class raises UnreadableEvent ("fail"), or is logged and left out of the state
        ("skip"). Raises InvalidEvent for a value that cannot be a tag, and InvalidDefinition for a list, dict, set or
        bytearray as the initial state: all uses of the projection would change the same one.
        """
        if isinstance(initial, _CHANGEABLE):
            kind = type(initial).__name__
            problem = f"got {show(initial)} as the initial state, which all uses of the projection would share"
            raise InvalidDefinition(
                f"{problem}; pass a factory that returns a new {kind} instead: Projection.made_by({kind})"
            )
        if unreadable not in ("fail", "skip"):
            raise InvalidDefinition(f"`unreadable`: expected 'fail' or 'skip', got {show(unreadable)}")
        if newest_only and unreadable == "skip":
            raise InvalidDefinition("`newest_only` reads only the newest event, so there is no state to continue from")
        self.shape: Shape = shape_of(tuple(tags or ()), newest_only)
        """The properties that it shares with other projections, whatever the values of their tags."""
        self.tags = tuple([tag_of(key, value) for key, value in tags.items()]) if tags else ()
        text = "".join(self.tags)
        self.is_plain = len(text) <= TYPE_CHARS_MAX and text.isprintable()
        """Whether its tags clearly fit a query, without a check."""
        self.first: S = initial
        """The state before the first event, unless the factory makes it."""
        self.factory: Callable[[], S] | None = None
        self.handlers: tuple[Callable[..., S], ...] = ()
        """The handlers for the events of each class of its shape, in their order."""
        self.keeping: Keeping | None = None
        """How its snapshots are kept, if they are."""
        self.skips = unreadable == "skip"
        """Whether it skips an event that cannot be read."""

    @staticmethod
    def made_by(
        factory: Callable[[], S],
        *,
        tags: Mapping[str, TagValue] | None = None,
        newest_only: bool = False,
        unreadable: Unreadable = "fail",
    ) -> Projection[S]:
        """Like `Projection`, for a state that its handlers may change and return: `Projection.made_by(set[str])`."""
        made: Projection[Any] = Projection(None, tags=tags, newest_only=newest_only, unreadable=unreadable)
        made.factory = factory
        return made

    @property
    def parts(self) -> tuple[Projection[Any], ...]:
        return (self,)

    def state_of(self, states: Sequence[Any]) -> S:
        (state,) = states
        found: S = state
        return found

    def initial(self) -> S:
        """The state before the first event."""
        return self.first if self.factory is None else self.factory()

    def on(self, kind: type[E], handler: Handler[S, E]) -> Projection[S]:
        """Add the handler for events of that class.

        Raises InvalidDefinition for a class that lacks one of the projection's tags: no event would ever match.
        """
        return self._with(kind, handler, False)

    def on_stored(self, kind: type[E], handler: StoredHandler[S, E]) -> Projection[S]:
        """Like `on`; the handler also gets the event as stored."""
        return self._with(kind, handler, True)

    def _with(self, kind: type[Any], handler: Callable[..., S], takes_stored: bool) -> Projection[S]:
        _, shape, place = self.shape.handling(kind, takes_stored)
        made, before = self._copy(), self.handlers
        made.shape = shape
        made.handlers = (*before, handler) if place == len(before) else (*before[:place], handler, *before[place + 1 :])
        return made

    def with_snapshots(self, store: SnapshotStore, state: Any, *, version: str, every: int = EVERY) -> Projection[S]:
        """Store a snapshot after this many events; later decisions resume from it. It gets a separate read.

        `state` is the type of the state, which msgspec must be able to encode: `frozenset[str]`. `version` is the
        version of the handlers: change it whenever they change, or old states are mistaken for new ones. Raises
        InvalidDefinition for a projection of the newest event, and for an `every` below 1.
        """
        if self.shape.newest_only or every < 1:
            raise InvalidDefinition("snapshots need a projection of all events and an interval of 1 or more")
        made = self._copy()
        made.shape, made.keeping = self.shape.kept, Keeping(store, state, version, every)
        return made

    def _copy(self) -> Projection[S]:
        made: Projection[S] = _new(Projection)
        made.shape, made.handlers, made.keeping, made.tags = self.shape, self.handlers, self.keeping, self.tags
        made.is_plain, made.first, made.factory = self.is_plain, self.first, self.factory
        made.skips = self.skips
        return made

    @property
    def types(self) -> tuple[str, ...]:
        """The types of events that it needs. Raises InvalidDefinition if it has no handler."""
        if not self.shape.handled:
            raise InvalidDefinition("a projection handles no event type; add some with `on`")
        return self.shape.types

    @property
    def query(self) -> Query:
        """The query for the events it needs. Raises InvalidDefinition if it has no handler."""
        return query_of((self,))


class Several(Knowledge[tuple[S, ...]]):
    """Any number of projections of one kind: `Several([price_of(each) for each in products])`. Its state is a tuple."""

    def __init__(self, projections: Iterable[Projection[S]]) -> None:
        self._parts = tuple(projections)

    @property
    def parts(self) -> tuple[Projection[Any], ...]:
        return self._parts

    def state_of(self, states: Sequence[Any]) -> tuple[S, ...]:
        return tuple(states)


def query_of(projections: Sequence[Projection[Any]], *more: QueryItem) -> Query:
    """The query of all of them together: an item for each set of tags.

    Raises InvalidDefinition for one without a handler.
    """
    if not more and (plain := _plain_items(projections)):
        return Query(plain)
    types: dict[tuple[str, ...], tuple[str, ...]] = {}
    for each in projections:
        types[each.tags] = types.get(each.tags, ()) + each.types
    return Query.of(*[QueryItem(of, tags) for tags, of in types.items()], *more)


def _plain_items(projections: Sequence[Projection[Any]]) -> tuple[QueryItem, ...]:
    """The items as `Query.of` makes them, if they are known to be valid, distinct and in order; otherwise none."""
    seen: list[tuple[str, ...]] = []
    items: list[QueryItem] = []
    for each in projections:
        tags, shape = each.tags, each.shape
        if not (each.is_plain and shape.is_plain) or tags in seen or len(seen) == PLAIN_ITEMS_MAX:
            return ()
        seen.append(tags)
        items.append(QueryItem(shape.types, tags if len(tags) < 2 else tuple(sorted(tags))))
    return tuple(items)
