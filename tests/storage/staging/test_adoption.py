"""Segments that were staged are taken into the log as they lie there, or appended as rows: either way each row once."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core import AppendCondition, Event, LogSettings, Mark, Query, QueryItem, WriterState
from headwater.core.errors import (
    AppendConditionFailed,
    DiskFull,
    DuplicateEventId,
    InvalidPosition,
    StorageCorrupted,
    TooLarge,
)
from headwater.core.limits import EventColumns, check_append
from headwater.core.mark import Committed
from headwater.formats.arrow import events as events_module
from headwater.formats.arrow.columns import batch_of
from headwater.storage import Engine, StoredLog, check_directory
from headwater.storage.index.builder import postings_ranges
from headwater.storage.maintenance import tasks
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.repair.check import accept_loss
from headwater.storage.segments.places import places_name
from headwater.storage.segments.segment_log import ADOPTED
from headwater.storage.staging import commit as commit_module
from headwater.storage.staging import segments as segments_module
from headwater.storage.staging.batches import STAGED, Staging
from headwater.storage.staging.commit import commit_staged, discard_staged
from headwater.storage.staging.segments import SEGMENT_SUFFIX

from ...builders import event
from ...crash.faults import FaultyDisk
from ...docs.independent_reader import read_log

ROWS, SEGMENTS, FRAMES = 100, 4, 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of some twelve events, segments of twenty-five."""
    monkeypatch.setattr(segments_module, "FRAME_BYTES", 1200)
    monkeypatch.setattr(segments_module, "STAGED_SEGMENT_EVENTS_MAX", 25)
    monkeypatch.setattr(commit_module, "ADOPTED_BYTES_MIN", 1)


class WatchedDisk(FaultyDisk):
    """Remembers what was adopted: the first number of each segment."""

    def __init__(self) -> None:
        super().__init__()
        self.adopted: list[int] = []

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if source.name.startswith(ADOPTED):
            self.adopted.append(int(target.stem))


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


def events(first: int = 0, count: int = ROWS) -> list[Event]:
    return [Event(f"T{number % 3}", b"data of %d" % number, (f"n:{number % 5}",), str(number))
            for number in range(first, first + count)]  # fmt: skip


def stage(log: StoredLog, given: list[Event], batch: int = 1, part: int = 0, **options: Any) -> str:
    rows = batch_of(check_append(given, LogSettings().event_bytes_max))
    writer = Staging(log.directory, **options).stage("w", batch, part, 0, rows.schema)
    for start in range(0, len(given), 6):
        writer.write(rows.slice(start, 6))
    return writer.close().stage


def commit(log: StoredLog, stages: list[str], batch: int = 1, **options: Any) -> Committed:
    return commit_staged(log, log.directory, "w", batch, stages, **options)


