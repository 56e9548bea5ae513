"""What goes on behind a log's back changes no answer: sealing, merging, trimming, history, retention."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from headwater.core import ALL, AppendCondition, Bus, Event, LogSettings, NotificationType, Query, QueryItem
from headwater.core.errors import (
    AppendConditionFailed,
    ConditionNeedsTrimmedEvents,
    DuplicateEventId,
    PositionTrimmed,
    StorageCorrupted,
    WouldDrop,
)
from headwater.core.watch.threads import Threads
from headwater.storage import Engine, StoredLog, check_directory
from headwater.storage import engine as engine_module
from headwater.storage import log as log_module
from headwater.storage.catalog.backup_lock import BACKUP_LOCK, NoBackup
from headwater.storage.frames.frame import ARROW_MIN, Frame
from headwater.storage.index import id_files, ids, index, loader
from headwater.storage.index.index import Index
from headwater.storage.index.postings import ActivePostings
from headwater.storage.maintenance import tasks
from headwater.storage.maintenance.worker import IndexWorker, Job, do
from headwater.storage.segments import segment_log
from tests.management.told import Told
from tests.waiting import eventually

from ..builders import change, columns, crashed, engine, event, log_directory, numbers

pytestmark = pytest.mark.usefixtures("small_segments")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def given(number: int) -> Event:
    return Event(f"T{number % 3}", bytes(40), (f"n:{number}", f"mod:{number % 5}", "all"), id=str(number))


def fill(log: StoredLog, count: int) -> None:
    start = log.head() + 1
    for number in range(start, start + count):
        log.append([given(number)])


QUERIES = [
    ALL,
    Query.where(types=["T1"]),
    Query.where(tags=["mod:3"]),
    Query.where(tags=["mod"]),
    Query.where(tags=["n:7"]),
    Query.where(types=["T0", "T2"], tags=["mod:1", "all"]),
    Query.of(QueryItem(types=("T1",)), QueryItem(tags=("n:30",))),
    Query.where(tags=["nothing:1"]),
]


def answers(log: StoredLog) -> list[object]:
    """Everything that can be asked: reads of both directions, and what conditions say about every boundary."""
    reads = [numbers(log.read(query, backwards=backwards)) for query in QUERIES for backwards in (False, True)]
    return [*reads, *verdicts(log)]


def verdicts(log: StoredLog) -> list[str]:
    """What conditions say, without an append."""
    found = []
    for query in QUERIES:
        for after in (0, 1, 29, 30, 31, 60, 110, log.head() - 1, log.head()):
            for requires_match in (False, True):
                try:
                    log._sequencer._judge._check(AppendCondition(query, after, requires_match), log.head())  # type: ignore[attr-defined]
                    found.append("passed")
                except (AppendConditionFailed, ConditionNeedsTrimmedEvents) as error:
                    found.append(str(error))
    return found


def reindexed(data: Path) -> None:
    """Delete every derived file."""
    shutil.rmtree(log_directory(data) / "idx")
    (log_directory(data) / "idx").mkdir()


@pytest.mark.usefixtures("in_line")
def test_sealing_merging_and_deleting_the_index_change_no_answer(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FILES_MAX", 2)
    monkeypatch.setattr(tasks, "MERGE_FACTOR", 2)
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 150)
        before = answers(log)
        for _ in range(6):
            one.maintain()
            assert answers(log) == before
        assert len(log.frames.segments) >= 4
        assert len(log.index.files) <= 3
        assert {path.suffix for path in (log_directory(data) / "idx").iterdir()} == {".postings", ".places"}
    with engine(data) as again:
        assert answers(again.open("orders")) == before
    reindexed(data)
    with engine(data) as again:
        assert answers(again.open("orders")) == before
    assert check_directory(data).is_sound, check_directory(data)


@pytest.mark.usefixtures("in_line")
def test_conditions_stay_exact_over_trimmed_events(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FILES_MAX", 2)
    monkeypatch.setattr(tasks, "MERGE_FACTOR", 2)

    with engine(data) as one:
        log = one.create("orders")
        fill(log, 150)
        before = verdicts(log)
        for below in (20, 61, 110):
            log.trim(below)
            assert verdicts(log) == before
            for _ in range(4):
                one.maintain()
            assert verdicts(log) == before
            assert numbers(log.read()) == list(range(below, 151))
            assert log.info().first_retained == below
        assert log.frames.segments[0].first > 60
        with pytest.raises(PositionTrimmed):
            log.read(from_=1)
    assert check_directory(data).is_sound
    with engine(data) as again:
        log = again.open("orders")
        assert verdicts(log) == before
        assert numbers(log.read()) == list(range(110, 151))
    reindexed(data)
    for _ in range(2):
        with engine(data) as again:
            log = again.open("orders")
            assert verdicts(log) == before
            again.maintain()
            assert verdicts(log) == before


@pytest.mark.usefixtures("in_line")
def test_a_missing_history_is_refused_not_forgotten(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 100)
        log.trim(80)
        one.maintain()
        one.maintain()
    history = list((log_directory(data) / "history").iterdir())
    assert history
    for path in history:
        path.unlink()
    reindexed(data)
    with engine(data) as refusing, pytest.raises(StorageCorrupted, match="the postings of the trimmed events"):
        refusing.open("orders")


@pytest.mark.usefixtures("in_line")
def test_a_log_without_history_says_what_it_does_not_know(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings(keeps_history=False))
        fill(log, 100)
        log.trim(81)
        one.maintain()
        one.maintain()
        assert list((log_directory(data) / "history").iterdir()) == []
        for target in (log, None):
            if target is None:
                one.close()
                target = engine_again(data)
            with pytest.raises(ConditionNeedsTrimmedEvents) as refused:
                target.append([event()], AppendCondition(Query.where(tags=["n:7"])))
            assert refused.value.known_from == 81
            with pytest.raises(AppendConditionFailed):
                target.append([event()], AppendCondition(Query.where(tags=["n:90"]), 80))
            target.append([event()], AppendCondition(Query.where(tags=["n:7"]), 80))


_again: list[Engine] = []


def engine_again(data: Path) -> StoredLog:
    _again.append(engine(data))
    return _again[-1].open("orders")


@pytest.fixture(autouse=True)
def close_again() -> Iterator[None]:
    yield
    while _again:
        _again.pop().close()


@pytest.mark.usefixtures("in_line")
def test_dropping_the_history_later_forgets_it_on_disk(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 100)
        log.trim(81)
        one.maintain()
        one.maintain()
        assert list((log_directory(data) / "history").iterdir())
        one.change("orders", LogSettings(keeps_history=False), drops_at_most=None)
        one.maintain()
        with pytest.raises(ConditionNeedsTrimmedEvents):
            log.append([event()], AppendCondition(Query.where(tags=["n:7"])))
        kept = [path.name for path in (log_directory(data) / "history").iterdir()]
        assert all(int(name[21:41]) >= 81 for name in kept)
    with engine(data) as again, pytest.raises(ConditionNeedsTrimmedEvents):
        again.open("orders").append([event()], AppendCondition(Query.where(tags=["n:7"])))


@pytest.mark.usefixtures("in_line")
def test_space_is_given_back_only_while_no_backup_runs(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 100)
        one.maintain()
        segments = len(log.frames.segments)
        log.trim(100)
        with open(data / BACKUP_LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            one.maintain()
            assert len(log.frames.segments) == segments
        one.maintain()
        assert len(log.frames.segments) == 1
        assert len(list((log_directory(data) / "log").glob("*.log"))) == 1


@pytest.mark.usefixtures("in_line")
def test_retention_by_age_forgets_what_is_older(data: Path) -> None:
    clock = Clock()
    with engine(data, clock=clock) as one:
        log = one.create("orders", LogSettings(retention_ms=1000))
        for number in range(1, 11):
            log.append([given(number)])
            clock.now += 200
        one.maintain()
        assert log.first_retained == 6
        clock.now += 10_000
        one.maintain()
        assert log.first_retained == 11
        assert numbers(log.read()) == []
        assert log.append([event()]).first == 11


@pytest.mark.usefixtures("in_line")
def damage(log: StoredLog, number: int) -> None:
    """Flip a bit in the payload of that event, of which no read knows yet."""
    [segment] = [each for each in log.frames.segments if each.first <= number <= each.last]
    index = segment.index_of(number)
    segment.unverify()
    segment._newest_read = None
    at = segment.offsets[index] + 200
    change(segment.path, at, bytes([segment.buffer[at] ^ 1]))


def test_a_damaged_event_goes_when_a_later_one_is_too_old(
    data: Path, in_line: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Its own time cannot be read. Times never go back, so it is as old as the next one at least."""
    clock = Clock()
    with engine(data, clock=clock) as one:
        log = one.create("orders", LogSettings(retention_ms=10_000, keeps_history=False))
        for step in range(10):
            clock.now = 1_000_000 + 1000 * step
            fill(log, 100)
        one.maintain(retention=False)
        for number in (400, 401, 700):
            damage(log, number)
        clock.now = 1_000_000 + 13_000 + 1  # what was recorded in the first four steps is too old
        for _ in range(3):
            one.maintain()
        assert log.first_retained == 400, "the next whole event is young enough"
        clock.now += 1000
        one.maintain()
        assert log.first_retained == 501
        with pytest.raises(StorageCorrupted, match="events 700 to 700"):
            list(log.read())
        clock.now += 10_000
        one.maintain()
        assert log.first_retained == 1001
        assert "maintenance failed" not in caplog.text


