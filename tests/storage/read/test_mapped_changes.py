"""A log that changes while another process reads it: appended to, killed, sealed, cut, trimmed, damaged, deleted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headwater.core import ALL, Event, LogSettings, Query
from headwater.core.errors import Closed, InvalidInput, StorageCorrupted, StorageUnavailable
from headwater.formats.arrow.tables import SCHEMA, record_batch
from headwater.storage import Engine, StoredLog, accept_loss
from headwater.storage.read import mapped_log, mapped_segment, selection
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.segments import segment_log
from headwater.storage.segments.meta import read_meta
from headwater.storage.segments.segment import SEGMENT_HEADER_BYTES

from ..builders import change, engine, event, fill, log_directory, newest

pytestmark = pytest.mark.usefixtures("small_segments")

WRITER = """
import sys
from random import Random
from headwater.core import Event
from headwater.storage import Engine; from headwater.storage.segments import segment_log as segments

segments.SEGMENT_BYTES_MIN, segments.SEGMENT_BYTES_MAX, segments.SEGMENT_EVENTS_MAX = 8 * 1024, 64 * 1024, 900
directory, seed = sys.argv[1:]
random = Random(int(seed))
with Engine(directory, maintains=False, reserve_bytes=0) as engine:
    log = engine.create("orders")
    print(log.head(), flush=True)
    while True:
        numbers = range(log.head() + 1, log.head() + 1 + random.choice([1, 2, 5, 300]))
        log.append([Event("T", str(n).encode(), (f"n:{n}",)) for n in numbers])
        print(log.head(), flush=True)
        if random.random() < 0.05:
            engine.maintain()
