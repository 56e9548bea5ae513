"""The table of writers: what is applied, what is durable, what is forgotten, and what stands in frames and on file."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import pytest

from headwater.core import AppendRequest, AppendResult, LogSettings, Mark, WriterState
from headwater.core.errors import Closed, DiskFull, InvalidInput, StorageCorrupted, TooLarge
from headwater.core.limits import EventColumns
from headwater.core.mark import BATCH_MAX
from headwater.storage import Engine, StoredLog
from headwater.storage.append import writer_table
from headwater.storage.append.writer_table import (
    ENDED_MS,
    WRITER_IDLE_MS,
    WRITERS_NAME,
    KeptMarks,
    StoredWriterTable,
    WriterLimits,
    WriterTable,
)
from headwater.storage.disk import checked_file
from headwater.storage.frames.frame_log import Head, HeadMoved
from headwater.storage.frames.layout import MARKS_FEATURE, Column, FrameMark
from headwater.storage.memory import MemoryState
from headwater.storage.segments.meta import META_NAME

from ...builders import event
from ...crash.faults import FaultyDisk
from ..builders import columns, engine


class GatedDisk(FaultyDisk):
    """A disk whose syncs wait at a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def writes_durably(self, directory: Path) -> bool:
        return False  # so that each write and each sync is one of its own

    def sync(self, fd: int) -> None:
        self.waiting.set()
        self.gate.wait(30)
        super().sync(fd)


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


@pytest.fixture
def log(data: Path, disk: GatedDisk) -> Iterator[StoredLog]:
    with Engine(data, maintains=False, disk=disk) as engine:
        yield engine.create("orders")
        disk.gate.set()


def marked(count: int, *mark: Any) -> dict[str, Any]:
    some = columns([event() for _ in range(count)]) if count else EventColumns.none()
    return {"columns": some, "mark": Mark(*mark)}


def together(log: StoredLog, disk: GatedDisk, appends: Sequence[dict[str, Any]]) -> list[AppendRequest]:
    """Submit appends while another one is being synced, so that they are judged as one group; await their answers."""
    done = threading.Semaphore(0)
    disk.gate.clear()
    disk.waiting.clear()
    requests = [
        log.request_columns(
            each["columns"], None, None, lambda found: [done.release() for _ in found], None, each["mark"]
        )
        for each in [{"columns": columns([event("first")]), "mark": None}, *appends]
    ]
    log.submit(requests[0])
    assert disk.waiting.wait(30)
    for request in requests[1:]:
        log.submit(request)
    disk.gate.set()
    for _ in requests:
        assert done.acquire(timeout=30)
    return requests[1:]


def test_several_marks_of_one_group_are_in_one_frame(log: StoredLog, disk: GatedDisk) -> None:
    sent = [
        marked(2, "a", 1, 2, True),
        marked(1, "b", 5, 1, False),
        marked(3, "a", 1, 9, True),
        marked(1, "a", 2, 1, True),
    ]
    results = [request.result for request in together(log, disk, sent)]
    assert results == [AppendResult(2, 3), AppendResult(4, 4), AppendResult(2, 3, True), AppendResult(5, 5)]
    *_, frame = log.frames.read(0)
    assert frame.marks() == (
        FrameMark("a", 1, 2, True, 0, 2, 2, 3, 2),
        FrameMark("b", 5, 1, False, 2, 1, 4, 4, 1),
        FrameMark("a", 2, 1, True, 3, 1, 5, 5, 1),
    )
    assert log.writers() == [WriterState("a", 2, 1, 5, 5, 1, True), WriterState("b", 5, 1, 4, 4, 1, False)]


def test_an_empty_batch_waits_for_what_is_before_it(log: StoredLog, disk: GatedDisk) -> None:
    sent = [
        marked(2, "a", 1, 2, False),
        marked(0, "a", 1, 2, True),
        marked(0, "b", 0, 0, True),
        marked(1, "b", 1, 1, True),
    ]
    results = [request.result for request in together(log, disk, sent)]
    assert results == [AppendResult(2, 3), AppendResult(0, 0), AppendResult(0, 0), AppendResult(4, 4)]
    assert log.writers() == [WriterState("a", 1, 2, 2, 3, 2, True), WriterState("b", 1, 1, 4, 4, 1, True)]