def test_a_task_that_fails_stops_no_other_and_is_told_once(
    data: Path, in_line: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings(retention_bytes=20_000, keeps_history=False))
        fill(log, 400)

        def fails(*_: object) -> None:
            raise StorageCorrupted("a file", "it is damaged", "restore it")

        segments = len(log.frames.segments)
        for task in ("seal_segments", "move_ids"):
            with monkeypatch.context() as patch:
                patch.setattr(tasks, task, fails)
                for _ in range(3):
                    one.maintain()
            assert caplog.text.count("it is damaged") == 1
            caplog.clear()
        assert log.first_retained > 1 and len(log.frames.segments) < segments
        one.maintain()
        fill(log, 1)  # at an idle log nothing is tried
        with monkeypatch.context() as patch:
            patch.setattr(tasks, "move_ids", fails)
            one.maintain()
        assert caplog.text.count("it is damaged") == 1, "it was whole meanwhile"


def test_retention_by_bytes_forgets_whole_segments(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings(retention_bytes=40_000))
        fill(log, 200)
        one.maintain()
        boundaries = [segment.first for segment in log.frames.segments]
        one.maintain()
        assert log.first_retained in boundaries
        assert 0 < sum(segment.end for segment in log.frames.segments) <= 40_000
        assert numbers(log.read())[-1] == 200


