"""Who reads a log from a position on, and how far behind that is: groups, links, consumers, streams, webhooks.

How old what waits is, is the time at which the first event after the position was recorded: one look-up, no scan.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from .event import SequencedEvent
from .local import LocalLog
from .query import ALL


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
    """How far the head is ahead, in sequence numbers; 0 where nothing of its partition waits."""
    age_ms: int
    """How old the first event is that waits; 0 if there is none."""


NO_LAG = Lag(0, 0)


def numbers_behind(log: LocalLog, after: int, upto: int | None = None) -> int:
    """How many numbers are after that one, up to the head, or to the last that is wanted."""
    head = log.head()
    return max(0, (head if upto is None else min(head, upto)) - after)


def next_event(log: LocalLog, after: int, partition: int | None = None) -> SequencedEvent | None:
    """The first event after that number, if there is one. Raises StorageCorrupted, Closed."""
    while True:
        page = log.read_page(ALL, after, limit=1, partition=partition)
        if page.events:
            return page.events[0]
        if page.is_last:
            return None
        after = page.cursor


def lag_of(log: LocalLog, after: int, now_ms: int, *, partition: int | None = None, upto: int | None = None) -> Lag:
    """How far behind a position is at that time (ms since 1970 UTC). Raises StorageCorrupted, Closed."""
    behind = numbers_behind(log, after, upto)
    found = next_event(log, after, partition) if behind else None
    if found is None or (upto is not None and found.sequence_number > upto):
        return NO_LAG
    passed = found.sequence_number - 1 - after if partition is not None else 0
    return Lag(behind - passed, max(0, now_ms - found.recorded_at))