def test_marks_of_frames_that_find_no_room_are_forgotten(log: StoredLog, disk: GatedDisk) -> None:
    log.append_columns(**marked(1, "a", 1, 1, True))
    disk.free = 0
    with pytest.raises(DiskFull):
        log.append_columns(**marked(1, "a", 2, 1, True))
    with pytest.raises(DiskFull):
        log.append_columns(**marked(1, "b", 1, 1, True))
    assert log.writers() == [WriterState("a", 1, 1, 1, 1, 1, True)]
    disk.free = None
    assert log.append_columns(**marked(1, "a", 2, 1, True)) == AppendResult(2, 2)
    assert log.append_columns(**marked(1, "b", 1, 1, True)) == AppendResult(3, 3)


def test_marks_are_judged_again_when_the_head_has_moved(log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append, refused = log.frames.append_frames, []

    def refuse_once(frames: Any, expected: Head, on_overdue: Any) -> None:
        if not refused:
            refused.append(frames)
            raise HeadMoved(expected)
        append(frames, expected, on_overdue)

    monkeypatch.setattr(log.frames, "append_frames", refuse_once)
    assert log.append_columns(**marked(1, "a", 1, 1, True)) == AppendResult(1, 1)
    assert log.append_columns(**marked(1, "a", 1, 1, True)) == AppendResult(1, 1, True)
    assert len(refused) == 1


@pytest.mark.parametrize("count", [0, 1])
def test_a_table_that_cannot_be_written_refuses_the_first_mark(
    log: StoredLog, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checked_file, "write_whole", fail)
        with pytest.raises(DiskFull):
            log.append_columns(**marked(count, "a", 1, count, True))
        assert log.append([event()]) == AppendResult(1, 1), "events without marks go on"
    assert log.writers() == []
    assert not log.append_columns(**marked(count, "a", 1, count, True)).was_stored
    with monkeypatch.context() as patched:
        patched.setattr(checked_file, "write_whole", fail)
        log.append_columns(**marked(0, "a", 2, 0, True))  # the journal has it
        assert [state.batch for state in log.writers()] == [2]
        log.append_columns(**marked(1, "a", 3, 1, True))
    assert log.writer("a") is not None


def test_meta_says_whether_a_log_has_marks(log: StoredLog) -> None:
    def on_file() -> bool:
        return bool(json.loads((log.directory / META_NAME).read_bytes())["has_marks"])

    log.append([event()])
    assert (on_file(), (log.directory / WRITERS_NAME).exists()) == (False, False)
    log.append_columns(**marked(1, "a", 1, 1, True))
    assert (on_file(), (log.directory / WRITERS_NAME).exists()) == (True, True)


def test_marks_stand_in_the_frame_as_it_is_described(log: StoredLog) -> None:
    log.append_columns(**marked(2, "w", 7, 3, False))
    (frame,) = log.frames.read(0)
    content = bytes(frame._buffer)
    (optional,) = struct.unpack_from("<H", content, 20)
    (at,) = struct.unpack_from("<I", content, 80 + 4 * Column.CONTROL)
    (length,) = struct.unpack_from("<I", content, at)
    control = msgspec.msgpack.decode(content[at + 4 : at + 4 + length])
    assert optional & MARKS_FEATURE == MARKS_FEATURE == 1
    assert control == {"marks": [["w", 7, 3, False, 0, 2, 1, 2, 2]]}


def test_control_records_of_later_code_are_read_as_far_as_they_are_known() -> None:
    newer = msgspec.msgpack.encode(["w", 7, 3, False, 0, 2, 1, 2, 2, "more"])
    assert msgspec.msgpack.decode(newer, type=FrameMark).batch == 7


def test_a_writer_is_forgotten_for_another_the_same_way_when_frames_are_replayed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_table, "WRITERS_MAX", 2)
    now = [1_700_000_000_000]
    with Engine(data, maintains=False, clock=lambda: now[0]) as engine:
        log = engine.create("orders", LogSettings())
        for name in ("a", "b"):
            log.append_columns(**marked(1, name, 9, 1, True))
        with pytest.raises(TooLarge):
            log.append_columns(**marked(1, "c", 1, 1, True))
        now[0] += WRITER_IDLE_MS
        log.append_columns(**marked(1, "c", 1, 1, True))
        log.append_columns(**marked(1, "a", 0, 1, True))
        states = log.writers()
        assert [(state.writer, state.batch) for state in states] == [("a", 0), ("c", 1)]
        for path in (log.directory / WRITERS_NAME,):
            writer_table.write_writers(path.parent, 0, [])  # as it was before the first mark: all come from frames
    content = json.loads(next(data.glob(f"logs/*/{WRITERS_NAME}")).read_bytes())
    assert [row[0] for row in content["writers"]] == ["a", "c"], "a clean stop writes it down"
    with Engine(data, maintains=False, clock=lambda: now[0]) as engine:
        directory = engine.open("orders").directory
        assert engine.open("orders").writers() == states
    writer_table.write_writers(directory, 0, [])
    with Engine(data, maintains=False, clock=lambda: now[0]) as engine:
        assert engine.open("orders").writers() == states