@pytest.mark.usefixtures("in_line")
def test_retention_until_acknowledged_waits_for_every_consumer(data: Path) -> None:
    clock = Clock()
    with engine(data, clock=clock) as one:
        log = one.create("orders", LogSettings(retention_until_acknowledged=True, consumer_age_ms_max=5000))
        fill(log, 50)
        one.maintain()
        assert log.first_retained == 1
        log.register_consumer("spark", "archiver", after=0)
        log.register_consumer("spark", "mirror", after=0)
        log.acknowledge("spark", "archiver", 40)
        one.maintain()
        assert log.first_retained == 1
        log.acknowledge("spark", "mirror", 30)
        one.maintain()
        assert log.first_retained == 31
        clock.now += 3000
        log.acknowledge("spark", "archiver", 45)
        clock.now += 3000  # the mirror was not heard of for too long
        one.maintain()
        assert [consumer.component for consumer in log.consumers()] == ["archiver"]
        assert log.first_retained == 46


@pytest.mark.usefixtures("in_line")
def test_retention_never_passes_a_consumer(data: Path) -> None:
    clock = Clock()
    with engine(data, clock=clock) as one:
        log = one.create("orders", LogSettings(retention_ms=1, retention_bytes=1))
        fill(log, 100)
        log.register_consumer("spark", "archiver", after=20)
        clock.now += 100_000
        one.maintain()
        assert log.first_retained == 21


