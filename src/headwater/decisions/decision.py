"""Decisions: projections, and the rule by which events follow from their states. Any log is asked with them."""

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

    The rule gets the state of each projection, in their order, and answers the event or events that follow, or None for
    none. To refuse, it raises an exception of the domain's own. It may be asked several times, until nobody was faster:
    so it does nothing else, and changes none of the states.
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
        """`emits`: the classes of events that follow, where no projection has them: a command that comes again with an
        idempotency key is answered with the events that it stored the first time, which are read by them.

        Raises InvalidDefinition.
        """
        *knowledge, rule = given or (None,)
        if not callable(rule) or not all(
            [type(each) is Projection or isinstance(each, Knowledge) for each in knowledge]
        ):
            raise InvalidDefinition("a decision is made of projections, and a rule that is called with their states")
        self.rule: Callable[..., E | Sequence[E] | None] = rule
        self.plan = Plan(knowledge)
        self.emits = emits


class Decided(NamedTuple, Generic[E]):
    """What came of a decision."""

    events: tuple[E, ...]
    """What followed; nothing where the rule answered None."""
    first: int
    """The number of the first event; 0 if there is none."""
    last: int
    """The number of the last one; 0 if there is none."""
    head: int
    """The number up to which the decision knows everything."""
    attempts: int
    """How often the rule was asked: once, and again each time that somebody was faster."""
    was_stored: bool = False
    """Whether the events had been stored before: the command came again with its idempotency key."""

    @property
    def event(self) -> E:
        """The event, where there is just one. Raises ValueError."""
        (one,) = self.events
        return one


def following(decision: Decision[E], values: Sequence[Any]) -> tuple[E, ...]:
    """What the rule makes of the states of all projections. Raises what the rule raises."""
    outcome = decision.rule(*decision.plan.states(values))
    if outcome is None:
        return ()
    return tuple(outcome) if isinstance(outcome, _MANY) else (outcome,)  # type: ignore[return-value]


def written(decision: Decision[E], events: Sequence[E], *, has_key: bool) -> list[Event]:
    """The events as the log takes them.

    Raises InvalidDefinition for what could not be read back by a decision that has a key; and as `write`.
    """
    for each in events if has_key else ():
        if type(each) not in (known := _known(decision)):
            names = ", ".join(sorted(kind.__qualname__ for kind in known)) or "none"
            problem = f"it follows from a decision with an idempotency key, which can read back {names}"
            raise InvalidDefinition(f"{type(each).__qualname__}: {problem}; name it in `emits`")
    return [write(each) for each in events]


def read_back(decision: Decision[E], stored: Sequence[SequencedEvent]) -> tuple[E, ...]:
    """The events that this command has stored before. Raises UnknownEvent, UnreadableEvent."""
    types = EventTypes(*_known(decision))
    return tuple([types.read(each) for each in stored])  # type: ignore[misc]


def _known(decision: Decision[Any]) -> list[type]:
    handled = [one.type.kind for each in decision.plan.projections for one in each.shape.handled]
    return list(dict.fromkeys([*handled, *decision.emits]))
