"""The frame log in local files: rolling, growing, compare-and-set, finding frames, trimming, running out of room."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headwater.core.errors import DiskFull, StorageCorrupted, StorageUnavailable
from headwater.storage.disk.free_space import Room
from headwater.storage.disk.system import Disk
from headwater.storage.frames.encoding import EncodedFrame
from headwater.storage.frames.frame_log import Head, HeadMoved, Term, new_term
from headwater.storage.segments import segment
from headwater.storage.segments import segment_log as module
from headwater.storage.segments.recovery import open_segments
from headwater.storage.segments.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    segment_header,
    segment_name,
    segment_paths,
)
from headwater.storage.segments.segment_log import PREPARED, SegmentLog

from ..builders import LOG_ID, SEED, chained, change
from ..disks import FullDisk, SlowWriter


class Logs:
    """Opens the frame log of one directory, again and again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._opened: list[SegmentLog] = []

    def open(
        self,
        disk: Disk | None = None,
        *,
        floor: int = 0,
        reserve: int = 0,
        first_retained: int = 1,
        gaps: tuple[tuple[int, int], ...] = (),
    ) -> SegmentLog:
        disk = disk or Disk()
        found = open_segments(
            self.directory,
            self.directory,
            LOG_ID,
            clean=None,
            known_durable=0,
            first_retained=first_retained,
            gaps=gaps,
            disk=disk,
        )
        log = SegmentLog(self.directory, LOG_ID, found, crc_seed=SEED, floor=floor, term=new_term(1), disk=disk,
                         room=Room(self.directory, disk, reserve))  # fmt: skip
        self._opened.append(log)
        return log

    def reopen(self, disk: Disk | None = None, **options: int) -> SegmentLog:
        self._opened.pop().close()
        return self.open(disk, **options)  # type: ignore[arg-type]

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    found = Logs(tmp_path)
    yield found
    found.close()


def append(log: SegmentLog, frames: Sequence[EncodedFrame], after: int) -> None:
    log.append_frames(frames, Head(after, log.last_crc, log.term))


def given_numbers(log: SegmentLog, after: int = 0) -> list[int]:
    return [event.sequence_number for frame in log.read(after) for event in frame.events()]


def test_an_empty_log_has_no_segment(logs: Logs) -> None:
    log = logs.open()
    assert (log.head, log.last_crc, log.recorded_at, log.segments) == (0, 0, 0, ())
    assert list(log.read(0)) == []
    assert log.frame_at(1) is None
    assert logs.open(floor=41).head == 41


def test_frames_are_appended_and_read_back(logs: Logs) -> None:
    log = logs.open()
    frames = chained([1, 3, 2])
    append(log, frames[:2], 0)
    append(log, frames[2:], 4)
    assert (log.head, log.last_crc, log.recorded_at) == (6, frames[-1].crc, 1000)
    assert given_numbers(log) == [1, 2, 3, 4, 5, 6]
    assert given_numbers(log, 4) == [5, 6]
    assert given_numbers(logs.reopen()) == [1, 2, 3, 4, 5, 6]


class Told(Disk):
    """Says what it is asked to write and sync; `answer` is what it says of the two in one call."""

    def __init__(self, *, answer: bool = True, tries: bool = True) -> None:
        self.calls: list[str] = []
        self._answer, self._tries = answer, tries

    def writes_durably(self, directory: Path) -> bool:
        return self._tries

    def write_durably(self, fd: int, buffers: Sequence[bytes], offset: int) -> bool:
        self.calls.append("both")
        if self._answer:
            super().write(fd, buffers, offset)
        return self._answer

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        if offset:  # not the header of a segment
            self.calls.append("write")
        super().write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        self.calls.append("sync")
        super().sync(fd)


OLD_WAY = ["write", "sync"]