@pytest.mark.usefixtures("in_line")
def test_ids_are_unique_within_the_horizon_only(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings(id_horizon=10))
        fill(log, 30)
        with pytest.raises(DuplicateEventId):
            log.append([event("Other", id="25")])
        assert log.append([event("Other", id="5")]).first == 31
        assert log.append([event("Other", id="5")]).was_stored


@pytest.mark.usefixtures("in_line")
def test_ids_are_known_after_every_kind_of_stop(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 150)
        one.maintain()
        log.trim(61)
        one.maintain()
        image = crashed(data, tmp_path / "crashed")
    reindexed(image)
    for directory in (data, image):
        with engine(directory) as again:
            log = again.open("orders")
            for number in range(61, 151):
                assert log.append([given(number)]).was_stored
            assert not log.append([given(5)]).was_stored


def test_the_worker_process_seals_and_merges(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FILES_MAX", 2)
    monkeypatch.setattr(tasks, "MERGE_FACTOR", 2)
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 120)
        before = answers(log)
        one.maintain()
        one.maintain()
        assert len(log.index.files) <= 3
        assert answers(log) == before
        worker = one._worker._process
        assert worker is not None
        os.kill(worker.pid, signal.SIGKILL)
        fill(log, 60)
        before = answers(log)
        one.maintain()
        assert one._worker._process is not worker
        assert len(list((log_directory(data) / "idx").glob("*.places"))) == len(log.frames.segments) - 1
        assert answers(log) == before
    assert worker.poll() is not None


def test_a_job_that_fails_is_told_and_done_again_later(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 60)
        problem = do(Job(str(log_directory(data)), "00000000000000000099.log", 120)).problem
        assert "FileNotFoundError" in problem
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(IndexWorker, "run", lambda self, job: "no luck")
            one.maintain()
            one.maintain()
        assert caplog.text.count("no luck") == 1
        patched = pytest.MonkeyPatch()
        patched.setattr(IndexWorker, "run", lambda self, job: do(job).problem)
        one.maintain()
        patched.undo()
        assert list((log_directory(data) / "idx").glob("*.places"))


@pytest.mark.usefixtures("in_line")
@pytest.mark.parametrize("suffix", [".places", ".postings", ".ids"])
def test_damaged_index_files_are_made_anew(data: Path, suffix: str) -> None:
    with engine(data) as one:
        log = one.create("orders")
        fill(log, 150)
        before = answers(log)
        one.maintain()
        id_files.save(log.index.ids.generations[0], log_directory(data) / "idx")
    damaged = list((log_directory(data) / "idx").glob(f"*{suffix}"))
    assert damaged
    for path in damaged:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(bytes(content))
    with engine(data) as again:
        log = again.open("orders")
        assert answers(log) == before
        assert log.append([given(9)]).was_stored
    assert check_directory(data).is_sound
    assert check_directory(data).logs[0].notes == []


@pytest.mark.usefixtures("in_line")
def test_files_of_clean_stops_are_dropped_when_they_are_covered(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "CLEAN_POSTINGS_MIN", 5)
    monkeypatch.setattr(tasks, "FILES_MAX", 4)
    monkeypatch.setattr(tasks, "MERGE_FACTOR", 2)
    for _ in range(12):
        with engine(data) as one:
            log = one.create("orders")
            fill(log, 13)
            one.maintain()
            assert numbers(log.read(Query.where(tags=["all"]))) == list(range(1, log.head() + 1))
    with engine(data) as one:
        log = one.open("orders")
        for _ in range(5):
            one.maintain()
        assert numbers(log.read(Query.where(tags=["all"]))) == list(range(1, 157))
        assert len(log.index.files) <= 6, [(file.first, file.last) for file in log.index.files]
    assert check_directory(data).is_sound


