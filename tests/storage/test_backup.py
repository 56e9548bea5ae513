"""Backup while the server works, and restore as a new incarnation."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core import AppendCondition, LogSettings, Query
from headwater.core.errors import AppendConditionFailed, PositionOfOtherIncarnation, StorageUnavailable
from headwater.storage import Engine, accept_loss, backup, check_directory, restore
from headwater.storage.backup import _Copy
from headwater.storage.catalog.directories import RESTORE_JUMP
from headwater.storage.disk.summed_copy import FileSum, copy_summed
from headwater.storage.repair.manifest import MANIFEST
from headwater.storage.staging.batches import BatchManifest, Staging, batch_directory, write_manifest
from headwater.storage.staging.commit import commit_staged, discard_staged

from .builders import change, engine, event, log_directory, numbers, unless

pytestmark = pytest.mark.usefixtures("small_segments", "in_line")


def test_a_restored_log_has_everything_and_goes_on_far_above(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings(partitions=2))
        for number in range(100):
            log.append([event("A", f"n:{number}", id=str(number))])
        log.register_consumer("spark", "archiver", after=60)
        one.state.put(f"reader/{log.info().incarnation}", "who", b"57")
        one.maintain()
        log.trim(30)
        one.maintain()
        copied = backup(data, tmp_path / "backup")
        assert copied.logs == {"orders": 100}
        incarnation = log.info().incarnation
        before = list(log.read())
        log.append([event("After the backup", id="lost")])
    assert check_directory(tmp_path / "backup").is_sound
    assert restore(tmp_path / "backup", tmp_path / "restored").logs == {"orders": 100}
    for start in (RESTORE_JUMP, RESTORE_JUMP + 1, RESTORE_JUMP + 2):
        with engine(tmp_path / "restored") as again:
            log = again.open("orders")
            info = log.info()
            assert info.incarnation != incarnation
            assert info.head == start
            assert info.first_retained == 30
            assert list(log.read(after=29))[: len(before)] == before
            assert numbers(log.read(backwards=True))[-len(before) :] == numbers(before)[::-1]
            with pytest.raises(PositionOfOtherIncarnation):
                log.read(from_=102)
            assert [consumer.acknowledged for consumer in log.consumers()] == [60]
            assert [entry.value for _, entry in again.state.items(f"reader/{info.incarnation}")] == [b"57"]
            assert not list(again.state.items(f"reader/{incarnation}"))
            with pytest.raises(AppendConditionFailed):
                log.append([event()], unless(tags=["n:7"]))
            with pytest.raises(AppendConditionFailed):
                log.append([event()], AppendCondition(Query.all(), 99))
            condition = AppendCondition(Query.all(), 100 if start == RESTORE_JUMP else start)
            assert log.append([event()], condition).first == start + 1
            assert again.create("made-later").head() >= RESTORE_JUMP
    assert check_directory(tmp_path / "restored").is_sound


def test_a_reader_at_the_end_of_the_backup_goes_on(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event() for _ in range(10)])
    backup(data, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with engine(tmp_path / "restored") as again:
        log = again.open("orders")
        log.append([event()])
        assert numbers(log.read(after=10)) == [RESTORE_JUMP + 1]
        assert numbers(log.read(from_=10)) == [10, RESTORE_JUMP + 1]


def test_a_crash_right_after_a_restore_loses_nothing(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event() for _ in range(10)])
    backup(data, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with engine(tmp_path / "restored") as again:
        log = again.open("orders")
        log.register_consumer("spark", "archiver")
        shutil.copytree(tmp_path / "restored", tmp_path / "image", ignore=shutil.ignore_patterns("*.sock"))
    with engine(tmp_path / "image") as again:
        assert numbers(again.open("orders").read()) == list(range(1, 11))
        assert again.open("orders").append([event()]).first == RESTORE_JUMP + 1


def test_a_backup_while_appending_is_a_prefix(data: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    with engine(data) as one:
        log = one.create("orders")
        log.append([event()])

        def produce() -> None:
            while not stop.is_set():
                found = log.append([event("A", f"n:{log.head() + 1}")])
                log.register_consumer("spark", "archiver")
                log.acknowledge("spark", "archiver", found.last)

        producer = threading.Thread(target=produce)
        tender = threading.Thread(target=lambda: [one.maintain() for _ in range(10)])
        producer.start()
        tender.start()
        copies = []
        for number in range(4):
            copies.append((backup(data, tmp_path / f"backup-{number}"), tmp_path / f"backup-{number}"))
        stop.set()
        producer.join()
        tender.join()
        whole = list(log.read())
    for copied, directory in copies:
        assert check_directory(directory).is_sound, check_directory(directory)
        restore(directory, directory.with_suffix(".restored"))
        with engine(directory.with_suffix(".restored")) as again:
            log = again.open("orders")
            head = copied.logs["orders"]
            assert list(log.read()) == whole[:head]
            assert all(consumer.acknowledged <= head for consumer in log.consumers())
            for number in range(max(head - 5, 2), head + 1):
                with pytest.raises(AppendConditionFailed):
                    log.append([event()], unless(tags=[f"n:{number}"]))
            log.append([event()], unless(tags=[f"n:{head + 1}"]))


def test_a_backup_of_a_log_with_an_accepted_loss_is_whole(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        for _ in range(20):
            log.append([event()])
        path, offset = log.frames.segments[-1].path, log.frames.segments[-1].offsets[10]
    change(path, offset + 60, b"\xff\xff")
    assert accept_loss(data, "orders") == [(11, 11)]
    assert backup(data, tmp_path / "backup").logs == {"orders": 20}
    restore(tmp_path / "backup", tmp_path / "restored")
    with engine(tmp_path / "restored") as again:
        assert numbers(again.open("orders").read()) == [n for n in range(1, 21) if n != 11]


def test_a_restore_of_a_restore_goes_further_up(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
    source = data
    for number in range(1, 4):
        backup(source, tmp_path / f"backup-{number}")
        source = tmp_path / f"restored-{number}"
        restore(tmp_path / f"backup-{number}", source)
        with engine(source) as again:
            log = again.open("orders")
            assert log.append([event()]).first == number * RESTORE_JUMP + 1
            assert numbers(log.read()) == [1, *(n * RESTORE_JUMP + 1 for n in range(1, number + 1))]


def test_what_is_no_whole_backup_is_not_restored(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        one.create("orders")
    with pytest.raises(StorageUnavailable, match="not a complete backup"):
        restore(data, tmp_path / "restored")
    backup(data, tmp_path / "backup")
    (tmp_path / "backup" / MANIFEST).write_text("{")
    with pytest.raises(StorageUnavailable, match="not a complete backup"):
        restore(tmp_path / "backup", tmp_path / "restored")


def test_nothing_is_overwritten(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        one.create("orders")
    with pytest.raises(StorageUnavailable, match="not empty"):
        backup(data, data)
    backup(data, tmp_path / "backup")
    with pytest.raises(StorageUnavailable, match="not empty"):
        restore(tmp_path / "backup", data)
    with pytest.raises(StorageUnavailable, match="not a data directory"):
        backup(tmp_path / "nothing", tmp_path / "other")
    assert log_directory(data).exists()


@pytest.mark.parametrize("below", ["x", "logs/x", "../data/x"])
def test_a_backup_into_its_own_data_directory_is_refused(data: Path, below: str) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
        before = sorted(data.rglob("*"))
        with pytest.raises(StorageUnavailable, match="it is inside"):
            backup(data, data / below)
        assert sorted(data.rglob("*")) == before


def test_a_directory_is_not_restored_into_its_backup(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
    backup(data, tmp_path / "backup")
    with pytest.raises(StorageUnavailable, match="it is inside"):
        restore(tmp_path / "backup", tmp_path / "backup" / "logs" / "x")
    assert check_directory(tmp_path / "backup").is_sound


def test_a_backup_that_was_backed_up_is_sound(data: Path, tmp_path: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])
    backup(data, tmp_path / "one")
    backup(tmp_path / "one", tmp_path / "two")
    assert check_directory(tmp_path / "one").problems == []
    assert check_directory(tmp_path / "two").is_sound
    (tmp_path / "one" / "state.sqlite-wal").write_bytes(b"something")
    assert "does not belong to the backup" in str(check_directory(tmp_path / "one").problems)


@pytest.mark.parametrize("what", ["state", "logs"])
def test_a_disk_that_is_full_is_named_by_the_target(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if what == "state":
        monkeypatch.setattr("headwater.storage.state.sqlite_state.make_file", full)
    else:
        monkeypatch.setitem(backup.__globals__, "copy_summed", full)
    with pytest.raises(StorageUnavailable) as refused:
        backup(data, tmp_path / "backup")
    assert str(refused.value).startswith(f"{tmp_path / 'backup'}: the disk is full: ")
    assert str(data) not in str(refused.value)


def test_an_interrupted_backup_is_no_data_directory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(data) as one:
        one.create("orders").append([event()])

    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(_Copy, "log", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backup(data, tmp_path / "backup")
    with pytest.raises(StorageUnavailable, match="an interrupted backup or restore"):
        engine(tmp_path / "backup")
    with pytest.raises(StorageUnavailable, match="not a complete backup"):
        restore(tmp_path / "backup", tmp_path / "restored")


def test_a_batch_that_is_discarded_while_it_is_copied_is_not_in_the_backup(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders")
        staging = Staging(log.directory)
        batch = pa.record_batch({"type": ["A"], "data": [b"x"]})
        for number in (1, 2):
            writer = staging.stage(f"w{number}", 1, 0, 0, batch.schema)
            writer.write(batch)
            stage = writer.close()
            folder = batch_directory(log.directory, f"w{number}", 1)
            write_manifest(log.directory, folder, BatchManifest(f"w{number}", 1, [stage.stage]))

        def discarding(source: Path, target: Path, **how: bool) -> FileSum:
            if source.suffix == ".arrow" and source.parent == batch_directory(log.directory, "w1", 1):
                discard_staged(log, log.directory, "w1", 1)
            return copy_summed(source, target, **how)

        monkeypatch.setattr(sys.modules["headwater.storage.backup"], "copy_summed", discarding)
        backup(data, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with Engine(tmp_path / "restored", maintains=False) as engine:
        log = engine.open("orders")
        assert not batch_directory(log.directory, "w1", 1).exists()
        assert commit_staged(log, log.directory, "w2", 1, []).events == 1


@pytest.mark.parametrize("is_served", [True, False])
def test_a_last_event_that_ends_in_zeros_is_in_a_backup_where_these_are_a_hole(tmp_path: Path, is_served: bool) -> None:
    """ZFS makes holes of zeros, and so do copies by `cp --sparse` and `rsync --sparse`."""
    source, target, restored = tmp_path / "source", tmp_path / "backup", tmp_path / "restored"
    served = Engine(source)
    served.create("orders").append([event("E", data=b"first")])
    served.open("orders").append([event("E", data=bytes(100_000))])
    if not is_served:
        served.close()
    *_, segment = sorted(source.glob("logs/*/log/0*.log"))
    content = segment.read_bytes()
    with open(segment, "r+b") as file:
        file.truncate(0)
        for at in range(0, len(content), 4096):
            if (block := content[at : at + 4096]).strip(b"\0"):
                file.seek(at)
                file.write(block)
        file.truncate(len(content))
    assert segment.read_bytes() == content
    report = backup(source, target)
    assert (report.logs, report.damaged) == ({"orders": 2}, {})
    restore(target, restored)
    with closing(Engine(restored)) as again:
        assert [each.event.data for each in again.open("orders").read()] == [b"first", bytes(100_000)]
    if is_served:
        served.close()


def test_a_backup_that_cannot_be_synced_is_none(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".log"):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    with engine(data) as store:
        store.create("orders").append([event()])
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output error"):
        backup(data, tmp_path / "backup")
    with pytest.raises(StorageUnavailable, match="not a complete backup"):
        restore(tmp_path / "backup", tmp_path / "restored")
