"""Tests of decisions: given, when, then over a log in memory, and every way in which decisions can race.

Plain functions, which need no test framework: with pytest, `log = pytest.fixture(memory_log)` is a fixture.
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
    """What happened before: `given(CourseDefined("chess", 1)).when(subscribe("ann", "chess")).then(...)`."""
    return Scenario(memory_log(*events))


class Scenario:
    """A log in memory, and what is decided on it: one `when` after the other."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log

    def when(self, decision: Decision[E], *, key: str = "") -> When[E]:
        """This is decided, as soon as it is said what is expected of it."""
        return When(self, lambda: decide(self.log, decision, key=key))


class When(Generic[E]):
    """A decision whose outcome is to be checked by one of these; each answers the scenario as it is then."""

    def __init__(self, scenario: Scenario, decided: Callable[[], Decided[E]]) -> None:
        self._scenario, self._decided = scenario, decided

    def then(self, *expected: object) -> Scenario:
        """Just these events follow, in this order. Raises AssertionError, and what the rule raises."""
        events = self._decided().events
        if events != expected:
            raise AssertionError(f"these events followed: {_listed(events)}; expected: {_listed(expected)}")
        return self._scenario

    def then_nothing(self) -> Scenario:
        """No event follows."""
        return self.then()

    def refused(self, kind: type[X], message: str = "") -> Scenario:
        """The rule raises that exception, with just this message if one is given. Raises AssertionError."""
        try:
            events = self._decided().events
        except kind as error:
            if message and str(error) != message:
                raise AssertionError(
                    f"it was refused with the message {str(error)!r}; expected: {message!r}"
                ) from error
            return self._scenario
        raise AssertionError(f"it was not refused, these events followed: {_listed(events)}")


@dataclass(frozen=True)
class Race:
    """One way in which decisions ran into each other, and what came of it."""

    order: tuple[int, ...]
    """Whose step came when, the first decision being 0. A step is a read or an append."""
    outcomes: tuple[tuple[object, ...] | Exception, ...]
    """By decision: the events that followed, or the exception that its rule raised."""
    stored: tuple[SequencedEvent, ...]
    """What was appended, in the order of the log."""

    @property
    def result(self) -> object:
        """What two races have in common that ended alike: outcomes, and what was stored."""
        outcomes = [(type(each), str(each)) if isinstance(each, Exception) else each for each in self.outcomes]
        return outcomes, [(each.type, each.data, each.tags) for each in self.stored]


def races(*decisions: Decision[Any], given: Sequence[object] = (), key: str = "") -> Iterator[Race]:
    """Every way in which the steps of these decisions can follow each other, each on a log of its own.

    With a `key` all of them have that idempotency key: they are the same command, which came more than once.
    Pauses and snapshots are left out. Raises ValueError for more than 100,000 ways; two decisions have a dozen or two.
    """
    waiting: list[tuple[int, ...]] = [()]
    count = 0
    while waiting:
        if (count := count + 1) > INTERLEAVINGS_MAX:
            raise ValueError(f"{len(decisions)} decisions race in more than {INTERLEAVINGS_MAX:,} ways; let fewer race")
        begun = waiting.pop()
        race, others = _raced(decisions, given, key, begun)
        waiting += others
        yield race


def assert_serializable(*decisions: Decision[Any], given: Sequence[object] = (), key: str = "") -> int:
    """However these decisions race, what comes of it is what comes of doing them one after the other, in some order.

    Answers in how many ways they were raced. Rules whose events have times or ids of their own are told from each other
    by them: give them fixed ones. Raises AssertionError, with the steps that lead to it.
    """
    orders = [_raced(decisions, given, key, order, is_serial=True)[0] for order in permutations(range(len(decisions)))]
    known = [each.result for each in orders]
    count = 0
    for race in races(*decisions, given=given, key=key):
        count += 1
        if race.result not in known:
            raise AssertionError(f"the steps {race.order} lead to what no order of the decisions does: {race.result}")
    return count


class _Racer:
    """A decision that goes on step by step."""

    def __init__(self, steps: Steps[Decided[Any]]) -> None:
        self._steps = steps
        self.outcome: tuple[object, ...] | Exception | None = None
        """What came of it; None while it goes on."""
        self._proceed(lambda: next(steps))

    def step(self, log: MemoryLog) -> None:
        """Do what is next, and find out what comes then."""
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
    """The race that begins with these steps, and then does the first that can go on; and the ways not taken after it.

    If it is serial, each of `begun` is not a step but a decision, done to its end.
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