@pytest.mark.parametrize(
    ("disk", "calls"),
    [
        (Told(), ["both", "both"]),
        (Told(tries=False), OLD_WAY * 2),
        (Told(answer=False), ["both", *OLD_WAY, *OLD_WAY]),
    ],
    ids=["in one call", "not known to be one", "refused, and remembered"],
)
def test_small_commits_are_written_and_synced_in_one_call_where_there_is_one(
    logs: Logs, disk: Told, calls: list[str]
) -> None:
    log = logs.open(disk)
    frames = chained([1, 3])
    append(log, frames[:1], 0)
    append(log, frames[1:], 1)
    assert disk.calls == calls
    assert given_numbers(logs.reopen()) == [1, 2, 3, 4]


def test_large_commits_and_those_behind_what_is_not_durable_are_synced_with_all_before(logs: Logs) -> None:
    log = logs.open(disk := Told())
    one, two, three, large = chained([1, 1, 1, 3000])
    log.append_frames([one], Head(0, 0, log.term), is_durable=False)
    append(log, [two], 1)
    assert disk.calls == ["write", *OLD_WAY]
    append(log, [three], 2)
    append(log, [large], 3)
    assert disk.calls[3:] == ["both", *OLD_WAY]


def test_the_head_is_compared_before_anything_is_written(logs: Logs) -> None:
    log = logs.open()
    append(log, chained([2]), 0)
    with pytest.raises(HeadMoved) as moved:
        append(log, chained([1], 2), 1)
    assert moved.value.head == Head(2, log.last_crc, log.term)


@pytest.mark.parametrize("wrong", ["number", "crc", "term number", "nonce"])
def test_number_checksum_and_term_are_compared(logs: Logs, wrong: str) -> None:
    log = logs.open()
    append(log, chained([2]), 0)
    found = Head(2, log.last_crc, log.term)
    expected = {
        "number": found._replace(number=1),
        "crc": found._replace(crc=found.crc ^ 1),
        "term number": found._replace(term=Term(log.term.number + 1, log.term.nonce)),
        "nonce": found._replace(term=Term(log.term.number, log.term.nonce ^ 1)),
    }[wrong]
    with pytest.raises(HeadMoved) as moved:
        log.append_frames(chained([1], 2), expected)
    assert moved.value.head == found
    assert given_numbers(log) == [1, 2]
    assert given_numbers(log) == [1, 2]


def test_segments_double_up_to_their_largest_size(logs: Logs, small_segments: None) -> None:
    log = logs.open()
    for frame in chained([4] * 60, data=bytes(200)):
        append(log, [frame], frame.first - 1)
    sizes = [segment.size for segment in log.segments]
    assert sizes[:2] == [8 * 1024, 16 * 1024]
    assert set(sizes[1:]) == {16 * 1024}
    assert given_numbers(log) == list(range(1, 241))
    assert given_numbers(logs.reopen()) == list(range(1, 241))


def test_a_segment_holds_so_many_events_at_most(logs: Logs, small_segments: None) -> None:
    log = logs.open()
    for frame in chained([90] * 5, data=b""):
        append(log, [frame], frame.first - 1)
    assert all(segment.events <= 200 for segment in log.segments)
    assert len(log.segments) == 3


def test_a_frame_larger_than_a_segment_gets_one_of_its_size(logs: Logs, small_segments: None) -> None:
    log = logs.open()
    small, large, next_one = chained([1, 300, 1], data=bytes(300))
    append(log, [small], 0)
    append(log, [large], 1)
    append(log, [next_one], 301)
    assert log.segments[1].size == SEGMENT_HEADER_BYTES + large.length
    assert given_numbers(logs.reopen()) == list(range(1, 303))


def test_frames_of_one_append_may_go_to_several_segments(logs: Logs, small_segments: None) -> None:
    log = logs.open()
    append(log, chained([10] * 30), 0)
    assert len(log.segments) > 2
    assert given_numbers(logs.reopen()) == list(range(1, 301))


def test_a_first_frame_that_is_too_large_replaces_the_empty_segment(logs: Logs, small_segments: None) -> None:
    (logs.directory / segment_name(1)).write_bytes(segment_header(LOG_ID, 1, SEED) + bytes(1000))
    log = logs.open()
    assert (len(log.segments), log.head) == (1, 0)
    append(log, chained([100]), 0)
    assert len(segment_paths(logs.directory)) == len(log.segments) == 1
    assert given_numbers(logs.reopen()) == list(range(1, 101))


