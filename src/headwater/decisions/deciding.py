"""How a decision is made, step by step, without I/O: what to read, what to append, how long to pause.

A generator yields steps. Who drives it - `blocking` on a thread, `aio` on an event loop, `testing` in any order that is
to be tried - does each, leaves the answer in it, and throws in what went wrong.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from ..core.condition import AppendCondition
from ..core.errors import AppendConditionFailed, DuplicateEventId, InvalidInput
from ..core.event import NO_ATTRIBUTES, Event, SequencedEvent
from ..core.limits import ID_CHARS_MAX
from ..core.shown import show
from .decision import Decided, Decision, following, read_back, written
from .errors import Contended
from .folding import KEY, Plan, States
from .reading import reading
from .steps import Append, Pause, Steps

E = TypeVar("E")

KEY_CHARS_MAX = ID_CHARS_MAX - 10
"""An id is the key and the place of the event among those of its command."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a decision is made when others are faster, and how long the pauses are: up to the double each time."""

    attempts: int = 10
    pause_s: float = 0.002
    """The longest first pause. Each is drawn at random, from 0 on."""
    pause_s_max: float = 0.1

    def pause_after(self, attempt: int) -> float:
        """How long to pause after that attempt, the first being 1."""
        return random.uniform(0.0, min(self.pause_s_max, self.pause_s * 2.0 ** (attempt - 1)))


RETRIES = Retries()


class Terms(NamedTuple):
    """What a command says besides its decision."""

    key: str = ""
    """The idempotency key, or empty."""
    source: str = ""
    """The CloudEvents source of the events."""
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    """More attributes of the events."""
    retries: Retries = RETRIES

    def check(self) -> None:
        """Raises InvalidInput for a key that is too long."""
        if len(self.key) > KEY_CHARS_MAX:
            problem = f"{show(self.key)} has {len(self.key)} characters, at most {KEY_CHARS_MAX} are allowed"
            raise InvalidInput(problem, "key")

    @property
    def says_something(self) -> bool:
        """Whether anything is to be put on events."""
        return bool(self.key or self.source or self.attributes)

    def put_on(self, event: Event, index: int) -> Event:
        """The event at that place of the command."""
        attributes = {**event.attributes, **self.attributes} if self.attributes else event.attributes
        if not self.key:
            return event._replace(source=self.source, attributes=attributes)
        id, tags = f"{self.key}#{index}", (*event.tags, f"{KEY}:{self.key}")
        return event._replace(id=id, tags=tags, source=self.source, attributes=attributes)


def deciding(log: str, decision: Decision[E], terms: Terms) -> Steps[Decided[E]]:
    """Read, decide, append under the condition that nothing came in between; all of it again where something did.

    Raises what the rule raises, Contended, and what the steps are thrown.
    """
    terms.check()
    plan, key = decision.plan, terms.key
    query = plan.asked(range(len(plan.projections)), key)
    attempt = 0
    while True:
        attempt += 1
        states = States(plan, key)
        head = yield from reading(log, plan, states, key)
        if states.repeated:
            return _repeated(decision, states.repeated, head, attempt)
        events = following(decision, states.values)
        if not events:
            return Decided((), 0, 0, head, attempt)
        given = written(decision, events, has_key=bool(key))
        if terms.says_something:
            given = [terms.put_on(each, index) for index, each in enumerate(given)]
        append = Append(given, None if query is None else AppendCondition(query, head))
        try:
            yield append
        except AppendConditionFailed as failed:
            if attempt >= terms.retries.attempts:
                raise Contended(attempt, failed) from failed
        except (
            DuplicateEventId
        ):  # the same command, decided differently at the same time: its events are there to be read
            if not key or attempt >= terms.retries.attempts:
                raise
        else:
            result = append.result
            return Decided(events, result.first, result.last, head, attempt, result.was_stored)
        yield Pause(terms.retries.pause_after(attempt))


def _repeated(decision: Decision[E], stored: Sequence[SequencedEvent], head: int, attempt: int) -> Decided[E]:
    numbers = [each.sequence_number for each in stored]
    return Decided(read_back(decision, stored), min(numbers), max(numbers), head, attempt, was_stored=True)


def projecting(log: str, plan: Plan) -> Steps[Sequence[Any]]:
    """The states of what the plan is for."""
    states = States(plan)
    yield from reading(log, plan, states)
    return plan.states(states.values)
