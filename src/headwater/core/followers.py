"""Who reads a log from a position on, and how far behind that is: groups, links, consumers, streams, webhooks.

Lag is the number of events after the position; of a reader of one partition, of those in that partition, which the
index counts. Numbers that no event has, as after a restore, do not count, and trimmed events do not count. Its age is
the time since the first event after the position was recorded: one look-up, no scan.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from .local import LocalLog
from .query import ALL
from .reading import next_event


class FollowerKind(StrEnum):
    """What somebody is who reads from a position on."""

    REGISTERED = "registered"
    """A registered consumer, which holds trimming back."""
    GROUP = "group"
    """A consumer group, in one partition."""
    RECEIVER = "receiver"
    """A link whose position goes with it."""
    DURABLE = "durable"
    """A link whose position outlives it, attached or not."""
    STREAM = "stream"
    """A stream that keeps its position itself, and tells it."""
    WEBHOOK = "webhook"
    """A subscription with a webhook, which reads the log of notifications."""


class Follower(NamedTuple):
    """One position in a log."""

    log: LocalLog
    kind: FollowerKind
    owner: str
    """Whose it is: a consumer's owner, a group's name, a container, a stream's user, a subscription's id."""
    component: str
    """Which of its owner's: a consumer's component, a partition, a link's name, a stream's; empty: it is one."""
    after: int
    """Everything up to this number is done with."""
    partition: int | None = None
    """The only partition that it reads."""
    upto: int | None = None
    """The last number that it wants; None: it goes on for ever."""
    user: str | None = None
    """The user whose link it is, where that is known."""


class Lag(NamedTuple):
    """How far behind a position is."""

    events: int
    """How many events wait: those of its partition, where it reads only one."""
    age_ms: int
    """How old the first waiting event is; 0 if there is none."""


NO_LAG = Lag(0, 0)


class Waiting(NamedTuple):
    """The first event that waits for a reader."""

    number: int
    recorded_at: int


def events_behind(log: LocalLog, after: int, upto: int | None = None) -> int:
    """How many events the log has after that number, up to the head, or to the last that is wanted. Takes no time."""
    head = log.head()
    return log.events_between(max(after + 1, log.first_retained), head if upto is None else min(head, upto))


def first_waiting(log: LocalLog, after: int, partition: int | None = None) -> Waiting | None:
    """The first event after that number, if there is one. Raises StorageCorrupted, Closed."""
    found = next_event(log, after, partition=partition)
    return None if found is None else Waiting(found.sequence_number, found.recorded_at)


def lag_of(
    log: LocalLog,
    after: int,
    now_ms: int,
    *,
    partition: int | None = None,
    upto: int | None = None,
    first: Callable[[], Waiting | None] | None = None,
) -> Lag:
    """How far behind a position is at that time (ms since 1970 UTC). Raises StorageCorrupted, Closed.

    `first` is asked for the first event that waits, where there is any; by default it is looked up.
    """
    behind = events_behind(log, after, upto)
    found = None
    if behind:
        found = first_waiting(log, after, partition) if first is None else first()
    if found is None or (upto is not None and found.number > upto):
        return NO_LAG
    if partition is not None:
        last = log.head() if upto is None else upto
        behind = sum(step.events for step in log.count_steps(ALL, found.number - 1, last, partition=partition))
    return Lag(behind, max(0, now_ms - found.recorded_at))
