"""The events that a copy has but a rolled-back home lacks, and whether they can be added to the home.

The frames of a log are a chain: each has the checksum of the one before it. So a copy and its home that share one frame
share all earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..frames.encoding import EncodedFrame
from ..frames.frame import Frame
from ..frames.frame_log import Head, nobody
from .replicated_log import FETCHED_BYTES, ReplicatedLog


def _ignore(_: int) -> None:
    """Ignore progress."""


class Surplus(NamedTuple):
    """The events of one log that its copy has but its home lacks."""

    name: str
    """The name of the log."""
    frames: ReplicatedLog
    """The copy of the log."""
    home_head: Head | None
    """The log's head at the home; None if the home has no such log."""
    after: int
    """The last number up to which both have the same events."""
    last: int
    """The last number of the copy."""
    size: int
    """The number of further events in the copy; for the journal, the number of changes."""
    continues: bool
    """Whether the home ends at `after`, or has no event, so that they can be added to it."""


def surplus_of(name: str, frames: ReplicatedLog, home_head: Head | None) -> Surplus | None:
    """The events of a copy that a home with head `home_head` lacks; None if there are none.

    Each of the frames is verified. Raises StorageCorrupted, StorageUnavailable.
    """
    if home_head is not None and frames.last_crc == home_head.crc and frames.head <= home_head.number:
        return None
    number, crc = (0, 0) if home_head is None else home_head[:2]
    first = next(frames.read(number), None)
    is_next = first is None or (first.first > number and crc in (0, first.previous_crc))
    continues = is_next and (first is not None or home_head is None or crc == frames.last_crc)
    if not continues:
        after = _common(frames, number)
    elif first is not None and not crc:  # the home has no frames, so it can never get events trimmed in the copy
        after = first.first - 1
    else:
        after = frames.head if home_head is None else number
    size = sum(frame.count for frame in frames.read(after))
    if not size and not continues:
        return None
    return Surplus(name, frames, home_head, after, frames.last, size, continues)


def add(found: Surplus, told: Callable[[int], None] = _ignore) -> None:
    """Commit the copy's extra frames at the home, in the term begun for this process.

    `told` is called with the number of events committed so far. If this fails midway, the next surplus lacks committed
    frames. Raises HeadMoved, NotPrimary, StorageCorrupted, StorageUnavailable, OutcomeUnknown.
    """
    home, key = found.frames.home, found.frames.key
    if found.home_head is None:
        home.create(key, found.after)
    elif found.home_head.number < found.after:
        home.skip(key, found.after)
    head = Head(found.after, 0 if found.home_head is None else found.home_head.crc, home.term)
    done = 0
    for run, events in _runs(found.frames.read(found.after)):
        home.commit(key, run, head, nobody)
        head = Head(run[-1].last, run[-1].crc, home.term)
        told(done := done + events)
    if found.frames.head > head.number:  # a new incarnation without events continues above it
        home.skip(key, found.frames.head)


def _runs(frames: Iterator[Frame]) -> Iterator[tuple[list[EncodedFrame], int]]:
    """The frames in groups to commit at once, each with its number of events."""
    run: list[EncodedFrame] = []
    size = events = 0
    for frame in frames:
        run.append(EncodedFrame(frame.first, frame.last, frame.recorded_at, frame.crc, frame.length, [frame.content]))
        size, events = size + frame.length, events + frame.count
        if size >= FETCHED_BYTES:
            yield run, events
            run, size, events = [], 0, 0
    if run:
        yield run, events


def _common(frames: ReplicatedLog, home_end: int) -> int:
    """The last number of the newest frame that both have. They agree on all events that the home no longer has."""
    oldest = next(frames.home.frames(frames.key, 0, home_end), None)
    if oldest is None:
        return 0
    low: int = Frame(memoryview(oldest), 0, frames.crc_seed).first - 1
    high = frames.last
    while low < high:
        middle = (low + high + 1) // 2
        frame = frames.frame_at(middle)
        if frame is None or frame.first > high:
            high = middle - 1
        elif next(frames.home.frames(frames.key, frame.last - 1, frame.last), None) == frame.content:
            low = frame.last
        else:
            high = frame.first - 1
    return low