def check_log(log: StoredLog, before: int, given: list[Event]) -> None:
    """What was committed is there once, in order, by every way to it."""
    found = [each for each in log.read(after=before) if each.type.startswith("T")]
    assert [(each.id, each.type, each.data, each.tags) for each in found] == [
        (each.id, each.type, each.data, each.tags) for each in given
    ]
    for each in found[:: max(len(found) // 7, 1)]:
        query = Query.of(QueryItem(types=(each.type,), tags=each.tags))
        assert next(iter(log.read(query, after=each.sequence_number - 1, limit=1))).id == each.id
        with pytest.raises(DuplicateEventId):
            log.append([Event("other", b"", id=each.id)])


def segments(log: StoredLog) -> list[int]:
    return [int(path.stem) for path in sorted((log.directory / "log").glob("*.log"))]


def test_the_files_become_segments_of_the_log(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        log.append([event("before")])
        stages = [stage(log, events()), stage(log, events(1000, 7), part=1), stage(log, events(2000), part=2)]
        inodes = {path.stat().st_ino for path in log.directory.glob(f"{STAGED}/*/*/*{SEGMENT_SUFFIX}")}
        total = [*events(), *events(1000, 7), *events(2000)]
        assert commit(log, stages) == Committed(2, 208, 207, 0, False)
        log.append([event("after")])
        assert disk.adopted == [2, 26, 50, 74, 98, 109, 133, 157, 181, 205]
        assert {path.stat().st_ino for path in (log.directory / "log").glob("*.log")} >= inodes
        assert not list(log.directory.glob(f"{STAGED}/*/*/*"))
        check_log(log, 1, total)
        assert log.writer("w") == WriterState("w", 1, 207, 2, 208, 207, True)
        assert commit(log, stages) == Committed(2, 208, 207, 0, True)
    assert [each["id"] for each in read_log(log.directory)][1:-1] == [each.id for each in total]
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.open("orders")
        check_log(log, 1, total)
        assert log.writer("w") == WriterState("w", 1, 207, 2, 208, 207, True)
        mapped = MappedLog(log.directory)
        mapped.refresh(log.head())
        scanned = pa.Table.from_batches(list(mapped.scan(1, 208, columns=["id"])))
        assert scanned["id"].to_pylist() == [each.id for each in total]
    for index in (log.directory / "idx").iterdir():
        index.unlink()
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.open("orders")
        check_log(log, 1, total)
        engine.maintain()
        check_log(log, 1, total)
        log.trim(60)
        engine.maintain()
        assert segments(log)[0] == 50 and next(iter(log.read())).sequence_number == 60
    assert check_directory(data).is_sound


@pytest.mark.parametrize("is_said", [True, False])
def test_its_frames_are_gated_if_who_staged_it_checked_it(data: Path, disk: WatchedDisk, is_said: bool) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        stages = [stage(log, events())]
        (path,) = log.directory.glob(f"{STAGED}/*/*/*{segments_module.TABLE_SUFFIX}")
        table = segments_module.read_table(path.parent, path.stem)
        assert table.is_gated
        if not is_said:  # as a version before the gate staged it
            table.is_gated = False
            segments_module._table_file(path.stem).write(path.parent, table)
        commit(log, stages)
        assert disk.adopted
        assert {frame.is_gated for frame in log.frames.read(0)} == {is_said}


def test_rows_that_are_appended_pass_the_gate_at_the_commit(data: Path) -> None:
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders", LogSettings(partitions=2))
        stages = [stage(log, events())]
        (path,) = log.directory.glob(f"{STAGED}/*/*/*{segments_module.TABLE_SUFFIX}")
        table = segments_module.read_table(path.parent, path.stem)
        table.is_gated = False
        segments_module._table_file(path.stem).write(path.parent, table)
        commit(log, stages)
        assert {frame.is_gated for frame in log.frames.read(0)} == {True}


def test_it_begins_an_empty_log(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        assert commit(log, [stage(log, events())]).first == 1
        assert disk.adopted == segments(log) == [1, 25, 49, 73, 97]
        check_log(log, 0, events())


def test_every_frame_has_its_mark_and_its_place_in_the_chain(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        log.append([event("before")])
        commit(log, [stage(log, events())])
        frames = list(log.frames.read(0))
        for before, frame in pairwise(frames):
            assert frame.previous_crc == before.crc and frame.first == before.last + 1 and frame.nonce > before.nonce
            assert frame.durable_upto <= before.last and frame.recorded_at >= before.recorded_at
            [mark] = frame.marks()
            assert (mark.index, mark.count, mark.rows, mark.last) == (0, frame.count, frame.last - 1, frame.last)
            assert mark.is_last == (frame is frames[-1])


def test_an_id_that_is_there_is_told_as_of_any_commit(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        log.append([Event("E", b"", id="30")])
        stages = [stage(log, events())]
        for _ in range(2):
            with pytest.raises(DuplicateEventId) as refused:
                commit(log, stages)
            assert refused.value.sequence_number == 1
        assert disk.adopted == [2] and log.head() == 25  # the first file has none that is known


def test_rows_that_are_there_are_left_out_if_that_is_asked_for(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        log.append([Event("E", b"", id="30")])
        assert commit(log, [stage(log, events())], on_duplicate="skip") == Committed(2, 100, 99, 1, False)
        assert not disk.adopted


def test_with_a_condition_the_rows_are_one_append(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        log.append([Event("E", b"", id="before")])
        stages = [stage(log, events())]
        with pytest.raises(AppendConditionFailed):
            commit(log, stages, condition=AppendCondition(Query.all(), 0))
        assert commit(log, stages, condition=AppendCondition(Query.all(), 1)) == Committed(2, 101, 100, 0, False)
        assert not disk.adopted and len(list(log.frames.read(1))) == 1


def test_a_file_that_was_altered_is_refused(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        stages = [stage(log, events())]
        path = next(log.directory.glob(f"{STAGED}/*/*/*{SEGMENT_SUFFIX}"))
        content = bytearray(path.read_bytes())
        content[content.index(b"data of ")] ^= 1
        path.write_bytes(content)
        with pytest.raises(StorageCorrupted, match="checksum"):
            commit(log, stages)
        assert log.head() == 0 and not disk.adopted
        discard_staged(log, log.directory, "w", 1)
        assert commit(log, [stage(log, events())]).events == ROWS


@pytest.mark.parametrize("how", ["linked", "no links", "another file", "partitions"])
def test_what_cannot_be_adopted_is_appended(
    data: Path, disk: WatchedDisk, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders", LogSettings(partitions=3 if how == "partitions" else 1))
        log.append([event("before")])
        stages = [stage(log, events())]
        paths = sorted(log.directory.glob(f"{STAGED}/*/*/*{SEGMENT_SUFFIX}"))
        if how == "linked":
            for number, path in enumerate(paths):
                os.link(path, data / f"other{number}")
        elif how == "no links":

            def refuse(source: Path, target: Path) -> None:
                raise PermissionError(1, "Operation not permitted")

            monkeypatch.setattr(disk, "link", refuse)
        elif how == "another file":
            sizes = segments_module.segment_rows

            def replaced(path: Path, segment: Any) -> Iterator[pa.RecordBatch]:
                rows = list(sizes(path, segment))
                content = path.read_bytes()
                path.unlink()
                path.write_bytes(b"garbage in the heads" + content[20:])
                return iter(rows)

            monkeypatch.setattr("headwater.storage.staging.adoption.segment_rows", replaced)
        before = [path.read_bytes() for path in paths] if how == "linked" else []
        assert commit(log, stages).events == ROWS
        assert not disk.adopted
        check_log(log, 1, events())
        if how == "linked":
            assert [(data / f"other{number}").read_bytes() for number in range(len(paths))] == before


def test_a_partition_that_is_not_there_is_told_as_of_any_commit(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        stages = [stage(log, events())]
        with pytest.raises(InvalidPosition):
            commit(log, stages, partition=1)
        assert log.head() == 0 and not disk.adopted
        assert commit(log, stages, partition=0).events == ROWS and len(disk.adopted) == 5


def test_a_segment_is_its_owners_alone_and_that_is_the_directorys(
    data: Path, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may have staged it, in a directory of another user's: who serves the log must be able to open it."""
    given: list[tuple[int, int, int]] = []
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        stages = [stage(log, events())]
        for path in log.directory.glob(f"{STAGED}/*/*/*{SEGMENT_SUFFIX}"):
            path.chmod(0o644)
        real = os.fstat

        def of_root(descriptor: int) -> Any:
            found = real(descriptor)
            return os.stat_result(
                (found.st_mode, found.st_ino, found.st_dev, found.st_nlink, 0, 0, found.st_size, 0, 0, 0)
            )

        def give(descriptor: int, owner: int, group: int) -> None:
            given.append((real(descriptor).st_ino, owner, group))

        with monkeypatch.context() as root:
            root.setattr(os, "geteuid", lambda: 0)
            root.setattr(os, "fstat", of_root)
            root.setattr(os, "fchown", give)
            root.setattr("headwater.storage.disk.system.owner_above", lambda directory: (12345, 12345))
            assert commit(log, stages).events == ROWS
        assert len(disk.adopted) == 5
        for path in (log.directory / "log").glob("*.log"):
            assert path.stat().st_mode & 0o777 == 0o600 and (path.stat().st_ino, 12345, 12345) in given


def test_a_segment_that_is_indexed_is_not_looked_at_again(
    data: Path, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then there may be thousands, and each second they are gone through."""
    asked: list[int] = []

    def name_of(first: int) -> str:
        asked.append(first)
        return places_name(first)

    monkeypatch.setattr(tasks, "places_name", name_of)
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        commit(log, [stage(log, events())])
        engine.maintain()
        engine.maintain()
        assert all(segment.is_indexed for segment in log.frames.segments[:-1])
        asked.clear()
        engine.maintain()
        assert asked == []
        commit(log, [stage(log, events(1000), 2)], 2)
        engine.maintain()
        indexed = {path.name for path in (log.directory / "idx").glob("*.places")}
        assert indexed == {places_name(first) for first in segments(log)[:-1]} and len(indexed) == 9


def test_an_opening_lists_the_index_as_often_whatever_there_is(
    data: Path, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listed all of it for each segment: with thousands, a log took minutes to open."""
    listed: list[Path] = []

    def ranges(directory: Path) -> list[tuple[int, int]]:
        listed.append(directory)
        return postings_ranges(directory)

    monkeypatch.setattr("headwater.storage.index.builder.postings_ranges", ranges)
    for batch in range(1, 3):
        with Engine(data, maintains=False, disk=disk) as engine:
            log = engine.create("orders") if batch == 1 else engine.open("orders")
            commit(log, [stage(log, events(batch * 1000), batch)], batch)
            engine.maintain()
        listed.clear()
        with Engine(data, maintains=False, disk=disk) as engine:
            log = engine.open("orders")
            assert len(listed) == 1
            log.trim(log.head())
            engine.maintain()
            assert len(segments(log)) == 1 and len(listed) <= 3
            check_log(log, log.head() - 1, events(batch * 1000)[-1:])


def test_a_file_system_without_links_is_not_asked_again(
    data: Path, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is judged in vain, and then as rows, takes three times as long."""
    asked: list[Path] = []

    def refuse(source: Path, target: Path) -> None:
        asked.append(source)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(disk, "link", refuse)
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        for batch in range(1, 4):
            assert commit(log, [stage(log, events(batch * 1000), batch)], batch).events == ROWS
        assert 1 <= len(asked) <= 2, "the second was made ready while the first was judged"
        check_log(log, 0, [each for batch in range(1, 4) for each in events(batch * 1000)])


def test_a_log_of_many_segments_takes_rows(data: Path, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "SEGMENTS_MAX", 3)
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        for batch in range(1, 4):
            assert commit(log, [stage(log, events(batch * 1000), batch)], batch).events == ROWS
        assert len(segments(log)) <= 3 + 2, "one was made ready while another was written; then one takes all rows"
        check_log(log, 0, [each for batch in range(1, 4) for each in events(batch * 1000)])


def test_a_commit_goes_on_in_the_middle_of_a_file(
    data: Path, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows were appended, and some of them are in the log: the rest of it is appended too, the others are taken."""
    monkeypatch.setattr(events_module, "APPEND_EVENTS_MAX", 10)

    class Stopped(Exception):
        pass

    def stop(name: str) -> None:
        if name == "appended":
            raise Stopped

    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        stages = [stage(log, events())]
        path = min(log.directory.glob(f"{STAGED}/*/*/*{SEGMENT_SUFFIX}"))
        os.link(path, data / "other")
        with pytest.raises(Stopped):
            commit(log, stages, step=stop)
        assert log.head() == 10 and not disk.adopted
        (data / "other").unlink()
        assert commit(log, stages) == Committed(1, 100, 100, 0, False)
        assert disk.adopted == [25, 49, 73, 97]
        check_log(log, 0, events())


def test_what_is_larger_than_the_log_takes_by_now_is_refused(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        stages = [stage(log, [*events(), Event("E", bytes(1025))])]
        log.settings = LogSettings(event_bytes_max=1024)
        with pytest.raises(TooLarge):
            commit(log, stages)
        assert log.head() <= ROWS and len(disk.adopted) == 4, "but for the file that has it"


def test_others_appends_do_not_fail_where_a_file_is_not_adopted(
    data: Path, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were judged behind it are judged again."""
    done = threading.Barrier(5)
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        log.append([event("before")])
        stages, errors = [stage(log, events())], list[BaseException]()

        def refuse(source: Path, target: Path) -> None:
            raise PermissionError(1, "Operation not permitted")

        def append_some(name: int) -> None:
            done.wait()
            try:
                for number in range(50):
                    log.append([event(f"{name}.{number}")])
            except BaseException as error:
                errors.append(error)

        monkeypatch.setattr(disk, "link", refuse)
        threads = [threading.Thread(target=append_some, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        done.wait()
        assert commit(log, stages).events == ROWS
        for thread in threads:
            thread.join()
        assert errors == []
        check_log(log, 1, events())
        assert log.head() == 1 + ROWS + 200


def test_appends_of_others_come_before_or_behind_a_segment(data: Path, disk: WatchedDisk) -> None:
    stopping = threading.Event()
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        numbers: list[int] = []

        def append_on() -> None:
            while not stopping.is_set():
                numbers.append(log.append([event("o")]).last)

        thread = threading.Thread(target=append_on)
        thread.start()
        for batch in range(1, 6):
            assert commit(log, [stage(log, events(batch * 1000), batch)], batch).events == ROWS
        stopping.set()
        thread.join()
        assert len(disk.adopted) == 25
        found = {each.sequence_number: each for each in log.read()}
        assert all(found[number].type == "o" for number in numbers)
        assert len(found) == log.head() == len(numbers) + 5 * ROWS
        check_log(log, 0, [each for batch in range(1, 6) for each in events(batch * 1000)])
    assert check_directory(data).is_sound


def test_a_full_disk_refuses_and_the_same_commit_goes_on(data: Path, disk: WatchedDisk) -> None:

    def fill_up(name: str) -> None:
        if name == "appended":
            disk.free = 0

    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        stages = [stage(log, events())]
        with pytest.raises(DiskFull):
            commit(log, stages, step=fill_up)
        assert len(disk.adopted) == 1 and log.head() == 24
        disk.free = None
        assert commit(log, stages) == Committed(1, 100, 100, 0, False)
        check_log(log, 0, events())


def test_a_mark_that_is_not_ahead_adds_nothing(data: Path, disk: WatchedDisk) -> None:
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        stages = [stage(log, events())]
        log.append_columns(EventColumns.none(), mark=Mark("w", 2, 0, True))
        assert commit(log, stages) == Committed(0, 0, 0, 0, True)
        assert log.head() == 0 and not disk.adopted


@pytest.mark.parametrize("place", [0, 1], ids=["first frame", "last"])
def test_rot_in_the_newest_segment_is_damage_after_a_crash(data: Path, disk: WatchedDisk, place: int) -> None:
    """All of it was durable before it was a segment, so that nothing of it can be a torn tail."""
    kept = data.with_name("crashed")
    with Engine(data, maintains=False, disk=disk) as engine:
        log = engine.create("orders")
        commit(log, [stage(log, events(count=96))])
        newest = log.frames.segments[-1]
        assert len(newest.offsets) == 2
        shutil.copytree(data, kept, ignore=shutil.ignore_patterns("*.sock"))
        path, frame = kept / newest.path.relative_to(data), newest.offsets[place]
    content = bytearray(path.read_bytes())
    content[frame + 400] ^= 1
    path.write_bytes(content)
    with Engine(kept, maintains=False) as engine, pytest.raises(StorageCorrupted, match="are damaged"):
        engine.open("orders")
    (checked,) = check_directory(kept).logs
    assert any("are damaged" in problem for problem in checked.problems)
    assert accept_loss(kept, "orders")
    with Engine(kept, maintains=False) as engine:
        log = engine.open("orders")
        assert [each.sequence_number for each in log.read()][:72] == list(range(1, 73))
        assert log.append([event("after")]).first == 97
