"""Damage to the newest segment, byte by byte: a torn tail is cut, bit rot is refused, and nothing false is ever served.

Each frame tells how much was durable when it was written, so a frame that others follow is known to have been durable.
The last frame is not: damage to it cannot be told from a write that never ended.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.core import Event, LocalLog, SequencedEvent
from headwater.core.errors import EventLogError, StorageCorrupted
from headwater.storage import Engine
from headwater.storage.segments.meta import read_meta
from headwater.storage.segments.segment import SEGMENT_HEADER_BYTES

NAME = "orders"
IS_LONG = os.environ.get("HEADWATER_TEST_PROFILE") == "long"
STRIDE = 1 if IS_LONG else 37
"""The distance of the bytes that are damaged; at the borders of frames it is every byte."""


@dataclass
class Crashed:
    """A data directory as a crash leaves it, its events, and where its frames end in the newest segment."""

    directory: Path
    events: list[SequencedEvent]
    ends: list[int]
    """Of the frames, which have one append of two events each; the first is the end of the segment's header."""

    @property
    def segment(self) -> Path:
        return sorted(self.directory.glob("logs/*/log/*.log"))[-1]

    def bytes_of_last_frames(self, count: int) -> Iterator[int]:
        """The offsets to damage in the last frames."""
        first, last = self.ends[-1 - count], self.ends[-1]
        for offset in range(first, last):
            if (offset - first) % STRIDE == 0 or any(abs(offset - end) <= 4 for end in self.ends):
                yield offset

    def frame_of(self, offset: int) -> int:
        """Which frame has that byte, counted from 0."""
        return sum(end <= offset for end in self.ends) - 1


@pytest.fixture(scope="module")
def crashed(disk: Path) -> Crashed:
    live, copy = disk / "live", disk / "crash" / "data"
    with Engine(live, maintains=False) as engine:
        log = engine.create(NAME)
        ends = []
        for number in range(6):
            tags = (f"frame:{number}", "x:1")
            attributes = {"subject": "s"}
            log.append([Event(f"T{number}", os.urandom(60), tags), Event("B", b"", ("x:2",), attributes=attributes)])
            ends.append(log.frames.segments[-1].end)
        shutil.copytree(live, copy, ignore=shutil.ignore_patterns("*.sock"))
        events = list(log.read())
    crashed = Crashed(copy, events, [SEGMENT_HEADER_BYTES, *ends])
    os.truncate(crashed.segment, ends[-1] + 4096)  # as if preallocated to that size: copies are quick
    (copy / "LOCK").unlink()
    return crashed


