"""Makes a decision step by step, without I/O: what to read, what to append, and how long to pause.

A generator yields steps. Its driver (`blocking` on a thread, `aio` on an event loop, `testing` in any order under test)
runs each step, stores the answer in it, and throws errors into the generator.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ..core import errors as core
from ..core.condition import AppendCondition
from ..core.event import NO_ATTRIBUTES, Event, SequencedEvent
from ..core.limits import ID_CHARS_MAX, SEQUENCE_NUMBER_MAX
from ..core.query import Query
from ..core.quoting import show
from .decision import Decided, Decision, following, read_back, written
from .errors import Contended
from .folding import KEY, Plan, States
from .projection import Projection
from .snapshots import Keeping, Resuming, Snapshot, packed, report, unpacked
from .steps import Append, Load, Pause, Read, Save, Steps


def reading(log: str, plan: Plan, states: States, key: str = "") -> Steps[int]:
    """Read what the projections need, up to one common head. Returns that head; 0 if there is nothing to read."""
    layout = plan.layout
    found: dict[int, Found] = {}
    for index in layout.kept:  # before the first read, so that no snapshot is newer than the head
        found[index] = yield from _found(log, plan.projections[index])
    head: int | None = None
    if (query := plan.asked(layout.together, key)) is not None:
        read = Read(query, partial(states.take, table=plan.table(layout.together)))
        yield read
        head = read.head
    for index in layout.kept:
        if not states.repeated:
            head = yield from _resumed(plan, states, index, found[index], head)
    for index in layout.newest:
        if not states.repeated and head != 0:
            head = yield from _newest(plan, states, index, head)
    return head or 0


def catching_up(plan: Plan, states: States, query: Query, since: int) -> Steps[int]:
    """Fold the events after `since`, the head up to which the states are current. Returns the new head.

    One read serves all projections: it covers only the events between two attempts.
    """
    read = Read(query, partial(states.take, table=plan.table(range(len(plan.projections)))), since)
    yield read
    return max(read.head, since)  # a server that follows another server may lag


def _newest(plan: Plan, states: States, index: int, head: int | None) -> Steps[int]:
    """Read the newest event of one projection, up to the head. Returns the head."""
    take = partial(states.take, table=plan.table((index,)), upto=head)
    after = None if head is None else head + 1
    read = Read(plan.projections[index].query, take, after, backwards=True, limit=1)
    yield read
    return read.head if head is None else head


class Found(NamedTuple):
    """The store's result for the snapshot of one projection."""

    keeping: Keeping
    key: str
    snapshot: Snapshot | None


def _found(log: str, projection: Projection[Any]) -> Steps[Found]:
    keeping = projection.keeping
    assert keeping is not None, "it has snapshots"
    key = keeping.key(log, projection.tags, [each.type for each in projection.shape.handled], skips=projection.skips)
    load = Load(keeping.store, key)
    try:
        yield load
    except Exception as error:
        report("cannot be loaded", key, error)
    return Found(keeping, key, unpacked(keeping, key, load.found))


def _resumed(plan: Plan, states: States, index: int, found: Found, head: int | None) -> Steps[int]:
    """Read the events after the snapshot, or all of them if it does not fit the log. Returns the head."""
    projection, (keeping, key, snapshot) = plan.projections[index], found
    upto = SEQUENCE_NUMBER_MAX if head is None else head
    resuming, table = Resuming(snapshot), plan.table((index,))
    read = Read(
        projection.query,
        lambda events: states.take(resuming.new(events, upto), table),
        None if snapshot is None else snapshot.number - 1,
    )
    if snapshot is not None:
        states.values[index] = snapshot.state
    try:
        yield read
    except (core.PositionTrimmed, core.PositionOfOtherIncarnation) as error:
        if snapshot is None:
            raise
        report("includes events that are not in the log, and was not used", key, error)
    else:
        if resuming.is_proved:
            yield from _saved(keeping, key, resuming, states.values[index])
            return read.head if head is None else head
    states.values[index] = projection.initial()
    head = yield from _resumed(plan, states, index, found._replace(snapshot=None), head)
    return head


def _saved(keeping: Keeping, key: str, resuming: Resuming, state: object) -> Steps[None]:
    if resuming.last is None or resuming.count < keeping.every:
        return
    try:
        yield Save(keeping.store, key, packed(key, resuming.last, state))
    except Exception as error:
        report("cannot be saved", key, error)


E = TypeVar("E")

KEY_CHARS_MAX = ID_CHARS_MAX - 10
"""An id is the key and the event's index in its command."""