@pytest.mark.usefixtures("in_line")
def test_reads_go_on_while_segments_are_sealed_merged_and_trimmed(data: Path) -> None:
    problems: list[BaseException] = []
    stop = threading.Event()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                while not stop.is_set():
                    work()
            except BaseException as error:
                problems.append(error)
                stop.set()

        return run

    with engine(data) as one:
        log = one.create("orders")
        fill(log, 50)

        def read() -> None:
            found = numbers(log.read(Query.where(tags=["all"])))
            assert found == list(range(found[0], found[-1] + 1))
            found = numbers(log.read(backwards=True))
            assert found == list(range(found[0], found[-1] - 1, -1))

        threads = [threading.Thread(target=guarded(read)) for _ in range(3)]
        threads.append(threading.Thread(target=guarded(lambda: fill(log, 20))))
        for thread in threads:
            thread.start()
        for _ in range(15):
            log.trim(max(log.head() - 40, 0))
            one.maintain()
        stop.set()
        for thread in threads:
            thread.join()
        assert problems == []
        assert answers(log)
    assert check_directory(data).is_sound


def test_a_worker_whose_server_was_killed_ends_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from headwater.storage.maintenance.worker import main; main()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as worker:
        assert worker.stdin is not None and worker.stdout is not None and worker.stderr is not None
        worker.stdout.close()
        worker.stdin.write(msgspec.json.encode(Job(str(tmp_path), "nowhere")) + b"\n")
        worker.stdin.close()
        assert worker.stderr.read() == b""
        assert worker.wait(60) == 0


# What goes wrong in the background.