def test_writers_that_have_ended_are_forgotten_the_same_way_after_a_restart(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_table, "WRITERS_MAX", 1)
    now = [1_700_000_000_000]

    def names(log: StoredLog) -> list[str]:
        return [state.writer for state in log.writers()]

    with Engine(data, maintains=False, clock=lambda: now[0]) as engine:
        log = engine.create("orders", LogSettings())
        log.append_columns(**marked(1, "nightly", 1, 1, True))
        for name in ("z", "y", "x"):  # in the file they stand by name, not by age
            log.append_columns(**marked(1, name, BATCH_MAX, 1, True))
            now[0] += 1
        log.append_columns(**marked(0, "empty", BATCH_MAX, 0, True))
    with Engine(data, maintains=False, clock=lambda: now[0]) as engine:
        log = engine.open("orders")
        assert names(log) == ["empty", "nightly", "x", "y", "z"]
        assert log.append_columns(**marked(1, "z", BATCH_MAX, 1, True)).was_stored
        now[0] += ENDED_MS - 3
        log.append_columns(**marked(1, "w", BATCH_MAX, 1, True))
        assert names(log) == ["empty", "nightly", "w", "x", "y"]
        directory = log.directory
    with Engine(data, maintains=False, clock=lambda: now[0]) as engine:
        assert names(engine.open("orders")) == ["empty", "nightly", "w", "x", "y"]
    writer_table.write_writers(directory, 0, [])  # all come from frames
    with Engine(data, maintains=False, clock=lambda: now[0]) as engine:
        assert names(engine.open("orders")) == ["nightly", "w", "x", "y"]


def test_a_writer_that_was_forgotten_comes_back_from_frames_as_one_that_has_ended(data: Path) -> None:
    """As after a crash: the file is older than the end of the writer."""
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders")
        log.append_columns(**marked(1, "once", 1, 1, True))
        log.append_columns(**marked(1, "once", BATCH_MAX, 1, True))
        before, directory = log.writers(), log.directory
        log.forget_writer("once")
        assert log.writers() == []
    writer_table.write_writers(directory, 0, [])
    with Engine(data, maintains=False) as engine:
        log = engine.open("orders")
        assert log.writers() == before and before[0].is_ended
        assert log.writer_table.open_count == 0
        log.forget_writer("once")
    with Engine(data, maintains=False) as engine:
        assert engine.open("orders").writers() == []


@pytest.mark.parametrize("crashes", [False, True])
def test_a_writer_whose_end_has_no_events_comes_back_as_ended_or_as_what_its_name_is_used_for_again(
    data: Path, crashes: bool
) -> None:
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders")
        for name in ("silent", "again"):
            log.append_columns(**marked(1, name, 1, 1, True))
            log.append_columns(**marked(0, name, BATCH_MAX, 0, True))
            log.forget_writer(name)
        assert log.writers() == []
        file = (log.directory / WRITERS_NAME).read_bytes()
        log.append_columns(**marked(2, "again", 0, 2, True))
        directory = log.directory
    if crashes:
        (directory / WRITERS_NAME).write_bytes(file)
    with Engine(data, maintains=False) as engine:
        log = engine.open("orders")
        known = {state.writer: state.batch for state in log.writers() if not state.is_ended}
        assert known == {"again": 0} and log.writer_table.open_count == 1
        assert log.append_columns(**marked(1, "again", 1, 1, True)) == AppendResult(5, 5)