def flip(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 0x10
    file.write_bytes(content)


def zero_rest_of_sector(file: Path, offset: int) -> None:
    """As if a sector of the disk had never been written."""
    content = bytearray(file.read_bytes())
    end = min(offset - offset % 512 + 512, len(content))
    content[offset:end] = bytes(end - offset)
    file.write_bytes(content)


def zero_one(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] = 0
    file.write_bytes(content)


def truncate(file: Path, offset: int) -> None:
    os.truncate(file, offset)


def tear(file: Path, offset: int) -> None:
    """As if the write had ended there."""
    content = file.read_bytes()
    file.write_bytes(content[:offset] + bytes(len(content) - offset))


@dataclass
class Outcome:
    """What opening a damaged directory gave: a prefix of the events, or a refusal."""

    events: list[SequencedEvent]
    refusal: EventLogError | None


def reopened(crashed: Crashed, tmp_path: Path, damage: Callable[[Path], None]) -> Outcome:
    """Damage a copy, open it, read everything; where it opens, append, open again, and read that too."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(crashed.directory, copy, ignore=shutil.ignore_patterns("*.sock"))
    damage(sorted(copy.glob("logs/*/log/*.log"))[-1])
    try:
        with Engine(copy, maintains=False) as engine:
            events = readable(engine.open(NAME))
            added = engine.open(NAME).append([Event("After", b"after")])
            assert added.first == len(events) + 1
    except EventLogError as refusal:
        return Outcome([], refusal)
    for path in copy.glob("logs/*/META.json"):
        read_meta(path.parent).changed(clean=None).write(path.parent)  # so that every frame is looked at again
    with Engine(copy, maintains=False) as engine:
        again = readable(engine.open(NAME))
    assert again[:-1] == events
    assert again[-1].data == b"after"
    return Outcome(events, None)


def readable(log: LocalLog) -> list[SequencedEvent]:
    """The events, which must be the same whichever way they are read."""
    events = list(log.read())
    assert list(log.read(backwards=True)) == events[::-1]
    assert log.head() == log.info().events == len(events)
    return events


@pytest.mark.parametrize("cut", [tear, truncate])
def test_a_tail_cut_anywhere_leaves_all_frames_before_it(
    crashed: Crashed, tmp_path: Path, cut: Callable[[Path, int], None]
) -> None:
    for offset in crashed.bytes_of_last_frames(2):
        outcome = reopened(crashed, tmp_path, lambda file: cut(file, offset))  # noqa: B023
        assert outcome.refusal is None, (offset, outcome.refusal)
        kept = crashed.frame_of(offset)
        content = crashed.segment.read_bytes()
        if cut is tear and not any(content[offset : crashed.ends[kept + 1]]):
            kept += 1  # there were only zeros behind it in its frame
        assert outcome.events == crashed.events[: 2 * kept], offset


@pytest.mark.parametrize("hurt", [flip, zero_one, zero_rest_of_sector])
def test_damage_is_cut_in_the_last_frame_and_refused_below_it(
    crashed: Crashed, tmp_path: Path, hurt: Callable[[Path, int], None]
) -> None:
    last = len(crashed.ends) - 2
    content = crashed.segment.read_bytes()
    damaged_copy = tmp_path / "damaged"
    for offset in crashed.bytes_of_last_frames(3):
        damaged_copy.write_bytes(content)
        hurt(damaged_copy, offset)
        damaged = damaged_copy.read_bytes()
        reach = range(offset, min(offset + 512, len(content)))
        touched = {crashed.frame_of(place) for place in reach if damaged[place] != content[place]}
        outcome = reopened(crashed, tmp_path, lambda file: hurt(file, offset))  # noqa: B023
        if outcome.refusal is None:
            assert outcome.events == crashed.events[: len(outcome.events)], offset
        if not touched:
            assert outcome.events == crashed.events, offset
        elif min(touched) == last:
            assert outcome.refusal is None, (offset, outcome.refusal)
            assert outcome.events in (crashed.events[: 2 * last], crashed.events), offset
        elif last not in touched:
            if outcome.refusal is None:  # a byte that no frame needs, between two of them
                assert outcome.events == crashed.events, offset
            else:
                assert isinstance(outcome.refusal, StorageCorrupted), (offset, outcome.refusal)
                assert outcome.refusal.remedy and outcome.refusal.problem
        else:  # the frame that would have told is hurt too
            assert outcome.refusal is None or isinstance(outcome.refusal, StorageCorrupted), offset
            assert outcome.refusal or len(outcome.events) >= 2 * min(touched)


@pytest.mark.parametrize("garbage", [b"\xff" * 100, b"HW" * 300, os.urandom(2000), b"\0" * 64 + b"\x01"])
def test_garbage_behind_the_last_frame_is_cut(crashed: Crashed, tmp_path: Path, garbage: bytes) -> None:
    """Such as is left of a write whose first sectors never arrived."""

    def scribble(file: Path) -> None:
        with open(file, "r+b") as open_file:
            open_file.seek(crashed.ends[-1])
            open_file.write(garbage)

    outcome = reopened(crashed, tmp_path, scribble)
    assert (outcome.events, outcome.refusal) == (crashed.events, None)


def test_a_whole_frame_repeated_behind_the_last_is_not_taken_for_a_new_one(crashed: Crashed, tmp_path: Path) -> None:
    def repeat(file: Path) -> None:
        content = file.read_bytes()
        with open(file, "r+b") as open_file:
            open_file.seek(crashed.ends[-1])
            open_file.write(content[crashed.ends[-2] : crashed.ends[-1]])

    outcome = reopened(crashed, tmp_path, repeat)
    assert (outcome.events, outcome.refusal) == (crashed.events, None)


def test_a_missing_frame_in_the_middle_is_refused(crashed: Crashed, tmp_path: Path) -> None:
    """Zeros where a frame was, and whole frames behind."""

    def erase(file: Path) -> None:
        with open(file, "r+b") as open_file:
            open_file.seek(crashed.ends[2])
            open_file.write(bytes(crashed.ends[3] - crashed.ends[2]))

    outcome = reopened(crashed, tmp_path, erase)
    assert isinstance(outcome.refusal, StorageCorrupted)


def test_a_damaged_header_of_the_segment_is_refused(crashed: Crashed, tmp_path: Path) -> None:
    for offset in range(crashed.ends[0]):
        outcome = reopened(crashed, tmp_path, lambda file: flip(file, offset))  # noqa: B023
        assert isinstance(outcome.refusal, StorageCorrupted), offset


def test_what_a_consumer_acknowledged_was_durable(crashed: Crashed, tmp_path: Path) -> None:
    """Damage to the last frame is bit rot if somebody is known to have had its events."""
    witnessed = tmp_path / "witnessed"
    shutil.copytree(crashed.directory, witnessed, ignore=shutil.ignore_patterns("*.sock"))
    meta = next(witnessed.glob("logs/*/META.json"))
    unclean = meta.read_bytes()
    with Engine(witnessed, maintains=False) as engine:
        engine.open(NAME).register_consumer("spark", "archiver")
    meta.write_bytes(unclean)
    outcome = reopened(
        Crashed(witnessed, crashed.events, crashed.ends), tmp_path, lambda file: flip(file, crashed.ends[-2] + 40)
    )
    assert isinstance(outcome.refusal, StorageCorrupted)
