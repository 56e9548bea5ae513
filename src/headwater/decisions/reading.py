"""Which reads the projections of a decision take, and that all of them end at one head. No I/O."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from ..core.errors import PositionOfOtherIncarnation, PositionTrimmed
from ..core.limits import SEQUENCE_NUMBER_MAX
from ..core.query import Query
from .folding import Plan, States
from .projection import Projection
from .snapshots import Keeping, Resuming, Snapshot, packed, report, unpacked
from .steps import Load, Read, Save, Steps


def reading(log: str, plan: Plan, states: States, key: str = "") -> Steps[int]:
    """Read what the projections need, all of it up to one head, which is answered; 0 if nothing is to be read."""
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
    """Fold the events after that head, up to which the states are known. Answers the new head.

    One read serves all projections: it has only the events between two attempts.
    """
    read = Read(query, partial(states.take, table=plan.table(range(len(plan.projections)))), since)
    yield read
    return max(read.head, since)  # a server that follows another one may be behind


def _newest(plan: Plan, states: States, index: int, head: int | None) -> Steps[int]:
    """The newest event of one projection, of those up to the head. Answers that."""
    take = partial(states.take, table=plan.table((index,)), upto=head)
    after = None if head is None else head + 1
    read = Read(plan.projections[index].query, take, after, backwards=True, limit=1)
    yield read
    return read.head if head is None else head


class Found(NamedTuple):
    """What was found in place of a snapshot of one projection."""

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
        report("a snapshot cannot be loaded", key, error)
    return Found(keeping, key, unpacked(keeping, key, load.found))


def _resumed(plan: Plan, states: States, index: int, found: Found, head: int | None) -> Steps[int]:
    """What came after the snapshot, or everything if it does not fit the log. Answers the head."""
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
    except (PositionTrimmed, PositionOfOtherIncarnation) as error:
        if snapshot is None:
            raise
        report("a snapshot is of events that are not there, and was not used", key, error)
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
        report("a snapshot cannot be saved", key, error)