def test_an_end_without_events_hides_nothing_of_a_name_that_is_used_again_after_its_writer_was_forgotten(
    data: Path,
) -> None:
    now = [1_700_000_000_000]
    with Engine(data, maintains=False, clock=lambda: now[0]) as engine:
        log = engine.create("orders")
        log.append_columns(**marked(0, "import", BATCH_MAX, 0, True))
        now[0] += ENDED_MS + 1
        log.append_columns(**marked(1, "other", 1, 1, True))  # what ended an hour ago is forgotten for it
        assert log.writer("import") is None
        log.append_columns(**marked(2, "import", 1, 2, True))
    with Engine(data, maintains=False, clock=lambda: now[0]) as engine:
        log = engine.open("orders")
        assert log.append_columns(**marked(1, "import", 2, 1, True)) == AppendResult(4, 4)
        assert [event.sequence_number for event in log.read()] == [1, 2, 3, 4]


def test_a_log_that_is_closed_forgets_no_writer(data: Path) -> None:
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders")
        log.append_columns(**marked(1, "once", BATCH_MAX, 1, True))
    with pytest.raises(Closed):
        log.forget_writer("once")


def test_an_end_that_is_not_durable_yet_is_not_forgotten() -> None:
    table = WriterTable()
    table.record(Mark("w", 1, 0, True), 0, 0)
    table.apply(Mark("w", BATCH_MAX, 1, True), 1, 1, 0)
    with pytest.raises(InvalidInput, match="is unfinished"):
        table.forget("w")
    table.landed(1)
    table.forget("w")
    assert table.all() == [] and table.open_count == 0
    table.rollback()
    assert table.judge(Mark("w", 1, 1, True), 1, 0) is None


def test_a_writer_that_is_being_forgotten_for_its_age_is_forgotten_once() -> None:
    table = WriterTable()
    table.record(Mark("once", BATCH_MAX, 0, True), 0, 0)
    table.apply(Mark("another", BATCH_MAX, 1, True), 1, 1, ENDED_MS)  # not durable, and with it that "once" is gone
    table.forget("once")
    table.rollback()
    assert table.all() == [] and table.open_count == 0


def test_writers_are_forgotten_while_others_append(data: Path) -> None:
    """Each is, and no place of those that have not ended is lost or won."""
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders")

        def run(name: str) -> None:
            for number in range(30):
                log.append_columns(**marked(1, f"{name} {number}", BATCH_MAX, 1, True))
                log.forget_writer(f"{name} {number}")
                log.append_columns(**marked(1, name, number, 1, True))

        threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [(state.writer, state.batch) for state in log.writers()] == [("a", 29), ("b", 29), ("c", 29)]
        assert log.writer_table.open_count == 3 and log.head() == 180


def test_writers_with_long_names_are_forgotten_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_table, "ENDED_BYTES_MAX", 2000)
    table = WriterTable()
    for letter in "abcdef":
        table.record(Mark(letter * 256, BATCH_MAX, 0, is_last=True), 0, 0)
    assert [state.writer[0] for state in table.all()] == ["e", "f"]
    table.rollback()
    table.record(Mark("g", BATCH_MAX, 0, is_last=True), 0, 0)
    assert [state.writer[0] for state in table.all()] == ["f", "g"]


