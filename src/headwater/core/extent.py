"""How far a log goes at one moment, and a piece of it: what is to be known before any of its events is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .consumer import Consumer


@dataclass(frozen=True, slots=True)
class Extent:
    """The events of a log that can be read at one moment."""

    head: int
    """The number of the last durable event; 0 if there never was one."""
    first_retained: int
    """The number from which events can be read; head + 1 if there are none."""
    incarnation: str
    """Identity of the log under its name: see LogInfo."""


class SplitSize(NamedTuple):
    """A piece of a log: the events numbered above `after`, up to `upto`."""

    after: int
    upto: int
    events: int
    """How many there are."""
    bytes: int
    """What they take on the disk, about."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A file of a log's events, or what stands for one. Each has the numbers from `first` to `last`."""

    first: int
    last: int
    """first - 1 if it has no event yet."""
    events: int
    """How many it has; those that were trimmed stay in it until all of them were."""
    bytes: int
    allocated_bytes: int
    """What it takes on the storage, with what was allocated ahead."""
    first_recorded_at: int | None
    """When its first event was recorded, and its last, in ms since 1970 UTC; None if it has none."""
    last_recorded_at: int | None
    is_written: bool
    """Whether it is the one that new events go to."""


class Weight(NamedTuple):
    """What the events of a range of numbers are."""

    events: int
    bytes: int
    """What they take on the storage, about: frames that reach over an end of the range count in part."""


class Held(NamedTuple):
    """A consumer that holds a trim back, and what."""

    consumer: Consumer
    weight: Weight
    """What the trim would drop, but for this consumer and those that are ahead of it."""


class ForeseenTrim(NamedTuple):
    """What a trim would do at this moment."""

    first_retained: int
    """Where the log would begin."""
    weight: Weight
    """What would be dropped."""
    freed_segments: int
    freed_bytes: int
    """The storage gets back whole segments only."""
    held_back: list[Held]
    """By whom, the furthest behind first; at most HELD_MAX of them."""
    held_back_by: int
    """By how many."""


class Drop(NamedTuple):
    """The events that a change of settings or of consumers drops, beyond the events that go without it."""

    events: int
    """How many there are, with those of `history`."""
    first: int
    last: int
    first_recorded_at: int | None
    """When the first of the retained ones was recorded, and the last, in ms since 1970 UTC; None if all are trimmed."""
    last_recorded_at: int | None
    history: int
    """How many are trimmed already, and lose their history: conditions do not see them any more."""


HELD_MAX = 100
