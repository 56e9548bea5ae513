"""Shapes: the properties that the projections of one definition share, whatever the values of their tags. Made once.

A program defines a projection again for each command, with the command's own tags and handlers. The tag keys, event
classes and read methods are the same each time, so they are looked up here instead of derived again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ..core.quoting import show
from .errors import InvalidDefinition
from .events import EventType, described, event_type

SHAPES_MAX = 1000
"""The number of cached shapes of each kind. A program has as many as it has definitions."""
GROWN_MAX = 10_000
"""The number of cached shapes that are derived from others: a definition has one for each of its handlers."""
TYPES_PLAIN_MAX = 50
PROJECTIONS_KEPT_MAX = 16
"""Layouts of more projections are not cached: they need much memory, and are a small part of the cost of such a
decision."""


class Handled(NamedTuple):
    """How a projection handles the events of one class."""

    type: EventType[Any]
    takes_stored: bool
    """Whether its handler also gets the event as stored, after the state and the event."""


class Shape:
    """A projection's tag keys, the event classes that it handles, and how it is read."""

    def __init__(
        self, keys: tuple[str, ...], *, newest_only: bool, is_kept: bool = False, handled: tuple[Handled, ...] = ()
    ) -> None:
        self.keys, self.newest_only, self.is_kept, self.handled = keys, newest_only, is_kept, handled
        self.types = tuple(sorted({name for each in handled for name in each.type.names}))
        """The types under which its events are stored, in order."""
        self.is_plain = 0 < len(self.types) <= TYPES_PLAIN_MAX
        """Whether a query has room for them without a check."""

    def handling(self, kind: type, takes_stored: bool) -> Grown:
        """The shape that also handles that class. Raises InvalidDefinition."""
        return _grown(self, described.get(kind) or event_type(kind), takes_stored)

    @cached_property
    def kept(self) -> Shape:
        """The same, with snapshots."""
        return Shape(self.keys, newest_only=self.newest_only, is_kept=True, handled=self.handled)


class Grown(NamedTuple):
    """A shape with one more class."""

    type: EventType[Any]
    shape: Shape
    place: int
    """The index of the class's handler."""


@lru_cache(maxsize=GROWN_MAX)
def _grown(shape: Shape, type: EventType[Any], takes_stored: bool) -> Grown:
    if missing := set(shape.keys) - type.tag_keys:
        known = ", ".join(sorted(type.tag_keys)) or "none"
        problem = f"has no tag {', '.join(sorted(missing))} and would never match; it has: {known}"
        raise InvalidDefinition(f"{type.kind.__qualname__} {problem}")
    kinds = [each.type.kind for each in shape.handled]
    place = kinds.index(type.kind) if type.kind in kinds else len(kinds)
    handled = (*shape.handled[:place], Handled(type, takes_stored), *shape.handled[place + 1 :])
    grown = Shape(shape.keys, newest_only=shape.newest_only, is_kept=shape.is_kept, handled=handled)
    return Grown(type, grown, place)


@lru_cache(maxsize=SHAPES_MAX)
def shape_of(keys: tuple[str, ...], newest_only: bool) -> Shape:
    """The shape of projections with these keys and no handlers yet."""
    return Shape(keys, newest_only=newest_only)


class Reader(NamedTuple):
    """The handlers for the events of one type."""

    name: str
    type: EventType[Any]
    handlers: list[tuple[int, int, bool]]
    """The projection's index, the handler's index in it, and whether the handler accepts the event as stored."""


class Layout:
    """The common part of the plans of projections of the same shapes."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        """Raises InvalidDefinition for two classes of one type."""
        self.kept = [index for index, each in enumerate(shapes) if each.is_kept]
        """The projections with snapshots; each needs a separate read."""
        self.newest = [index for index, each in enumerate(shapes) if each.newest_only]
        """The projections of the newest event; each needs a separate read."""
        self.together = [index for index, each in enumerate(shapes) if not (each.is_kept or each.newest_only)]
        """The projections that share one read."""
        self.takes_one_read = len(self.together) == len(shapes)
        self.readers = _readers(shapes)


def layout_of(shapes: tuple[Shape, ...]) -> Layout:
    """The layout of projections of these shapes. Raises InvalidDefinition."""
    return _kept_layout(shapes) if len(shapes) <= PROJECTIONS_KEPT_MAX else Layout(shapes)


@lru_cache(maxsize=SHAPES_MAX)
def _kept_layout(shapes: tuple[Shape, ...]) -> Layout:
    return Layout(shapes)


def _readers(shapes: Sequence[Shape]) -> list[Reader]:
    found: dict[str, Reader] = {}
    for index, shape in enumerate(shapes):
        for place, (type, takes_stored) in enumerate(shape.handled):
            for name in type.names:
                reader = found.setdefault(name, Reader(name, type, []))
                if reader.type is not type:
                    pair = f"{reader.type.kind.__qualname__} and {type.kind.__qualname__}"
                    raise InvalidDefinition(f"{pair} are both stored as {show(name)}")
                reader.handlers.append((index, place, takes_stored))
    return list(found.values())
