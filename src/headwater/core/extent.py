"""The extent of a log and of its parts at one moment, known without reading any event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .consumer import Consumer


@dataclass(frozen=True, slots=True)
class Extent:
    """The range of events that can be read at one moment."""

    head: int
    """The number of the last durable event; 0 if there has never been one."""
    first_retained: int
    """The number from which events can be read; head + 1 if there are none."""
    incarnation: str
    """Identity of the log under its name: see LogInfo."""


class SplitSize(NamedTuple):
    """A split of a log: the events numbered above `after`, up to `upto`."""

    after: int
    upto: int
    events: int
    """The number of events."""
    bytes: int
    """Their approximate size on disk."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A file of a log's events, or its equivalent. It covers the numbers from `first` to `last`."""

    first: int
    last: int
    """first - 1 if it has no event yet."""
    events: int
    """The number of events in it. Trimmed events stay in it until all of its events are trimmed."""
    bytes: int
    allocated_bytes: int
    """Its size on the storage, including preallocated space."""
    first_recorded_at: int | None
    """When its first and last events were recorded, in ms since 1970 UTC; None if it has none."""
    last_recorded_at: int | None
    is_written: bool
    """Whether new events are written to it."""


class Weight(NamedTuple):
    """The number and size of the events in a range of numbers."""

    events: int
    bytes: int
    """Their approximate size on the storage. Frames that cross an end of the range are counted in part."""


class Held(NamedTuple):
    """A consumer that holds a trim back, and the events it holds."""

    consumer: Consumer
    weight: Weight
    """The events that a trim would drop without this consumer and the consumers ahead of it."""


class ForeseenTrim(NamedTuple):
    """What a trim would do now."""

    first_retained: int
    """The number from which events would remain."""
    weight: Weight
    """The events that would be dropped."""
    freed_segments: int
    freed_bytes: int
    """The space freed: only whole segments are removed."""
    held_back: list[Held]
    """The consumers that hold it back, the furthest behind first; at most HELD_MAX."""
    held_back_by: int
    """The number of consumers that hold it back."""


class Drop(NamedTuple):
    """The events that a change of settings or consumers drops, beyond those dropped without it."""

    events: int
    """The number of events, including those of `history`."""
    first: int
    last: int
    first_recorded_at: int | None
    """When the first and last of the retained ones were recorded, in ms since 1970 UTC; None if all are trimmed."""
    last_recorded_at: int | None
    history: int
    """The number of events that are trimmed already and lose their history: conditions no longer see them."""


HELD_MAX = 100
