"""Decisions: projections, and the rule that derives events from their states. They work on any log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

from ..core.event import Event, SequencedEvent
from .errors import InvalidDefinition
from .events import EventTypes, write
from .folding import Plan
from .projection import Knowledge, Projection

E = TypeVar("E")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
F = TypeVar("F")
G = TypeVar("G")
Emits = Sequence[type[E]]
_MANY = (list, tuple)


class Decision(Generic[E]):
    """Projections, then the rule: `Decision(seats_left(course), has_seat(course, student), rule)`.

    The rule gets the state of each projection, in order, and returns the resulting event or events, or None. To refuse,
    it raises one of the domain's own exceptions. It may be called several times, until no other writer interferes. So
    it must have no side effects and must not change the states.
    """

    @overload
    def __init__(self, rule: Callable[[], Sequence[E] | None], /, *, emits: Emits[E] = ()) -> None: ...

    @overload
    def __init__(self, rule: Callable[[], E | None], /, *, emits: Emits[E] = ()) -> None: ...

    @overload
    def __init__(
        self, a: Knowledge[A], rule: Callable[[A], Sequence[E] | None], /, *, emits: Emits[E] = ()
    ) -> None: ...

    @overload
    def __init__(self, a: Knowledge[A], rule: Callable[[A], E | None], /, *, emits: Emits[E] = ()) -> None: ...

    @overload
    def __init__(
        self, a: Knowledge[A], b: Knowledge[B], rule: Callable[[A, B], Sequence[E] | None], /, *, emits: Emits[E] = ()
    ) -> None: ...

    @overload
    def __init__(
        self, a: Knowledge[A], b: Knowledge[B], rule: Callable[[A, B], E | None], /, *, emits: Emits[E] = ()
    ) -> None: ...

    @overload
    def __init__(
        self,
        a: Knowledge[A],
        b: Knowledge[B],
        c: Knowledge[C],
        rule: Callable[[A, B, C], Sequence[E] | None],
        /,
        *,
        emits: Emits[E] = (),
    ) -> None: ...

    @overload
    def __init__(
        self,
        a: Knowledge[A],
        b: Knowledge[B],
        c: Knowledge[C],
        rule: Callable[[A, B, C], E | None],
        /,
        *,
        emits: Emits[E] = (),
    ) -> None: ...

    @overload
    def __init__(
        self,
        a: Knowledge[A],
        b: Knowledge[B],
        c: Knowledge[C],
        d: Knowledge[D],
        rule: Callable[[A, B, C, D], Sequence[E] | None],
        /,
        *,
        emits: Emits[E] = (),
    ) -> None: ...

    @overload
    def __init__(
        self,
        a: Knowledge[A],
        b: Knowledge[B],
        c: Knowledge[C],
        d: Knowledge[D],
        rule: Callable[[A, B, C, D], E | None],
        /,
        *,
        emits: Emits[E] = (),
    ) -> None: ...

    @overload
    def __init__(
        self,
        a: Knowledge[A],
        b: Knowledge[B],
        c: Knowledge[C],
        d: Knowledge[D],
        f: Knowledge[F],
        rule: Callable[[A, B, C, D, F], Sequence[E] | None],
        /,
        *,
        emits: Emits[E] = (),
    ) -> None: ...

    @overload
    def __init__(
        self,
        a: Knowledge[A],
        b: Knowledge[B],
        c: Knowledge[C],
        d: Knowledge[D],
        f: Knowledge[F],
        rule: Callable[[A, B, C, D, F], E | None],
        /,
        *,
        emits: Emits[E] = (),
    ) -> None: ...

    @overload
    def __init__(
        self,
        a: Knowledge[A],
        b: Knowledge[B],
        c: Knowledge[C],
        d: Knowledge[D],
        f: Knowledge[F],
        g: Knowledge[G],
        rule: Callable[[A, B, C, D, F, G], Sequence[E] | None],
        /,
        *,
        emits: Emits[E] = (),
    ) -> None: ...

    @overload
    def __init__(
        self,
        a: Knowledge[A],
        b: Knowledge[B],
        c: Knowledge[C],
        d: Knowledge[D],
        f: Knowledge[F],
        g: Knowledge[G],
        rule: Callable[[A, B, C, D, F, G], E | None],
        /,
        *,
        emits: Emits[E] = (),
    ) -> None: ...

    def __init__(self, *given: Any, emits: Emits[E] = ()) -> None:
        """`emits`: the classes of the resulting events that no projection handles.

        They are needed to read a command's stored events when it is repeated with its idempotency key. Raises
        InvalidDefinition.
        """
        *knowledge, rule = given or (None,)
        if not callable(rule) or not all(
            [type(each) is Projection or isinstance(each, Knowledge) for each in knowledge]
        ):
            raise InvalidDefinition("a decision needs projections and a rule that is called with their states")
        self.rule: Callable[..., E | Sequence[E] | None] = rule
        self.plan = Plan(knowledge)
        self.emits = emits


class Decided(NamedTuple, Generic[E]):
    """The result of a decision."""

    events: tuple[E, ...]
    """The resulting events; empty if the rule returned None."""
    first: int
    """The number of the first event; 0 if there is none."""
    last: int
    """The number of the last one; 0 if there is none."""
    head: int
    """The decision has seen all events up to this number."""
    attempts: int
    """The number of times the rule was called: once, and again after each lost race."""
    was_stored: bool = False
    """Whether the events were stored before: the command was repeated with its idempotency key."""

    @property
    def event(self) -> E:
        """The event, if there is exactly one. Raises ValueError."""
        (one,) = self.events
        return one


def following(decision: Decision[E], values: Sequence[Any]) -> tuple[E, ...]:
    """The events that the rule derives from the states of all projections. Raises the errors of the rule."""
    outcome = decision.rule(*decision.plan.states(values))
    if outcome is None:
        return ()
    return tuple(outcome) if isinstance(outcome, _MANY) else (outcome,)  # type: ignore[return-value]


def written(decision: Decision[E], events: Sequence[E], *, has_key: bool) -> list[Event]:
    """The events in the form that the log accepts.

    Raises InvalidDefinition for events that a decision with a key could not read back, and the errors of `write`.
    """
    for each in events if has_key else ():
        if type(each) not in (known := _known(decision)):
            names = ", ".join(sorted(kind.__qualname__ for kind in known)) or "none"
            problem = f"it follows from a decision with an idempotency key, which can read back {names}"
            raise InvalidDefinition(f"{type(each).__qualname__}: {problem}; name it in `emits`")
    return [write(each) for each in events]


def read_back(decision: Decision[E], stored: Sequence[SequencedEvent]) -> tuple[E, ...]:
    """The events that this command stored before. Raises UnknownEvent, UnreadableEvent."""
    types = EventTypes(*_known(decision))
    return tuple([types.read(each) for each in stored])  # type: ignore[misc]


def _known(decision: Decision[Any]) -> list[type]:
    handled = [one.type.kind for each in decision.plan.projections for one in each.shape.handled]
    return list(dict.fromkeys([*handled, *decision.emits]))
