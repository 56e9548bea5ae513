"""The engine: one process per directory, logs by name, crashes in between, and what it leaves open (nothing)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.core import AppendRequest, Event, LogSettings, Query
from headwater.core.errors import (
    Closed,
    DiskFull,
    EventLogError,
    LogExists,
    LogNotFound,
    PositionOfOtherIncarnation,
    StorageCorrupted,
    StorageUnavailable,
)
from headwater.core.limits import SEQUENCE_NUMBER_MAX
from headwater.core.state import kinds_of_log
from headwater.storage import Engine, check_directory
from headwater.storage import log as log_module
from headwater.storage.disk.checked_file import with_checksum
from headwater.storage.segments.meta import META_NAME, read_meta

from .builders import Fatal, crashed, engine, event, log_directory, numbers, unless, without_identities
from .disks import BrokenDisk, FullDisk, HeldDisk


def test_a_directory_is_one_process_and_the_second_is_told_whose(data: Path) -> None:
    with engine(data):
        with pytest.raises(StorageUnavailable, match=rf"in use by another process \(pid {os.getpid()}\)"):
            engine(data)
        script = f"from headwater.storage import Engine; Engine({str(data)!r})"
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert f"in use by another process (pid {os.getpid()})" in found.stderr
        assert "run one server (`headwater serve`)" in found.stderr and "--data" not in found.stderr
    engine(data).close()


def test_a_directory_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StorageUnavailable, match="must be writable"):
        engine(tmp_path / "file" / "data")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_refused_in_words(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageUnavailable, match="must be writable"):
            engine(tmp_path / "data")
    finally:
        tmp_path.chmod(0o700)


def test_logs_are_opened_when_they_are_asked_for(data: Path) -> None:
    with engine(data) as one:
        for number in range(30):
            one.create(f"log-{number:02}")
    with engine(data) as again:
        assert again.names() == [f"log-{number:02}" for number in range(30)]
        assert again.opened() == []
        again.open("log-07")
        assert [log.name for log in again.opened()] == ["log-07"]
        with pytest.raises(LogNotFound):
            again.open("log-99")


def test_creating_twice_is_asking_for_the_same(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings(partitions=4))
        assert one.create("orders") is log
        assert one.create("orders", LogSettings(partitions=4)) is log
        with pytest.raises(LogExists):
            one.create("orders", LogSettings(partitions=5))


def test_a_log_made_again_goes_on_above_its_numbers(data: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event() for _ in range(7)])
        directory = log_directory(data)
        one.delete("orders")
        assert not directory.exists()
        assert one.names() == []
    with engine(data) as again:
        log = again.create("orders")
        assert log.head() == 7
        assert log.append([event()]).first == 8
        with pytest.raises(PositionOfOtherIncarnation):
            log.read(from_=5)
        assert numbers(log.read()) == [8]
        again.delete("orders")
        log = again.create("orders")
        log.append([event("A", "x:1")], unless(tags=["x:1"]))
        assert numbers(log.read()) == [9]
    with engine(data) as again:
        assert numbers(again.open("orders").read()) == [9]


def test_what_is_left_of_deleted_logs_is_removed_at_the_next_start(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
        one.create("kept").append([event()])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(one), "_empty_trash", lambda self: None)
            one.delete("orders")
        assert len(list((data / "logs").iterdir())) == 2
        image = crashed(data, tmp_path / "crashed")
    for directory in (data, image):
        with engine(directory) as again:
            assert [path.name[:5] for path in (directory / "logs").iterdir()] == ["kept."]
            assert numbers(again.open("kept").read()) == [1]


def test_a_log_whose_making_was_interrupted_is_removed(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        one.create("kept")
        real = one.state.put

        def stop(kind: str, *arguments: object, **options: object) -> int:
            if kind == "log":
                raise KeyboardInterrupt
            return real(kind, *arguments, **options)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one.state, "put", stop)
            with pytest.raises(KeyboardInterrupt):
                one.create("orders")
        image = crashed(data, tmp_path / "crashed")
    with engine(image) as again:
        assert [path.name[:5] for path in (image / "logs").iterdir()] == ["kept."]
        assert again.create("orders").append([event()]).first == 1


def test_settings_change_and_stay(data: Path) -> None:
    with engine(data) as one:
        one.create("orders", LogSettings(partitions=2))
        one.change("orders", LogSettings(partitions=2, retention_ms=5))
    with engine(data) as again:
        assert again.open("orders").settings.retention_ms == 5


@pytest.mark.parametrize("partitions", [1, 2, 1024])
def test_every_number_of_partitions_is_kept(data: Path, partitions: int) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings(partitions=partitions))
        last = partitions - 1
        log.append([event(), event()], partition=last)
        log.append([event()], partition=0)
        log.append([event(group_key="k") for _ in range(50)])
    with engine(data) as again:
        log = again.open("orders")
        assert {1, 2} <= set(numbers(log.read(partition=last)))
        counts = log.info().partition_events
        assert (len(counts), sum(counts)) == (partitions, 53)
        for partition in {0, last, partitions // 2}:
            found = numbers(log.read(partition=partition))
            assert len(found) == counts[partition]
            assert found == numbers(log.read(partition=partition, backwards=True))[::-1]


def test_every_field_survives_a_restart_and_a_crash(data: Path, tmp_path: Path) -> None:
    given = Event(
        "Größe", b"\x00\xff", tuple(f"k{n}:{'ü' * 256}" for n in range(128)), "id-1", "urn:a",
        {"subject": "s", "time": "2013-01-01T00:00:00Z"}, "group", b"\x00Sp\xc0\x02\x01A\x00Su\xa0\x02",
    )  # fmt: skip
    with engine(data) as one:
        one.create("orders").append([given, Event("Plain", id="id-2")])
        image = crashed(data, tmp_path / "crashed")
    for directory in (data, image):
        with engine(directory) as again:
            log = again.open("orders")
            first, second = log.read()
            assert first.event == given._replace(tags=tuple(sorted(given.tags)))
            assert second.event == Event("Plain", id="id-2")
            assert numbers(log.read(Query.where(tags=[given.tags[77]]))) == [1]


def test_the_largest_appends_are_taken(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings(event_bytes_max=64 * 1024 * 1024))
        assert log.append([Event("Many", b"", ("a:1",)) for _ in range(65_536)]).last == 65_536
        large = bytes(range(256)) * (4 * 1024 * 63)
        assert log.append([Event("Large", large, id="large")]).first == 65_537
        image = crashed(data, tmp_path / "crashed")
    for directory in (data, image):
        with engine(directory) as again:
            log = again.open("orders")
            assert log.head() == 65_537
            (found,) = log.read(Query.where(types=["Large"]))
            assert found.data == large
            assert len(numbers(log.read(Query.where(tags=["a:1"])))) == 65_536


def test_numbers_run_to_the_largest_and_no_further(data: Path) -> None:
    with engine(data) as one:
        one.create("orders")
    directory = log_directory(without_identities(data))
    floor = SEQUENCE_NUMBER_MAX - 2
    read_meta(directory).changed(
        voids=[(1, floor)], first_retained=floor + 1, known_from=floor + 1
    ).write(directory)  # fmt: skip
    with engine(data) as one:
        log = one.open("orders")
        assert log.append([event("A", "x:1")], unless(tags=["x:1"])).first == SEQUENCE_NUMBER_MAX - 1
        with pytest.raises(EventLogError, match="accepts no more events"):
            log.append([event(), event()])
        assert log.append([event()]).first == SEQUENCE_NUMBER_MAX
        with pytest.raises(EventLogError, match="accepts no more events"):
            log.append([event()])
    with engine(data) as again:
        log = again.open("orders")
        assert numbers(log.read()) == [SEQUENCE_NUMBER_MAX - 1, SEQUENCE_NUMBER_MAX]
        assert numbers(log.read(Query.where(tags=["x"]))) == [SEQUENCE_NUMBER_MAX - 1]


def test_times_never_go_back_even_over_a_restart(data: Path) -> None:
    for now in (5000, 3000, 9000, 1000):
        with engine(data, clock=lambda now=now: now) as one:
            one.create("orders").append([event()])
    with engine(data) as again:
        log = again.open("orders")
        assert [each.recorded_at for each in log.read()] == [5000, 5000, 9000, 9000]
        assert [log.sequence_number_at(at) for at in (0, 5000, 5001, 9000, 9001)] == [1, 1, 3, 3, 5]


def test_a_newer_format_of_the_directory_is_refused(data: Path) -> None:
    with engine(data) as one:
        one.create("orders")
    path = log_directory(data) / META_NAME
    newer = json.loads(path.read_bytes()) | {"format": 4}
    del newer["crc32c"]
    for content in (json.dumps(newer).encode(), with_checksum(json.dumps(newer).encode())):
        path.write_bytes(content)
        with (
            engine(data) as refusing,
            pytest.raises(StorageUnavailable, match=r"written by a newer headwater \(format 4"),
        ):
            refusing.open("orders")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": 5}'])
def test_an_unreadable_meta_is_refused(data: Path, content: bytes) -> None:
    with engine(data) as one:
        one.create("orders")
    (log_directory(without_identities(data)) / META_NAME).write_bytes(content)
    with engine(data) as refusing, pytest.raises(StorageCorrupted, match="headwater restore"):
        refusing.open("orders")


def test_a_damaged_log_does_not_stop_the_others(data: Path) -> None:
    with engine(data) as one:
        one.create("orders")
        one.create("flights").append([event()])
    (log_directory(without_identities(data)) / META_NAME).unlink()
    with engine(data) as again:
        with pytest.raises(StorageCorrupted):
            again.open("orders")
        assert again.open("flights").append([event()]).first == 2
        again.maintain()
    assert [log.problems != [] for log in check_directory(data).logs] == [False, True]


# Failing disks.


def test_a_full_disk_refuses_appends_while_all_else_goes_on(data: Path) -> None:
    disk = FullDisk()
    with engine(data, disk=disk, reserve_bytes=1000) as one:
        log = one.create("orders")
        log.append([event() for _ in range(10)])
        log.register_consumer("spark", "archiver", after=0)
        disk.free = 500
        with pytest.raises(DiskFull) as full:
            log.append([event("Refused", id="r")])
        assert (full.value.free_bytes, full.value.needed_bytes) == (500, 1000)
        assert numbers(log.read()) == list(range(1, 11))
        log.acknowledge("spark", "archiver", 10)
        assert log.trim(5) == 5
        disk.free = 1 << 40
        assert log.append([event("Refused", id="r")]).first == 11


def test_a_log_closes_on_a_full_disk_and_opens_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object) -> Path:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(log_module, "CLEAN_POSTINGS_MIN", 1)
    with engine(data) as one:
        for name in ("flights", "orders"):
            one.create(name).append([event("A", "x:1")])
        monkeypatch.setattr(log_module, "write_postings", no_room)
    monkeypatch.undo()
    with engine(data) as again:
        for name in ("flights", "orders"):
            assert numbers(again.open(name).read(Query.where(tags=["x:1"]))) == [1]


@pytest.mark.parametrize("fails", ["fails_write", "fails_sync"])
def test_a_failed_write_is_never_acknowledged(
    data: Path, tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    disk, answered = BrokenDisk(), []
    ended = threading.Event()

    def fatal(reason: str) -> None:
        ended.set()

    one = engine(data, disk=disk, fatal=fatal)
    log = one.create("orders")
    log.append([event("Kept")])
    setattr(disk, fails, True)
    request: AppendRequest = log.request([event("Lost")], None, None, answered.extend)
    log.submit(request)
    assert ended.wait(20)
    assert answered == []
    assert log.head() == 1
    assert [each.type for each in log.read()] == ["Kept"]
    image = crashed(data, tmp_path / "crashed")
    one.state.close()
    one._lock.close()
    one._logs.clear()
    log.frames.close()
    with engine(image) as again:
        assert [each.type for each in again.open("orders").read()][:1] == ["Kept"]


def test_readers_see_only_what_is_durable(data: Path) -> None:
    disk = HeldDisk()
    with engine(data, disk=disk) as one:
        log = one.create("orders")
        log.append([event()])
        disk.may_sync.clear()
        disk.is_syncing.clear()
        answered: list[AppendRequest] = []
        log.submit(log.request([event("Pending", "x:1")], None, None, answered.extend))
        assert disk.is_syncing.wait(20)
        assert log.head() == 1
        for query in (Query.all(), Query.where(tags=["x:1"]), Query.where(types=["Pending"])):
            assert 2 not in numbers(log.read(query))
            assert 2 not in numbers(log.read(query, backwards=True))
        assert answered == []
        disk.may_sync.set()
    assert len(answered) == 1


# Closing, and what is left open.


def test_closed_logs_take_nothing(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event()])
    assert log.is_closed
    with pytest.raises(Closed):
        log.append([event()])
    with pytest.raises(Closed):
        one.open("flights")
    one.close()
    log.close()


def test_closing_while_everybody_works_ends_everybody(data: Path) -> None:
    outcomes: list[str] = []

    def work(body: Callable[[], object]) -> None:
        try:
            while True:
                body()
        except EventLogError as error:
            outcomes.append(type(error).__name__)

    one = engine(data)
    log = one.create("orders")
    log.append([event() for _ in range(100)])

    def subscribe() -> None:
        with log.subscribe() as subscription:
            for _ in subscription:
                pass
        raise Closed("subscription")

    threads = [threading.Thread(target=work, args=(lambda: log.append([event()]),)) for _ in range(3)]
    threads += [threading.Thread(target=work, args=(subscribe,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    reader = log.read()
    next(reader)
    closers = [threading.Thread(target=close) for close in (log.close, log.close, one.close, one.close)]
    for closer in closers:
        closer.start()
    for thread in [*closers, *threads]:
        thread.join(30)
        assert not thread.is_alive()
    assert outcomes == ["Closed"] * 6
    one.close()
    with engine(data) as again:
        found = numbers(again.open("orders").read())
        assert found == list(range(1, len(found) + 1))


def test_the_second_to_close_waits_for_the_first(data: Path, fatal: Fatal) -> None:
    disk = HeldDisk()
    one = engine(data, disk=disk, fatal=fatal)
    log = one.create("orders")
    log.append([event()])
    disk.may_sync.clear()
    disk.is_syncing.clear()
    answered: list[AppendRequest] = []
    log.submit(log.request([event()], None, None, answered.extend))
    assert disk.is_syncing.wait(20)
    closers = [threading.Thread(target=log.close) for _ in range(3)]
    for closer in closers:
        closer.start()
    closers[2].join(0.1)
    assert not log.is_closed
    disk.may_sync.set()
    for closer in closers:
        closer.join(20)
    one.close()
    assert [request.error for request in answered] == [None]
    assert fatal.reasons == []


def test_closing_ends_a_running_job(data: Path, small_segments: None, caplog: pytest.LogCaptureFixture) -> None:
    one = engine(data)
    log = one.create("orders")
    for _ in range(10):
        log.append([event(data=bytes(2000))])
    working = threading.Thread(target=one.maintain)
    working.start()
    one.close()
    working.join(30)
    assert not working.is_alive()
    assert "Traceback" not in caplog.text
    with engine(data) as again:
        assert numbers(again.open("orders").read()) == list(range(1, 11))


def test_opening_and_closing_leaves_no_file_and_no_thread(data: Path, open_files: Callable[[], int]) -> None:
    with engine(data) as one:
        one.create("orders").append([event("A", "x:1")])
    before, threads = open_files(), threading.active_count()
    for _ in range(60):
        with engine(data) as again:
            again.open("orders").append([event()])
            list(again.open("orders").read(Query.where(tags=["x"])))
    assert open_files() <= before + 2  # `again` still maps a segment of its log, and one of the journal
    assert threading.active_count() == threads
    with Engine(data, reserve_bytes=0):
        pass
    assert threading.active_count() == threads


def test_what_is_remembered_of_readers_goes_with_their_log(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.register_consumer("spark", "archiver")
        kinds = kinds_of_log(log.info().incarnation)
        one.state.put(kinds[1], "who", b"7")
        one.state.put("reader/of another log", "who", b"8")
        one.delete("orders")
        assert [list(one.state.items(kind)) for kind in kinds] == [[]] * len(kinds)
        assert one.state.get("reader/of another log", "who") is not None


def test_deleted_logs_leave_no_file_open(data: Path, open_files: Callable[[], int]) -> None:
    with engine(data) as one:
        one.create("first")
        before = open_files()
        for _ in range(20):
            one.create("orders").append([event()])
            one.delete("orders")
        assert open_files() <= before + 2  # `again` still maps a segment of its log, and one of the journal


def test_refused_opening_leaves_no_file_open(data: Path, open_files: Callable[[], int]) -> None:
    engine(data).close()
    (data / "state.sqlite").write_bytes(b"garbage" * 1000)
    (data / "journal" / "META.json").write_bytes(b"garbage")
    before = open_files()
    for _ in range(5):
        with pytest.raises(StorageCorrupted):
            engine(data)
    assert open_files() == before


def test_small_appends_do_not_make_the_process_grow(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        done = threading.Semaphore(0)

        def release(requests: list[AppendRequest]) -> None:
            done.release(len(requests))

        def append(count: int) -> None:
            for _ in range(count):
                log.submit(log.request([Event("E", bytes(4000))], None, None, release))
            for _ in range(count):
                assert done.acquire(timeout=60)

        append(2000)
        tracemalloc.start()
        append(5000)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used < 5000 * 3000  # postings, ids, places of frames and a bounded cache; not the events


def test_the_newest_part_of_the_index_is_let_go_when_it_is_sealed(data: Path, small_segments: None) -> None:
    with engine(data) as one:
        log = one.create("orders")
        for number in range(600):
            log.append([event("A", f"n:{number}")])
        one.maintain()
        assert sum(active.last - active.first + 1 for active in log.index.actives) < 450


def test_a_fatal_reason_names_the_log(data: Path, fatal: Fatal) -> None:
    with engine(data, fatal=fatal) as one:
        one.create("orders").append([event()])
    assert fatal.reasons == []


def test_logs_without_their_state_are_not_taken_for_an_empty_directory(tmp_path: Path) -> None:
    with Engine(tmp_path) as engine:
        engine.create("orders").append([event()])
    for path in tmp_path.glob("state.sqlite*"):
        path.unlink()
    shutil.rmtree(tmp_path / "journal")
    with pytest.raises(StorageCorrupted, match="the file is missing, but there are logs"):
        Engine(tmp_path)