@pytest.mark.parametrize("bytes_max", [1, 5, 100])
def test_short_writes_make_whole_frames(logs: Logs, bytes_max: int) -> None:
    log = logs.open(SlowWriter(bytes_max))
    append(log, chained([1, 2]), 0)
    assert given_numbers(logs.reopen()) == [1, 2, 3]


def test_frames_are_located_by_any_of_their_numbers(logs: Logs, small_segments: None) -> None:
    log = logs.open()
    append(log, chained([3] * 40), 0)
    for number in range(1, 121):
        found = log.frame_at(number)
        assert found is not None
        assert found.first <= number <= found.last
    assert log.frame_at(121) is None


def test_a_number_in_a_gap_is_located_at_the_next_frame(logs: Logs) -> None:
    log = logs.open()
    append(log, chained([3, 3, 3]), 0)
    path = log.segments[0].path
    damaged = log.segments[0].offsets[1]
    logs.close()
    change(path, damaged + 100, b"\xff\xff\xff")
    log = logs.open(gaps=((4, 6),))
    for number, first in [(3, 1), (4, 7), (5, 7), (6, 7), (7, 7), (9, 7)]:
        found = log.frame_at(number)
        assert found is not None
        assert found.first == first, number
    assert log.frame_at(10) is None


def test_the_floor_makes_a_gap_and_a_segment_of_its_own(logs: Logs) -> None:
    log = logs.open()
    append(log, chained([2]), 0)
    log = logs.reopen(floor=1000)
    assert log.head == 1000
    append(log, chained([2], 1001), 1000)
    assert [segment.first for segment in log.segments] == [1, 1001]
    assert given_numbers(log) == [1, 2, 1001, 1002]
    found = log.frame_at(3)
    assert found is not None and found.first == 1001


def test_trimming_unlinks_whole_segments_only_and_never_the_newest(logs: Logs, small_segments: None) -> None:
    log = logs.open()
    append(log, chained([3] * 40), 0)
    boundaries = [segment.first for segment in log.segments]
    log.trim(boundaries[1])
    assert [segment.first for segment in log.segments] == boundaries[1:]
    log.trim(boundaries[2] - 1)
    assert [segment.first for segment in log.segments] == boundaries[1:]
    log.trim(10**6)
    assert [segment.first for segment in log.segments] == boundaries[-1:]
    assert len(segment_paths(logs.directory)) == 1
    assert logs.reopen(first_retained=110).head == 120


def test_a_reader_keeps_what_is_trimmed_meanwhile(logs: Logs, small_segments: None) -> None:
    log = logs.open()
    append(log, chained([3] * 40), 0)
    frames = log.read(0)
    first = next(frames)
    log.trim(10**6)
    assert first.events()[0].sequence_number == 1
    assert [event.sequence_number for frame in frames for event in frame.events()] == list(range(4, 121))


