"""Tests for decisions: given, when, then over a log in memory, and every way in which decisions can race.

These are plain functions that need no test framework. With pytest, `log = pytest.fixture(memory_log)` is a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Generic, TypeVar

from ..core.event import SequencedEvent
from ..storage.memory import MemoryLog
from .blocking import decide, do
from .deciding import Terms, deciding
from .decision import Decided, Decision
from .events import write
from .steps import Append, Read, Steps

E = TypeVar("E")
X = TypeVar("X", bound=Exception)

INTERLEAVINGS_MAX = 100_000


def memory_log(*given: object) -> MemoryLog:
    """A new log in memory, with these events."""
    log = MemoryLog()
    if given:
        log.append([write(each) for each in given])
    return log


def given(*events: object) -> Scenario:
    """Earlier events: `given(CourseDefined("chess", 1)).when(subscribe("ann", "chess")).then(...)`."""
    return Scenario(memory_log(*events))


class Scenario:
    """A log in memory, and decisions on it, one `when` after the other."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log

    def when(self, decision: Decision[E], *, key: str = "") -> When[E]:
        """Run this decision when the expected outcome is stated."""
        return When(self, lambda: decide(self.log, decision, key=key))


class When(Generic[E]):
    """A decision whose outcome one of these methods checks; each returns the resulting scenario."""

    def __init__(self, scenario: Scenario, decided: Callable[[], Decided[E]]) -> None:
        self._scenario, self._decided = scenario, decided

    def then(self, *expected: object) -> Scenario:
        """Exactly these events follow, in this order. Raises AssertionError, and the errors of the rule."""
        events = self._decided().events
        if events != expected:
            raise AssertionError(f"got these events: {_listed(events)}; expected: {_listed(expected)}")
        return self._scenario

    def then_nothing(self) -> Scenario:
        """No event follows."""
        return self.then()

    def refused(self, kind: type[X], message: str = "") -> Scenario:
        """The rule raises that exception, with exactly this message if one is given. Raises AssertionError."""
        try:
            events = self._decided().events
        except kind as error:
            if message and str(error) != message:
                raise AssertionError(
                    f"it was refused with the message {str(error)!r}; expected: {message!r}"
                ) from error
            return self._scenario
        raise AssertionError(f"expected a refusal, got these events: {_listed(events)}")


@dataclass(frozen=True)
class Race:
    """One interleaving of decisions, and its outcome."""

    order: tuple[int, ...]
    """The decision that took each step; the first decision is 0. A step is a read or an append."""
    outcomes: tuple[tuple[object, ...] | Exception, ...]
    """By decision: the resulting events, or the exception that its rule raised."""
    stored: tuple[SequencedEvent, ...]
    """The appended events, in the order of the log."""

    @property
    def result(self) -> object:
        """A value that is equal for two races with the same outcomes and the same stored events."""
        outcomes = [(type(each), str(each)) if isinstance(each, Exception) else each for each in self.outcomes]
        return outcomes, [(each.type, each.data, each.tags) for each in self.stored]


def races(*decisions: Decision[Any], given: Sequence[object] = (), key: str = "") -> Iterator[Race]:
    """Every interleaving of the steps of these decisions, each on a separate log.

    With a `key`, all of them have that idempotency key: they are the same command, received more than once. Pauses and
    snapshots are left out. Raises ValueError for more than 100,000 interleavings; two decisions have a dozen or two.
    """
    waiting: list[tuple[int, ...]] = [()]
    count = 0
    while waiting:
        if (count := count + 1) > INTERLEAVINGS_MAX:
            raise ValueError(
                f"{len(decisions)} decisions can interleave in more than {INTERLEAVINGS_MAX:,} "
                f"ways; use fewer decisions"
            )
        begun = waiting.pop()
        race, others = _raced(decisions, given, key, begun)
        waiting += others
        yield race


def assert_serializable(*decisions: Decision[Any], given: Sequence[object] = (), key: str = "") -> int:
    """Check that every interleaving has the same outcome as running the decisions one after the other, in some order.

    Returns the number of interleavings. Times or ids in events make the outcomes differ: give them fixed values. Raises
    AssertionError, with the steps that lead to the failure.
    """
    orders = [_raced(decisions, given, key, order, is_serial=True)[0] for order in permutations(range(len(decisions)))]
    known = [each.result for each in orders]
    count = 0
    for race in races(*decisions, given=given, key=key):
        count += 1
        if race.result not in known:
            raise AssertionError(
                f"the steps {race.order} lead to a result that no order of the decisions produces: {race.result}"
            )
    return count


class _Racer:
    """A decision run step by step."""

    def __init__(self, steps: Steps[Decided[Any]]) -> None:
        self._steps = steps
        self.outcome: tuple[object, ...] | Exception | None = None
        """Its outcome; None while it is running."""
        self._proceed(lambda: next(steps))

    def step(self, log: MemoryLog) -> None:
        """Run the next step, and find the one after it."""
        try:
            do(log, self._next)
        except Exception as error:
            failed = error
            self._proceed(lambda: self._steps.throw(failed))
        else:
            self._proceed(lambda: next(self._steps))

    def _proceed(self, proceed: Callable[[], Any]) -> None:
        try:
            self._next = proceed()
            while not isinstance(self._next, Read | Append):  # no pauses, and no snapshots
                self._next = next(self._steps)
        except StopIteration as end:
            self.outcome = end.value.events
        except Exception as error:
            self.outcome = error


def _raced(
    decisions: Sequence[Decision[Any]],
    given: Sequence[object],
    key: str,
    begun: Sequence[int],
    *,
    is_serial: bool = False,
) -> tuple[Race, list[tuple[int, ...]]]:
    """The race that begins with these steps and then runs the first decision that can proceed; and the alternatives.

    If it is serial, each of `begun` is not a step but a decision, run to its end.
    """
    log = memory_log(*given)
    head = log.head()
    racers = [_Racer(deciding(log.name, each, Terms(key))) for each in decisions]
    order: list[int] = []
    others: list[tuple[int, ...]] = []

    def go(index: int) -> None:
        order.append(index)
        racers[index].step(log)

    for index in begun:
        go(index)
        while is_serial and racers[index].outcome is None:
            go(index)
    while going := [index for index, racer in enumerate(racers) if racer.outcome is None]:
        others += [(*order, index) for index in going[1:]]
        go(going[0])
    outcomes = tuple([racer.outcome for racer in racers if racer.outcome is not None])
    return Race(tuple(order), outcomes, tuple(log.read(after=head))), others


def _listed(events: Sequence[object]) -> str:
    return ", ".join(map(repr, events)) or "none"