"""


def opened(log: StoredLog) -> MappedLog:
    found = MappedLog(log.directory)
    found.refresh(log.head())
    return found


def table(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(batches), SCHEMA)


def reference(log: StoredLog, after: int = 0) -> pa.Table:
    return pa.Table.from_batches([record_batch([each for each in log.read() if each.sequence_number > after])])


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("sequence_number").to_pylist()]


@pytest.fixture
def log(data: Path) -> Iterator[StoredLog]:
    """Several sealed segments, and one that is written."""
    with engine(data) as one:
        found = one.create("orders")
        fill(found, 500, per_call=7, data=b"d" * 40, tags=lambda n: [f"n:{n}", "all"])
        one.maintain()
        fill(found, 30)
        yield found


def test_a_writer_that_is_killed_again_and_again_is_read_as_far_as_it_told(data: Path) -> None:
    random, reader, head = Random(5), None, 0
    for turn in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(data), str(turn)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            for _ in range(random.randint(5, 60)):
                told = int(process.stdout.readline())
                if told == 0:
                    continue
                assert told >= head
                reader = reader or MappedLog(log_directory(data))
                reader.refresh(told)
                after = random.choice([0, head])
                _assert_numbered(reader, after, told)
                head = told
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    assert reader is not None and head > 500
    _assert_numbered(reader, 0, head)
    assert len(list((log_directory(data) / "log").glob("*.log"))) > 2


def _assert_numbered(reader: MappedLog, after: int, upto: int) -> None:
    """Every event is there, once, with the data that tells its number; and a tag finds one of them."""
    expected = range(after + 1, upto + 1)
    found = list(reader.scan(after, upto, columns=["sequence_number", "data"]))
    assert [n for batch in found for n in batch.column(0).to_pylist()] == list(expected)
    assert [data for batch in found for data in batch.column(1).to_pylist()] == [str(n).encode() for n in expected]
    assert reader.count(after, upto) == len(expected)
    assert numbers(reader.scan(0, upto, query=Query.where(tags=[f"n:{upto}"]))) == [upto]


def test_nothing_above_the_head_that_was_told_is_given(log: StoredLog) -> None:
    reader = MappedLog(log.directory)
    assert numbers(reader.scan(0, 10**18)) == []
    for head in (1, 7, 8, 100, 499, 530):
        reader.refresh(head)
        assert reader.head == head
        assert numbers(reader.scan(0, 10**18)) == list(range(1, head + 1))
        assert reader.count(0, 10**18) == head
        tagged = numbers(reader.scan(0, 10**18, query=Query.where(tags=["all"])))
        assert tagged == list(range(1, min(head, 500) + 1))
    reader.refresh(3)  # a request that was under way when another one came
    assert reader.head == 530


def test_a_segment_that_is_sealed_and_cut_while_it_is_mapped_stays_readable(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES_MIN", 512 * 1024)
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 100, per_call=3)
        reader, segment = opened(log), newest(log)
        scan = reader.scan(0, log.head(), batch_events=10)
        first = next(scan)
        size = segment.stat().st_size
        fill(log, 150, per_call=5)
        assert newest(log) != segment
        assert segment.stat().st_size < size
        assert pa.Table.from_batches([first, *scan]) == reference(log)[:100]
        reader.refresh(log.head())
        assert table(reader.scan(0, log.head())) == reference(log)


def test_a_trim_during_a_scan_does_not_hurt_it(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 600, per_call=7, data=b"d" * 40)
        one.maintain()
        reader, everything = opened(log), reference(log)
        scan = reader.scan(0, 600, batch_events=10)
        batches = [next(scan)]
        files = len(list((log.directory / "log").glob("*.log")))
        log.trim(590)
        one.maintain()
        assert len(list((log.directory / "log").glob("*.log"))) < files
        assert numbers(reader.scan(0, 600))[-11:] == list(range(590, 601))  # nobody told of the trim yet
        reader.refresh(600)
        assert numbers(reader.scan(0, 600)) == list(range(590, 601))
        assert reader.count(0, 600) == 11
        assert pa.Table.from_batches([*batches, *scan]) == everything


def test_what_was_trimmed_before_it_was_opened_is_not_missed(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 600, per_call=7, data=b"d" * 40)
        reader = opened(log)
        one.maintain()
        log.trim(400)
        one.maintain()
        assert numbers(reader.scan(0, 600))[-201:] == list(range(400, 601))
        assert numbers(reader.scan(450, 600)) == list(range(451, 601))


def test_a_log_that_is_deleted_during_a_scan_is_read_to_its_end(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 600, per_call=7, data=b"d" * 40)
        one.maintain()
        reader, everything = opened(log), reference(log)
        scan = reader.scan(0, 600, batch_events=10)
        searched = reader.scan(0, 600, query=Query.where(types=["T1"]))
        batches = [next(scan)]
        one.delete("orders")
        assert not reader.directory.exists()
        assert pa.Table.from_batches([*batches, *scan]) == everything
        assert numbers(searched) == list(range(1, 601, 3))
        with pytest.raises(StorageUnavailable, match="the log was deleted"):
            reader.refresh(600)


def test_readers_in_many_threads_read_while_events_are_appended_and_trimmed(data: Path) -> None:
    problems: list[BaseException] = []
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 50)
        reader, done = opened(log), threading.Event()

        def read() -> None:
            try:
                while not done.is_set():
                    head = log.head()
                    reader.refresh(head)
                    low = log.first_retained
                    found = numbers(reader.scan(low - 1, head, query=Query.where(types=["T0", "T1", "T2"])))
                    newest = numbers(reader.scan(head - 20, head))
                    assert found == list(range(head - len(found) + 1, head + 1))
                    if log.first_retained <= head - 19:  # else they were trimmed meanwhile
                        assert found[-20:] == newest == list(range(head - 19, head + 1))
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for turn in range(20):
            fill(log, 50, per_call=turn % 9 + 1)
            if turn % 5 == 4:
                one.maintain()
                log.trim(log.head() - 100)
        done.set()
        for thread in threads:
            thread.join()
    assert problems == []


def test_the_directory_is_left_as_it_is(log: StoredLog) -> None:
    def state() -> list[tuple[str, int, int]]:
        paths = [log.directory, *log.directory.rglob("*")]
        return [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(paths)]

    before, reader = state(), opened(log)
    reader.count(0, log.head(), 0)
    reader.splits(0, log.head(), split_bytes=1000, splits_min=3)
    numbers(reader.scan(0, log.head()))
    numbers(reader.scan(0, log.head(), query=Query.where(tags=["all"])))
    reader.close()
    assert state() == before


def test_postings_that_say_that_nothing_matches_spare_the_frames(log: StoredLog) -> None:
    reader, sealed = opened(log), log.index.files[-1].last
    assert numbers(reader.scan(0, sealed, query=Query.where(tags=["no:such"]))) == []
    assert sum(segment.verified.sum() for segment in reader._segments.values()) == 0
    assert numbers(reader.scan(0, sealed, query=Query.where(tags=["n:123"]))) == [123]
    assert sum(segment.verified.sum() for segment in reader._segments.values()) == 1


@pytest.mark.parametrize("gone", ["*", "*.postings", "*.places"])
def test_the_index_may_be_missing(log: StoredLog, gone: str) -> None:
    for path in (log.directory / "idx").glob(gone):
        path.unlink()
    if gone == "*":
        shutil.rmtree(log.directory / "idx")
    reader = opened(log)
    assert table(reader.scan(0, log.head())) == reference(log)
    assert numbers(reader.scan(0, log.head(), query=Query.where(tags=["all"]))) == list(range(1, 501))


@pytest.mark.parametrize("pattern", ["*.postings", "*.places"])
def test_a_damaged_index_is_not_used(log: StoredLog, pattern: str) -> None:
    for path in (log.directory / "idx").glob(pattern):
        change(path, path.stat().st_size - 1, b"\xff")
    reader = opened(log)
    assert table(reader.scan(0, log.head())) == reference(log)
    assert numbers(reader.scan(0, log.head(), query=Query.where(tags=["n:77"]))) == [77]


def test_a_damaged_frame_is_told_as_the_log_tells_it(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 600, per_call=7, data=b"d" * 40)
        one.maintain()
        segment = log.frames.segments[1]
        path, place, after = segment.path, segment.offsets[2], segment.firsts[2] - 1
    change(path, place + 300, b"\x07")
    with engine(data) as one:
        log = one.open("orders")
        reader = opened(log)
        assert numbers(reader.scan(0, after)) == list(range(1, after + 1))
        with pytest.raises(StorageCorrupted) as of_log:
            list(log.read())
        scan = reader.scan(0, 600)
        with pytest.raises(StorageCorrupted) as found:
            list(scan)
        assert str(found.value) == str(of_log.value)
        assert (found.value.path, found.value.problem) == (of_log.value.path, of_log.value.problem)
        assert numbers(reader.scan(after + 7, 600)) == list(range(after + 8, 601))


@pytest.mark.parametrize("field", [0, 8, 24, 32])
def test_a_damaged_header_of_the_newest_segment_is_told(log: StoredLog, field: int) -> None:
    segment = log.frames.segments[-1]
    change(segment.path, segment.offsets[3] + field, b"\x02")
    reader, first = opened(log), segment.firsts[3]
    assert numbers(reader.scan(0, segment.first - 1)) == list(range(1, segment.first))
    with pytest.raises(StorageCorrupted, match=f"events {first} to .* are damaged .*restore a backup"):
        list(reader.scan(first - 1, log.head()))


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_segment_that_is_gone_is_told(log: StoredLog, index: int) -> None:
    log.frames.segments[index].path.unlink()
    with pytest.raises(StorageCorrupted, match=r"missing; a segment file is gone|damaged"):
        list(opened(log).scan(0, log.head()))


@pytest.mark.parametrize("index", [1, -1])
@pytest.mark.parametrize("is_indexed", [True, False])
def test_events_whose_loss_was_accepted_are_left_out(data: Path, index: int, is_indexed: bool) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 600, per_call=7, data=b"d" * 40)
        segment = log.frames.segments[index]
        path, place, first = segment.path, segment.offsets[1], segment.firsts[1]
    change(path, place + 300, b"\x07")
    for made in (log_directory(data) / "idx").iterdir():
        made.unlink()
    if index == -1:  # so that it is looked at
        read_meta(log_directory(data)).changed(clean=None).write(log_directory(data))
    assert accept_loss(data, "orders") == [(first, first + 6)]
    with engine(data) as one:
        log = one.open("orders")
        if not is_indexed:
            shutil.rmtree(log.directory / "idx")
        reader = opened(log)
        assert table(reader.scan(0, 600)) == reference(log)
        assert reader.count(0, 600) == 593
        for query in (ALL, Query.where(types=["T1", "T0"]), Query.where(types=["T2"])):
            expected = [each.sequence_number for each in log.read(query)]
            assert numbers(reader.scan(0, 600, query=query)) == expected
        splits = reader.splits(0, 600, split_bytes=3000, splits_min=1)
        assert sum(split.events for split in splits) == 593


def test_large_frames_are_cut_and_not_copied(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings(event_bytes_max=10**6))
        for _ in range(3):
            log.append([Event("T", bytes([n % 256]) * 2000, ("x:1",)) for n in range(2000)])
        reader, columns = opened(log), ["data", "type", "tags"]
        before, most, rows = pa.total_allocated_bytes(), 0, 0
        for batch in reader.scan(0, log.head(), columns=columns, batch_bytes=10**6):
            assert batch.nbytes < 1.3 * 10**6
            most, rows = max(most, pa.total_allocated_bytes() - before), rows + batch.num_rows
        assert rows == 6000
        assert most < 100_000
        (third,) = reader.scan(4500, 4510)
        assert third.column("data").to_pylist() == [bytes([n % 256]) * 2000 for n in range(500, 510)]


def test_an_event_larger_than_a_batch_comes_alone(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event(data=bytes(size)) for size in (10, 500_000, 10, 10, 400_000, 400_000)])
        found = [batch.num_rows for batch in opened(log).scan(0, 6, batch_bytes=10_000)]
        assert sum(found) == 6 and max(found) <= 2


def test_columns_that_there_are_not_are_refused_at_once(log: StoredLog) -> None:
    reader = opened(log)
    for columns in (["type", "no"], [], ["type", "type"]):
        with pytest.raises(InvalidInput, match="columns: "):
            reader.scan(0, 1, columns=columns)


def test_a_closed_one_lets_go_of_its_files_and_says_that_it_is_closed(
    log: StoredLog, open_files: Callable[[], int]
) -> None:
    before, reader = open_files(), opened(log)
    scan = reader.scan(0, log.head(), batch_events=50)
    batch = next(scan)
    list(reader.scan(0, log.head(), query=Query.where(tags=["all"])))
    reader.close()
    with pytest.raises(Closed):
        reader.scan(0, 1)
    with pytest.raises(Closed):
        reader.refresh(1)
    assert pa.Table.from_batches([batch, *scan]) == reference(log)
    del scan, batch
    assert open_files() == before


def test_a_refresh_that_brings_nothing_new_reads_no_file(log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(log.directory / "log", (1, 1))  # it was not changed within the last tick of its clock
    reader = opened(log)

    def unexpected(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(mapped_log, "read_meta", unexpected)
    monkeypatch.setattr(mapped_log, "segment_paths", unexpected)
    monkeypatch.setattr(selection, "postings_ranges", unexpected)
    reader.refresh(log.head())


def test_a_log_that_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageCorrupted, match="the file is missing"):
        MappedLog(tmp_path)


def test_an_empty_segment_that_another_file_takes_the_place_of_is_not_held(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 10)
        reader = opened(log)
        log.append([event(data=b"d" * 100_000)])  # does not fit: a larger segment is begun
        log.append([event(data=b"d" * 300_000)])
        reader.refresh(log.head())
        assert numbers(reader.scan(0, 100)) == list(range(1, 13))


def test_the_end_of_what_is_told_may_be_anywhere_in_a_file(data: Path) -> None:
    """A header that does not fit into the last bytes of the window is read again, from where it begins."""
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 400, per_call=2)
        for head in range(2, 400, 26):
            reader = MappedLog(log.directory)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("headwater.storage.read.mapped_segment._WINDOW_BYTES", 1000 + head)
                reader.refresh(head)
                assert numbers(reader.scan(0, head)) == list(range(1, head + 1))
            assert os.path.getsize(newest(log)) > SEGMENT_HEADER_BYTES


def test_a_segment_that_is_cut_while_it_is_being_mapped_is_mapped_again(
    log: StoredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, failures = mapped_segment.Segment, [ValueError("mmap length is greater than file size")]

    def segment(path: Path, log_id: bytes) -> segment_log.Segment:
        if failures:
            raise failures.pop()
        return found(path, log_id)

    monkeypatch.setattr(mapped_segment, "Segment", segment)
    assert table(opened(log).scan(0, log.head())) == reference(log)
    assert failures == []


def test_an_engine_that_opens_a_log_again_does_not_disturb_its_reader(data: Path) -> None:
    with Engine(data, maintains=False, reserve_bytes=0) as one:
        log = one.create("orders")
        fill(log, 100, per_call=3)
        reader = opened(log)
        assert len(numbers(reader.scan(0, 100))) == 100
    with engine(data) as one:
        log = one.open("orders")
        fill(log, 100, per_call=3)
        reader.refresh(log.head())
        assert table(reader.scan(0, 200)) == reference(log)


def test_a_meta_that_is_hurt_while_others_read_is_told(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 10)
        reader = MappedLog(log.directory)
        reader.refresh(10)
        path = log.directory / "META.json"
        change(path, path.read_bytes().index(b'"first_retained": 1') + len(b'"first_retained": '), b"9")
        os.utime(path)
        with pytest.raises(StorageCorrupted, match="the checksum does not match"):
            reader.refresh(10)
        with pytest.raises(StorageCorrupted, match="the checksum does not match"):
            MappedLog(log.directory)
        reader.close()
