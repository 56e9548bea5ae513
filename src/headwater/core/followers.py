"""Readers at a position in a log, and their lag: groups, links, consumers, streams, webhooks.

Lag is the number of events after the position; for a reader of one partition, it is the number of events in that
partition, which the index counts. Trimmed events and unused numbers (which a restore can leave) do not count. The age
of the lag is the time since the first event after the position was recorded. Finding it takes one look-up and no scan.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from .local import LocalLog
from .query import ALL
from .reading import next_event


class FollowerKind(StrEnum):
    """The kind of a reader that has a position."""

    REGISTERED = "registered"
    """A registered consumer, which holds trimming back."""
    GROUP = "group"
    """A consumer group, in one partition."""
    RECEIVER = "receiver"
    """A link that carries its own position."""
    DURABLE = "durable"
    """A link whose position outlives it, attached or not."""
    STREAM = "stream"
    """A stream that keeps its own position and reports it."""
    WEBHOOK = "webhook"
    """A webhook subscription, which reads the log of notifications."""


class Follower(NamedTuple):
    """One position in a log."""

    log: LocalLog
    kind: FollowerKind
    owner: str
    """Its owner: a consumer's owner, a group's name, a container, a stream's user, a subscription's id."""
    component: str
    """Its name within the owner: a consumer's component, a partition, the name of a link or stream; empty: no other."""
    after: int
    """Every event up to this number is processed."""
    partition: int | None = None
    """The only partition it reads."""
    upto: int | None = None
    """The last number it reads; None if it never ends."""
    user: str | None = None
    """The user of the link, if known."""


class Lag(NamedTuple):
    """How far behind a position is."""

    events: int
    """The number of waiting events; if it reads only one partition, of the events in that partition."""
    age_ms: int
    """The age of the first waiting event; 0 if there is none."""


NO_LAG = Lag(0, 0)


class Waiting(NamedTuple):
    """The first event waiting for a reader."""

    number: int
    recorded_at: int


def events_behind(log: LocalLog, after: int, upto: int | None = None) -> int:
    """The number of events in the log after that number, up to the head or to `upto`. Takes constant time."""
    head = log.head()
    return log.events_between(max(after + 1, log.first_retained), head if upto is None else min(head, upto))


def first_waiting(log: LocalLog, after: int, partition: int | None = None) -> Waiting | None:
    """The first event after that number, if any. Raises StorageCorrupted, Closed."""
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
    """The lag of a position at that time (ms since 1970 UTC). Raises StorageCorrupted, Closed.

    `first` returns the first waiting event and is called only if there is one; by default it is looked up.
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
