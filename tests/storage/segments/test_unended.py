"""After an unclean end the newest segment is not written again. What another process writes to it late is no event."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.core.errors import DiskFull
from headwater.storage import StoredLog, accept_loss, backup, check_directory
from headwater.storage.frames.encoding import Chain
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.segments import segment_log
from headwater.storage.segments.segment import segment_paths
from headwater.storage.segments.segment_log import PREPARED, SEGMENT_BYTES_FIRST
from headwater.storage.state import journal
from headwater.storage.state.journal import read_journal, salvaged

from ..builders import content, crashed, encoded, engine, event, fill, log_directory, newest
from ..disks import FullDisk


@pytest.fixture
def begins_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """No segment is small enough to be copied."""
    monkeypatch.setattr(segment_log, "COPIED_BYTES_MIN", 0)
    monkeypatch.setattr(segment_log, "COPIED_BYTES_MAX", 0)


def killed(data: Path, then: str, events: int = 3) -> Path:
    """A directory with events of ids `1`, `2`, ... in its log, as a killed process leaves it."""
    with engine(data) as one:
        fill(one.create("orders"), events)
        return crashed(data, data.with_name(then))


def segments_of(data: Path) -> list[str]:
    return [path.name for path in segment_paths(log_directory(data) / "log")]


def ids(log: StoredLog) -> list[str]:
    return [each.id for each in log.read()]


def writes_late(log: StoredLog) -> Callable[[], None]:
    """A write that is begun now, by what its process knows of the log, and done when that is called."""
    segment, epoch = log.frames.segments[-1], log.frames.term.number
    chain = Chain(log.frames.crc_seed, epoch, segment.last_crc, segment.last, 7)
    frame = encoded([event("Late", id="late")], segment.last + 1, at=log.recorded_at, chain=chain)
    fd, offset = os.open(segment.path, os.O_RDWR), segment.end

    def write() -> None:
        os.pwrite(fd, content(frame), offset)
        os.close(fd)

    return write


def test_a_small_segment_is_copied_so_that_restarts_leave_no_segments_behind(tmp_path: Path) -> None:
    data, expected = killed(tmp_path / "data", "0"), ["1", "2", "3"]
    data = tmp_path / "0"
    for restart in range(1, 8):
        before = newest_inode(data)
        with engine(data) as one:
            log = one.open("orders")
            assert newest_inode(data) == before, "a start that appends nothing makes no file"
            log.append([event(id=f"r{restart}")])
            expected.append(f"r{restart}")
            assert newest_inode(data) != before
            log.append([event(id=f"s{restart}")])
            expected.append(f"s{restart}")
            assert ids(log) == expected
            data = crashed(data, tmp_path / str(restart))
        assert segments_of(data) == [f"{1:020d}.log"]
        assert not list((log_directory(data) / "log").glob(f"{PREPARED}*"))
    assert check_directory(data).is_sound
    assert sum(path.stat().st_size for path in segment_paths(log_directory(data) / "log")) == SEGMENT_BYTES_FIRST


def test_killed_processes_leave_few_segments_however_much_each_of_them_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each segment takes two descriptors: a log of hundreds could not be opened."""
    monkeypatch.setattr(segment_log, "COPIED_BYTES_MIN", 1024)
    data = killed(tmp_path / "data", "0")
    for run in range(60):
        with engine(data) as one:
            one.open("orders").append([event(id=f"r{run}", data=bytes(2048))])
            before, data = data, crashed(data, tmp_path / f"after-{run}")
        shutil.rmtree(before)
    assert len(segments_of(data)) < 30
    assert check_directory(data).is_sound
    with engine(data) as one:
        assert ids(one.open("orders")) == ["1", "2", "3", *(f"r{run}" for run in range(60))]


def newest_inode(data: Path) -> int:
    return segment_paths(log_directory(data) / "log")[-1].stat().st_ino


def test_after_a_clean_end_it_goes_on_in_the_newest_segment(data: Path) -> None:
    with engine(data) as one:
        fill(one.create("orders"), 3)
    before = newest_inode(data)
    for _ in range(2):
        with engine(data) as one:
            fill(one.open("orders"), 1)
    assert (newest_inode(data), segments_of(data)) == (before, [f"{1:020d}.log"])


def test_a_clean_end_of_a_process_that_appended_nothing_ends_no_others_writes(data: Path, tmp_path: Path) -> None:
    left = killed(data, "left")
    before = newest_inode(left)
    engine(left).close()
    assert newest_inode(left) == before
    with engine(left) as one:
        fill(one.open("orders"), 1)
    assert newest_inode(left) != before