def test_maintenance_goes_on_after_a_time_without_descriptors(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of maintenance outlives rounds in which no file can be opened, and does then what it could not."""
    rounds, is_short = [], threading.Event()
    is_short.set()

    def short_of_descriptors(self: NoBackup) -> bool:
        rounds.append(is_short.is_set())
        if is_short.is_set():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return entered(self)

    entered = NoBackup.__enter__
    monkeypatch.setattr(NoBackup, "__enter__", short_of_descriptors)
    monkeypatch.setattr(engine_module, "MAINTENANCE_INTERVAL_S", 0.001)
    monkeypatch.setattr(engine_module, "RETENTION_INTERVAL_S", 0.002)
    monkeypatch.setattr(IndexWorker, "run", lambda self, job: do(job).problem)
    with engine(data, maintains=True) as one:
        log = one.create("orders", LogSettings(retention_bytes=20_000))
        fill(log, 500)
        eventually(lambda: len(rounds) > 5)
        is_short.clear()
        eventually(lambda: log.first_retained > 1 and log.frames.segments[0].first > 1)


def test_a_lock_file_that_cannot_be_opened_lets_nothing_be_unlinked(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(data) as one:
        one.create("orders")
        (data / BACKUP_LOCK).unlink(missing_ok=True)
        (data / BACKUP_LOCK).mkdir()
        with NoBackup(data) as may_unlink:
            assert not may_unlink
        one.delete("orders")
        one.maintain()
        assert list((data / "logs").iterdir()), "its directory is still there"
        (data / BACKUP_LOCK).rmdir()
        one.maintain()
        assert not list((data / "logs").iterdir())


def test_maintenance_that_fails_as_a_whole_is_told_and_begun_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus, rounds = Bus(), []
    told = Told(bus)
    threads = Threads(bus, pause_s=(0.001, 0.001))

    def fails_at_first(self: Engine, *, retention: bool = True) -> None:
        rounds.append(retention)
        if len(rounds) < 3:
            raise MemoryError

    monkeypatch.setattr(Engine, "maintain", fails_at_first)
    monkeypatch.setattr(engine_module, "MAINTENANCE_INTERVAL_S", 0.001)
    with engine(data, maintains=True, bus=bus, threads=threads):
        eventually(lambda: len(rounds) > 4)
    assert threads.restarts == {"maintenance": 2}
    assert len(told.of(NotificationType.THREAD_FAILED)) == 2


@pytest.mark.usefixtures("in_line")
@pytest.mark.parametrize("size", [1, 7, 130])
def test_of_the_newest_segment_only_the_newest_part_is_in_memory(
    data: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(index, "PART_EVENTS_MAX", 30)
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES_MIN", 256 * 1024)
    with engine(data) as one:
        log = one.create("orders")
        for start in range(0, 195, size):
            log.append([given(number) for number in range(start, min(start + size, 195))])
        before = answers(log)
        one.maintain()
        assert len(log.frames.segments) == 1 and len(log.index.actives) == 1
        in_memory = log.index.actives[0].last - log.index.actives[0].first + 1
        assert in_memory <= max(30, size), "a file has the others"
        assert answers(log) == before
        one.maintain()
        assert len(log.index.files) == 1, "once"
        fill(log, 10)
        before = answers(log)
        crashed(data, data.with_name("killed"))
    assert check_directory(data).is_sound
    applied: list[int] = []
    apply_frame = Index.apply_frame
    monkeypatch.setattr(
        Index, "apply_frame", lambda self, frame: (applied.append(frame.count), apply_frame(self, frame))
    )
    with engine(data.with_name("killed")) as again:
        log = again.open("orders")
        assert answers(log) == before
        assert sum(applied) <= 10 + max(30, size) and log.head() == 205


@pytest.mark.usefixtures("in_line")
def test_ids_of_older_events_are_in_files_and_told_as_before(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "SLOTS_MIN", 16)
    monkeypatch.setattr(ids, "SLOTS_MAX", 64)
    monkeypatch.setattr(tasks, "ID_FILES_MAX", 3)
    monkeypatch.setattr(loader, "REOPENED_IDS_MAX", 20)
    with engine(data) as one:
        log = one.create("orders")
        for _ in range(12):
            fill(log, 50)
            one.maintain()
        table = log.index.ids
        assert len(table.generations) == 1 and 0 < len(table.files) <= 6
        names = {file.path.name for file in table.files}
        assert {path.name for path in (log_directory(data) / "idx").glob("*.ids")} == names
        told_again(log)
        crashed(data, data.with_name("killed"))
    for place in (data, data.with_name("killed")):
        with engine(place) as again:
            told_again(again.open("orders"))
    old = next(iter((log_directory(data) / "idx").glob("*.ids")))
    old.write_bytes(b"HWIDS1\0\0" + old.read_bytes()[8:])
    with engine(data) as again:
        told_again(again.open("orders"))
        assert old.read_bytes()[:6] == b"HWIDS2" if old.exists() else True


@pytest.mark.usefixtures("in_line")
def test_files_of_ids_stay_few_however_often_the_server_is_killed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "SLOTS_MIN", 64)
    monkeypatch.setattr(ids, "SLOTS_MAX", 64)
    monkeypatch.setattr(loader, "REOPENED_IDS_MAX", 10)
    for run in range(9):
        with engine(data) as one:
            log = one.open("orders") if run else one.create("orders")
            for start in range(log.head(), log.head() + 120, 10):
                log.append([given(number) for number in range(start, start + 10)])
            for _ in range(3):
                one.maintain()
            files = log.index.ids.files
            assert all(before.last < after.first for before, after in pairwise(files))
            assert len(files) <= tasks.ID_FILES_MAX
            killed = crashed(data, data.with_name(f"killed {run}"))
        data = killed


def told_again(log: StoredLog) -> None:
    """Each id of the 600 events is known, alone and among many; others are not."""
    wanted = [str(number) for number in range(1, 700)]
    assert log.stored([""] * len(wanted), wanted) == [*range(1, 601), *[None] * 99]
    for number in (1, 30, 333, 600):
        assert log.append([given(number)]) == (number, number, True)
        with pytest.raises(DuplicateEventId):
            log.append([given(number)._replace(data=b"another")])
    with pytest.raises(DuplicateEventId):
        log.append([given(number) for number in range(20, 900)][::-1])
    assert log.head() == 600


@pytest.mark.usefixtures("in_line")
@pytest.mark.parametrize("settings", [LogSettings(retention_bytes=20_000), LogSettings(retention_ms=700_000)])
def test_what_a_change_of_settings_would_drop_is_what_retention_drops(data: Path, settings: LogSettings) -> None:
    clock = Clock()
    with engine(data, clock=clock) as one:
        log = one.create("orders")
        for number in range(1, 301):
            log.append([given(number)])
            clock.now += 10_000
        with pytest.raises(WouldDrop) as refused:
            one.change("orders", settings)
        one.maintain()
        assert (log.first_retained, log.settings) == (1, LogSettings())
        one.change("orders", settings, drops_at_most=refused.value.drops)
        clock.now += 60_000 * WouldDrop.MINUTES
        one.maintain()
        assert 0 < refused.value.drops < 300
        assert (log.first_retained, refused.value.last) == (refused.value.drops + 1, refused.value.drops)


class Seal(NamedTuple):
    """A job that sealed a segment, and the frames whose postings it made."""

    job: Job
    frames: list[int]


def sealed(
    log: StoredLog, engine: Engine, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None] = lambda path: None
) -> list[Seal]:
    """Have parts of a segment indexed, `spoil` the first one, and seal it."""
    seals: list[Seal] = []
    apply_frame = ActivePostings.apply_frame

    def run(self: IndexWorker, job: Job) -> str:
        if not job.segment or job.first:
            return do(job).problem
        seals.append(Seal(job, []))
        with monkeypatch.context() as spied:
            spied.setattr(ActivePostings, "apply_frame", apply)
            return do(job).problem

    def apply(self: ActivePostings, frame: Frame) -> None:
        seals[-1].frames.append(frame.first)
        apply_frame(self, frame)

    monkeypatch.setattr(IndexWorker, "run", run)
    while len(log.frames.segments) < 2:
        fill(log, 7)
        log.index.end_part()
        if len(log.frames.segments) == 1:
            tasks.index_newest(log, engine._worker.run)
    spoil(log.index.files[0].path)
    engine.maintain()
    return seals


def index_lost(data: Path) -> None:
    for path in (log_directory(data) / "idx").iterdir():
        path.unlink()


def test_a_seal_merges_the_parts_that_are_indexed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(data) as store:
        log = store.create("orders")
        seals = sealed(log, store, monkeypatch)
        parts = seals[0].job.parts
        assert len(parts) > 1 and parts[0][0] == 1
        assert (log.index.files[0].first, log.index.files[0].last) == (1, log.frames.segments[0].last)
        assert seals[0].frames[0] == parts[-1][1] + 1, "what the parts have is not indexed again"
        found = answers(log)
    index_lost(data)
    with engine(data) as store:
        assert answers(store.open("orders")) == found


def test_a_seal_with_a_damaged_part_indexes_the_segment_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(data) as store:
        log = store.create("orders")
        seals = sealed(log, store, monkeypatch, lambda path: change(path, 60, b"\xff" * 8))
        assert seals[0].job.parts and 1 in seals[0].frames
        found = answers(log)
    index_lost(data)
    with engine(data) as store:
        assert answers(store.open("orders")) == found


def test_large_appends_are_indexed_in_arrays_and_answer_as_memory_does(data: Path, in_line: None) -> None:
    def batch(first: int) -> list[Event]:
        return [given(number) for number in range(first, first + ARROW_MIN)]

    with engine(data) as store:
        log = store.create("orders")
        for first in range(4):
            log.append_columns(columns(batch(1 + first * ARROW_MIN)))
        in_memory = [numbers(log.read(query)) for query in QUERIES]
        log.index.end_part()
        store.maintain()
        assert log.index.files[-1].last == log.head()
        assert [numbers(log.read(query)) for query in QUERIES] == in_memory