def test_trims_and_rolls_at_one_time_lose_no_segment(
    logs: Logs, small_segments: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs.open()
    append(log, chained([10] * 30), 0)
    made = threading.Event()
    trimmed = threading.Event()

    class Lingering(Segment):
        def __init__(self, path: Path, log_id: bytes, first: int | None = None) -> None:
            super().__init__(path, log_id, first)
            made.set()
            trimmed.wait(0.3)

    monkeypatch.setattr(module, "Segment", Lingering)
    frame = chained([60], 301)[0]
    appender = threading.Thread(target=append, args=(log, [frame], 300))
    appender.start()
    assert made.wait(10)
    log.trim(290)
    trimmed.set()
    appender.join()
    assert [segment.fd >= 0 for segment in log.segments] == [False] * (len(log.segments) - 1) + [True]
    assert log.segments[0].first > 1
    assert (log.head, log.segments[-1].first) == (360, 301)
    log.trim(300)


def test_the_next_segment_is_prepared_ahead_and_used(logs: Logs, small_segments: None) -> None:
    log = logs.open()
    frames = chained([20] * 4, data=bytes(200))
    append(log, frames[:1], 0)
    assert log._preparing is not None
    log._preparing.join()
    prepared = log.prepared.stat()
    assert prepared.st_size == 16 * 1024
    append(log, frames[1:2], 20)
    assert log.segments[1].path.stat().st_ino == prepared.st_ino


def test_a_prepared_file_of_a_crashed_process_is_not_trusted(logs: Logs) -> None:
    crashed = logs.directory / f"{PREPARED}-0badcafe.tmp"
    crashed.write_bytes(b"garbage" * 10_000)
    log = logs.open()
    assert not crashed.exists()
    append(log, chained([2]), 0)
    assert given_numbers(logs.reopen()) == [1, 2]


def test_a_full_disk_refuses_and_leaves_nothing_behind(logs: Logs) -> None:
    disk = FullDisk(free=1000)
    log = logs.open(disk, reserve=2000)
    with pytest.raises(DiskFull) as full:
        append(log, chained([1]), 0)
    assert (full.value.free_bytes, full.value.needed_bytes) == (1000, 2000)
    assert list(logs.directory.iterdir()) == []
    disk.free = 1 << 40
    append(log, chained([1]), 0)
    assert log.head == 1


def test_a_failed_preallocation_is_a_full_disk(logs: Logs) -> None:
    disk = FullDisk()
    disk.refuses_allocation = True
    log = logs.open(disk)
    with pytest.raises(DiskFull):
        append(log, chained([1]), 0)
    assert list(logs.directory.iterdir()) == []
    disk.refuses_allocation = False
    append(log, chained([1]), 0)
    assert given_numbers(logs.reopen()) == [1]


def test_frames_that_found_room_before_the_disk_was_full_are_kept(logs: Logs, small_segments: None) -> None:
    disk = FullDisk()
    log = logs.open(disk)
    frames = chained([10] * 12)
    append(log, frames[:1], 0)
    disk.refuses_allocation = True
    with pytest.raises(DiskFull):
        append(log, frames[1:], 10)
    kept = log.head
    assert 10 < kept < 120
    assert kept % 10 == 0
    assert given_numbers(log) == list(range(1, kept + 1))
    disk.refuses_allocation = False
    append(log, frames[kept // 10 :], kept)
    assert given_numbers(logs.reopen()) == list(range(1, 121))


def test_no_room_for_the_next_segment_is_no_trouble_before_it_is_needed(
    logs: Logs, small_segments: None, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk()
    log = logs.open(disk)
    frames = chained([18, 1, 20], data=bytes(200))
    log._prepare(8 * 1024)
    disk.refuses_allocation = True
    append(log, frames[:1], 0)
    assert log._preparing is not None
    log._preparing.join()
    assert "no space for the next segment" in caplog.text
    append(log, frames[1:2], 18)
    disk.refuses_allocation = False
    append(log, frames[2:], 19)
    assert log.head == 39


def test_a_segment_of_another_log_is_refused(logs: Logs) -> None:
    (logs.directory / segment_name(1)).write_bytes(segment_header(bytes(16), 1, SEED) + bytes(1000))
    with pytest.raises(StorageCorrupted, match="belongs to another log, or was renamed"):
        logs.open()


def test_a_renamed_segment_is_refused(logs: Logs) -> None:
    log = logs.open()
    append(log, chained([2]), 0)
    logs.close()
    (path,) = segment_paths(logs.directory)
    path.rename(path.with_name(segment_name(5)))
    with pytest.raises(StorageCorrupted, match="was renamed"):
        logs.open()


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "shorter than its header"), (b"HWSEGMNT", "shorter than its header"),
                             (bytes(5000), "the header of the segment is damaged")]
)  # fmt: skip
def test_a_file_that_is_no_segment_is_refused(logs: Logs, content: bytes, problem: str) -> None:
    (logs.directory / segment_name(1)).write_bytes(content)
    with pytest.raises(StorageCorrupted, match=problem):
        logs.open()


def test_a_newer_segment_format_is_refused(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SEGMENT_VERSION", 2)
    header = segment_header(LOG_ID, 1, SEED)
    monkeypatch.undo()
    (logs.directory / segment_name(1)).write_bytes(header + bytes(1000))
    with pytest.raises((StorageCorrupted, StorageUnavailable), match="newer"):
        logs.open()