def test_limits_of_writers_are_told_before_they_are_met(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Engine(data, maintains=False, writers=WriterLimits(5)) as engine:
        log = engine.create("orders")
        for name in "abc":
            log.append_columns(**marked(1, name, 1, 1, True))
        engine.maintain()
        assert (engine.troubles(), caplog.text) == ([], "")
        log.append_columns(**marked(1, "d", 1, 1, True))
        for _ in range(2):
            engine.maintain()
        (trouble,) = engine.troubles()
        assert "log orders: it has 4 exactly-once writers of 5 (limits.writers_max)" in trouble
        assert caplog.text.count("it has 4 exactly-once writers of 5") == 1
        assert (log.statistics.writers, log.statistics.writers_max) == (4, 5)
        log.append_columns(**marked(1, "e", 1, 1, True))
        with pytest.raises(TooLarge) as caught:
            log.append_columns(**marked(1, "f", 1, 1, True))
        assert (caught.value.given, caught.value.allowed) == (6, 5)


def test_a_rollback_brings_back_what_was_forgotten() -> None:
    table = WriterTable()
    table.record(Mark("once", BATCH_MAX, 0, True), 0, 0)
    table.apply(Mark("another", BATCH_MAX, 1, True), 1, 1, ENDED_MS)
    assert table.judge(Mark("once", BATCH_MAX, 0, True), 0, ENDED_MS) is None
    table.rollback()
    assert table.judge(Mark("once", BATCH_MAX, 0, True), 0, ENDED_MS) is not None
    table.apply(Mark("another", BATCH_MAX, 1, True), 1, 1, ENDED_MS)
    table.landed(1)
    assert [state.writer for state in table.all()] == ["another"]


def test_a_table_knows_what_is_applied_from_what_is_durable() -> None:
    table = WriterTable()
    table.apply(Mark("a", 1, 5, True), 1, 5, 0)
    assert table.get("a") is None
    assert table.judge(Mark("a", 1, 5, True), 5, 0) == AppendResult(1, 5, True)
    table.landed(4)
    assert table.get("a") is None
    table.landed(5)
    assert table.get("a") == WriterState("a", 1, 5, 1, 5, 5, True)
    table.apply(Mark("a", 2, 1, True), 6, 1, 0)
    table.rollback()
    assert table.judge(Mark("a", 2, 1, True), 1, 0) is None
    assert table.get("a") == WriterState("a", 1, 5, 1, 5, 5, True)


def as_0_1_0_wrote_it(directory: Path) -> bytes:
    """WRITERS.json of a log, as 0.1.0 would have written it."""
    found = json.loads((directory / WRITERS_NAME).read_bytes())
    rows = msgspec.json.encode(found["writers"])
    crc = google_crc32c.value(b"%d\n" % found["upto"] + rows)
    return b'{"format":1,"upto":%d,"crc":%d,"writers":%s}\n' % (found["upto"], crc, rows)


def test_a_table_of_0_1_0_is_read_and_written_anew(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append_columns(**marked(1, "a", 3, 1, True))
        log.append_columns(**marked(0, "b", 1, 0, True))
    path = log.directory / WRITERS_NAME
    first = as_0_1_0_wrote_it(log.directory)
    path.write_bytes(first)
    for hurt in (first.replace(b'"upto":1', b'"upto":0'), first.replace(b'"a"', b'"c"'), first.replace(b"crc", b"crd")):
        assert hurt != first
        path.write_bytes(hurt)
        with engine(data) as one, pytest.raises(StorageCorrupted):
            one.open("orders")
    path.write_bytes(first)
    with engine(data) as one:
        assert [(state.writer, state.batch) for state in one.open("orders").writers()] == [("a", 3), ("b", 1)]
    assert json.loads(path.read_bytes())["format"] == 2
    assert "crc32c" in json.loads(path.read_bytes())


def test_what_is_kept_apart_from_frames_is_of_known_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_table, "ENDED_BYTES_MAX", 2 * writer_table.entry_bytes("w1"))
    kept = KeptMarks(MemoryState(), "0" * 32)
    table = StoredWriterTable(tmp_path, 0, (), None, kept)
    kept.keep(WriterState("elsewhere", 1, 0, 0, 0, 0, True), 1)
    table.keep_all()
    assert [state.writer for state, _ in kept.all()] == ["elsewhere"], "another server entered it, and it is not merged"
    kept.drop(["elsewhere"])
    table.has_all = True
    for number in range(1, 7):
        table.apply(Mark(f"w{number}", BATCH_MAX, 1, is_last=True), number, 1, number)
        table.landed(number)
        table.keep_all()
    table.record(Mark("x", 1, 0, is_last=True), 6, 7)
    table.keep_all()
    assert [state.writer for state, _ in kept.all()] == ["w5", "w6", "x"]