def test_an_empty_newest_segment_is_replaced(data: Path, tmp_path: Path, begins_next: None) -> None:
    left = killed(data, "left")
    with engine(left) as one:
        log = one.open("orders")
        late = writes_late(log)
        fill(log, 1)
        again = crashed(left, tmp_path / "again")
    late()
    path = segment_paths(log_directory(again) / "log")[-1]
    path.write_bytes(path.read_bytes()[:72] + bytes(path.stat().st_size - 72))  # its first frame was never written
    before = newest_inode(again)
    with engine(again) as one:
        log = one.open("orders")
        log.append([event(id="next")])
        assert ids(log) == ["1", "2", "3", "next"]
    assert newest_inode(again) != before and len(segments_of(again)) == 2


def test_a_larger_segment_is_left_to_its_end_and_not_grown_for_it(data: Path, begins_next: None) -> None:
    left = killed(data, "left")
    with engine(left) as one:
        log = one.open("orders")
        fill(log, 1)
        first, second = log.frames.segments
        assert (first.last, second.first, second.size) == (3, 4, SEGMENT_BYTES_FIRST)
        assert first.path.stat().st_size < 16 * 1024, "the rest of it is given back"
        assert ids(log) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("events", [1, 40])
def test_what_is_written_late_behind_a_segment_is_in_no_answer(data: Path, begins_next: None, events: int) -> None:
    left, target = killed(data, "left", events), data.with_name("backup")
    expected = [str(number + 1) for number in range(events + 2)]
    with engine(left) as one:
        log = one.open("orders")
        late = writes_late(log)
        fill(log, 2)
        late()
        assert ids(log) == expected
        one.maintain()  # the worker makes places and postings of the left segment
        mapped = MappedLog(log.directory)
        mapped.refresh(log.head())
        assert sum(batch.num_rows for batch in mapped.scan(0, log.head())) == events + 2
        mapped.close()
        backup(left, target)
    for directory in (left, target):
        assert check_directory(directory).is_sound
        assert accept_loss(directory, "orders") == []
        for path in (log_directory(directory) / "idx").iterdir():
            path.unlink()  # so that all frames are looked at
        for _ in range(2):
            with engine(directory) as one:
                assert ids(one.open("orders")) == expected
                one.open("orders").append([event(id="next")])
                expected.append("next")
        del expected[-2:]


def test_what_is_written_late_behind_a_segment_of_the_journal_is_in_no_state(data: Path, begins_next: None) -> None:
    left = killed(data, "left")
    with engine(left) as one:
        frames = one.state.journal.frames
        segment = frames.segments[-1]
        assert segment.fd < 0
        size, fd = segment.end, os.open(segment.path, os.O_RDWR)
        last = segment.frame(len(segment.firsts) - 1)
        one.state.put("kind", "one", b"")
        assert len(frames.segments) == 2
        chain = Chain(frames.crc_seed, last.epoch, last.crc, last.last, 7)
        columns = journal._columns([journal.EntryRecord("kind", "late", 1, b"")], False)
        frame = journal.encode(columns, (), last.last + 1, last.recorded_at, chain)
        os.pwrite(fd, content(frame), size)
        os.close(fd)
        known = [each for each in read_journal(left / "journal", one.state.journal.first - 1)]
    assert check_directory(left).is_sound
    assert [each.number for each in known] == list(range(known[0].number, known[-1].number + 1))
    found, lost = salvaged(left / "journal")
    assert (found[: len(known)], lost) == (known, [])
    with engine(left) as one:
        assert [key for key, _ in one.state.items("kind")] == ["one"]


def test_without_room_for_another_file_the_append_is_refused_and_nothing_changes(data: Path) -> None:
    left, disk = killed(data, "left"), FullDisk()
    with engine(left, disk=disk) as one:
        log = one.open("orders")
        disk.refuses_allocation = True
        with pytest.raises(DiskFull):
            log.append([event(id="refused")])
        assert ids(log) == ["1", "2", "3"]
        disk.refuses_allocation = False
        one.maintain()
        log.append([event(id="next")])
        assert ids(log) == ["1", "2", "3", "next"]
        assert newest(log).name == segments_of(left)[0]
    assert check_directory(left).is_sound


def test_with_room_for_a_short_file_alone_the_next_segment_begins(data: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event(id="1", data=bytes(50_000))])
        left = crashed(data, data.with_name("left"))
    with engine(left, disk=FullDisk(30_000)) as one:
        log = one.open("orders")
        log.append([event(id="2")])
        assert ids(log) == ["1", "2"]
    assert len(segments_of(left)) == 2
    assert check_directory(left).is_sound