PATIENCE_S = 5.0
DUPLICATES_MAX = 10
"""The number of times to search for a command's events after their ids turned out to exist."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How long a decision is retried when it loses a race, and how long it pauses.

    Each pause may be twice as long as the last. Five seconds by default, unless `attempts` or `patience_s` sets a
    limit.
    """

    attempts: int | None = None
    """The maximum number of calls of the rule."""
    pause_s: float = 0.002
    """The longest first pause. Each pause is drawn at random, from 0 on."""
    pause_s_max: float = 0.1
    patience_s: float | None = None
    """How long to retry after the first lost race."""

    def are_over(self, attempts: int, since_s: float) -> bool:
        """Whether to stop after this many attempts, this long after the first lost race."""
        if self.attempts is not None and attempts >= self.attempts:
            return True
        patience_s = self.patience_s
        if patience_s is None:
            return self.attempts is None and since_s >= PATIENCE_S
        return since_s >= patience_s

    def pause_after(self, attempt: int) -> float:
        """The pause after that attempt; the first attempt is 1."""
        return random.uniform(0.0, min(self.pause_s_max, self.pause_s * 2.0 ** min(attempt - 1, 60)))


RETRIES = Retries()


class Terms(NamedTuple):
    """The options of a command, in addition to its decision."""

    key: str = ""
    """The idempotency key, or empty."""
    source: str = ""
    """The CloudEvents source of the events."""
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    """Further attributes of the events."""
    retries: Retries = RETRIES

    def check(self) -> None:
        """Raises InvalidInput for a key that is too long."""
        if len(self.key) > KEY_CHARS_MAX:
            problem = f"{show(self.key)} has {len(self.key)} characters; at most {KEY_CHARS_MAX} are allowed"
            raise core.InvalidInput(problem, "key")

    def put_on_all(self, events: list[Event]) -> list[Event]:
        """The events of the command, with its options applied."""
        if not (self.key or self.source or self.attributes):
            return events
        return [self.put_on(each, index) for index, each in enumerate(events)]

    def put_on(self, event: Event, index: int) -> Event:
        """The event at that index of the command."""
        attributes = {**event.attributes, **self.attributes} if self.attributes else event.attributes
        if not self.key:
            return event._replace(source=self.source, attributes=attributes)
        id, tags = f"{self.key}#{index}", (*event.tags, f"{KEY}:{self.key}")
        return event._replace(id=id, tags=tags, source=self.source, attributes=attributes)


def deciding(log: str, decision: Decision[E], terms: Terms) -> Steps[Decided[E]]:
    """Read, decide, and append on condition that there are no new events; otherwise read the new events and repeat.

    Raises the errors of the rule, Contended, and the errors thrown into the steps.
    """
    terms.check()
    plan, key = decision.plan, terms.key
    query = plan.asked(range(len(plan.projections)), key)
    states = States(plan, key)
    head = yield from reading(log, plan, states, key)
    attempt, duplicates, failed_at = 1, 0, 0.0
    while not states.repeated:
        events = following(decision, states.for_rule())
        if not events:
            return Decided((), 0, 0, head, attempt)
        append = Append(terms.put_on_all(written(decision, events, has_key=bool(key))), _condition(query, head))
        try:
            yield append
        except (core.AppendConditionFailed, core.DuplicateEventId) as failed:
            now = time.monotonic()
            failed_at = failed_at or now
            is_over = terms.retries.are_over(attempt, now - failed_at)
            if isinstance(failed, core.DuplicateEventId):
                # the same command was decided differently at the same time: its events can be read now
                duplicates += 1
                if not key or is_over or duplicates >= DUPLICATES_MAX:
                    raise
            elif is_over:
                raise Contended(attempt, failed) from failed
        else:
            result = append.result
            return Decided(events, result.first, result.last, head, attempt, result.was_stored)
        yield Pause(terms.retries.pause_after(attempt))
        attempt += 1
        states, head = yield from _brought_on(log, plan, states, key, head)
    return _repeated(decision, states.repeated, head, attempt)


def _condition(query: Query | None, head: int) -> AppendCondition | None:
    return None if query is None else AppendCondition(query, head)


def _brought_on(log: str, plan: Plan, states: States, key: str, head: int) -> Steps[tuple[States, int]]:
    """The states with the events after that head, and the new head."""
    query = plan.asked(range(len(plan.projections)), key)
    assert query is not None, "other appends changed the events that the decision reads"
    try:
        return states, (yield from catching_up(plan, states, query, head))
    except (
        core.PositionTrimmed,
        core.PositionOfOtherIncarnation,
    ):  # it cannot continue there: only the log's present content exists
        new = States(plan, key)
        return new, (yield from reading(log, plan, new, key))


def _repeated(decision: Decision[E], stored: Sequence[SequencedEvent], head: int, attempt: int) -> Decided[E]:
    numbers = [each.sequence_number for each in stored]
    return Decided(read_back(decision, stored), min(numbers), max(numbers), head, attempt, was_stored=True)


def projecting(log: str, plan: Plan) -> Steps[Sequence[Any]]:
    """The states of the plan's projections."""
    states = States(plan)
    yield from reading(log, plan, states)
    return plan.states(states.values)
