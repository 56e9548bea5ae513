"""A data directory has one engine, whatever happens to its LOCK; one that lost its directory writes nothing more."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.core.errors import Closed, DiskFull, OutcomeUnknown, StorageUnavailable
from headwater.storage import Engine, backup, check_directory
from headwater.storage.catalog.backup_lock import BACKUP_LOCK, NoBackup, backing_up
from headwater.storage.disk.locks import LOCK, DirectoryUnavailable, InUse, unserved
from headwater.storage.state import data_directory
from headwater.storage.state.data_directory import open_state

from ..builders import engine, event
from ..disks import HeldDisk, without_directory_locks

LOST = "LOCK was (removed|replaced by another file)"


class Looking:
    """Makes `os.stat` of LOCK fail."""

    error: int | None = None


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Looking:
    found, stat = Looking(), os.stat

    def looked(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if found.error is not None and str(path).endswith(LOCK):
            raise OSError(found.error, os.strerror(found.error), path)
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", looked)
    return found


@pytest.fixture
def no_directory_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", without_directory_locks)


def test_another_engine_is_refused_though_lock_was_removed(data: Path) -> None:
    one = engine(data, maintains=False)
    one.create("orders").append([event("First")])
    (data / LOCK).unlink()
    for _ in range(2):  # the first try makes a new LOCK
        with pytest.raises(InUse, match="though its LOCK is free"):
            engine(data)
    with pytest.raises(InUse, match="though its LOCK is free"):
        check_directory(data)
    one.close()
    with engine(data) as other:
        assert [each.type for each in other.open("orders").read()] == ["First"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENOLCK])
def test_a_lock_that_cannot_be_taken_is_not_called_in_use(
    data: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(data, maintains=False).close()

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refused)
        for door in (engine, open_state, check_directory):
            with pytest.raises(DirectoryUnavailable, match=os.strerror(number)) as caught:
                door(data)
            assert not isinstance(caught.value, InUse)
    engine(data, maintains=False).close()


def test_another_engine_is_refused_under_another_name(data: Path, tmp_path: Path) -> None:
    with engine(data, maintains=False):
        data.rename(tmp_path / "renamed")
        (tmp_path / "renamed" / LOCK).unlink()
        with pytest.raises(InUse, match="though its LOCK is free"):
            engine(tmp_path / "renamed")


def test_where_directories_have_no_locks_an_engine_that_lost_its_lock_writes_nothing(
    data: Path, no_directory_locks: None, caplog: pytest.LogCaptureFixture
) -> None:
    one = engine(data)
    assert f"{data / LOCK}: its file system cannot lock directories" in caplog.text
    log = one.create("orders")
    log.append([event("First")])
    (data / LOCK).unlink()
    with engine(data) as other:
        there = other.open("orders")
        there.append([event("Second")])
        for refused in (
            lambda: log.append([event("Lost")]),
            lambda: one.create("new"),
            lambda: one.state.put("kind", "key", b"value"),
            lambda: log.trim(2),
        ):
            with pytest.raises((StorageUnavailable, Closed)):
                refused()
        one.close()
        there.append([event("Third")])
        assert [each.type for each in there.read()] == ["First", "Second", "Third"]
        assert other.names() == ["orders"] and other.state.get("kind", "key") is None
    assert check_directory(data).is_sound
    with engine(data) as again:
        assert [each.type for each in again.open("orders").read()] == ["First", "Second", "Third"]


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_lock_that_cannot_be_looked_at_refuses_appends_until_it_can(data: Path, looking: Looking, error: int) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event("First")])
        looking.error = error
        for refused in (lambda: log.append([event("Lost")]), lambda: one.create("new"), lambda: log.trim(2)):
            with pytest.raises(StorageUnavailable, match="LOCK cannot be checked"):
                refused()
        assert [each.type for each in log.read()] == ["First"]
        looking.error = None
        log.append([event("Second")])
        assert [each.type for each in log.read()] == ["First", "Second"]


def test_what_was_written_before_the_lock_could_not_be_looked_at_is_confirmed(data: Path, looking: Looking) -> None:
    disk = HeldDisk()
    with engine(data, disk=disk, maintains=False) as one:
        log = one.create("orders")
        disk.may_sync.clear()
        disk.is_syncing.clear()
        appending = threading.Thread(target=log.append, args=([event("First")],))
        appending.start()
        assert disk.is_syncing.wait(30)
        looking.error = errno.EACCES
        disk.may_sync.set()
        appending.join()
        assert [each.type for each in log.read()] == ["First"]
        looking.error = None


def test_where_directories_have_no_locks_a_lock_that_cannot_be_looked_at_is_lost(
    data: Path, looking: Looking, no_directory_locks: None
) -> None:
    one = engine(data)
    log = one.create("orders")
    looking.error = errno.ESTALE
    with pytest.raises(StorageUnavailable, match="LOCK can no longer be checked"):
        log.append([event("Lost")])
    looking.error = None
    with pytest.raises(StorageUnavailable, match="LOCK can no longer be checked"):
        log.append([event("Lost")])
    one.close()


def test_a_start_that_cannot_look_at_lock_keeps_no_lock(data: Path, looking: Looking) -> None:
    engine(data).close()
    looking.error = errno.EACCES
    with pytest.raises(StorageUnavailable, match="LOCK cannot be checked"):
        engine(data)
    looking.error = None
    engine(data).close()


def test_a_backup_is_known_though_its_lock_was_removed(data: Path) -> None:
    with engine(data, maintains=False) as one:
        one.create("orders").append([event()])
        with backing_up(data):
            (data / BACKUP_LOCK).unlink()
            with NoBackup(data) as may_unlink:
                assert not may_unlink
        with NoBackup(data) as may_unlink:
            assert may_unlink


def test_a_forked_process_does_not_keep_what_its_parent_has_unlocked(data: Path) -> None:
    engine(data, maintains=False).close()
    with backing_up(data):
        copies = [os.dup(number) for number in open_in(data)]  # as a fork has them
    try:
        assert len(copies) >= 2
        with NoBackup(data) as may_unlink:
            assert may_unlink
    finally:
        for copy in copies:
            os.close(copy)


def open_in(directory: Path) -> list[int]:
    """The descriptors of this process for what is in a directory."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            path = Path(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
        if path.is_relative_to(directory):
            found.append(number)
    return found


def test_a_directory_whose_lock_could_not_be_written_is_not_locked(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(directory: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as filled:
        filled.setattr(data_directory, "make_way", full)
        with pytest.raises(DiskFull):
            engine(data, maintains=False)
    engine(data, maintains=False).close()


def test_an_engine_that_lost_its_lock_closes_itself_and_says_why(data: Path) -> None:
    one = engine(data)
    log = one.create("orders")
    (data / LOCK).unlink()
    with pytest.raises(StorageUnavailable, match=LOST):
        log.append([event()])
    one.close()
    for refused in (lambda: log.append([event()]), lambda: one.open("other")):
        with pytest.raises(StorageUnavailable, match=LOST):
            refused()


def test_an_idle_engine_notices(data: Path) -> None:
    noticed = threading.Event()
    with Engine(data, reserve_bytes=0, on_lock_lost=lambda lost: noticed.set()):
        (data / LOCK).unlink()
        (data / LOCK).touch()
        assert noticed.wait(30)


def test_what_was_written_while_the_lock_was_lost_is_not_confirmed(data: Path) -> None:
    disk = HeldDisk()
    one = engine(data, disk=disk)
    log = one.create("orders")
    log.append([event()])
    disk.may_sync.clear()
    disk.is_syncing.clear()
    refusals: list[BaseException] = []

    def append() -> None:
        try:
            log.append([event()])
        except OutcomeUnknown as error:
            refusals.append(error)

    appending = threading.Thread(target=append)
    appending.start()
    assert disk.is_syncing.wait(30)
    (data / LOCK).unlink()
    disk.may_sync.set()
    appending.join()
    one.close()
    assert [type(each) for each in refusals] == [OutcomeUnknown]


def test_a_directory_that_was_not_made_yet_is_not_served(data: Path) -> None:
    with unserved(data):
        assert not data.exists()


def test_a_data_directory_without_logs_is_backed_up(data: Path, tmp_path: Path) -> None:
    with closing(open_state(data)) as state:
        state.put("user", "ann", b"")
    assert not (data / "logs").exists()
    assert backup(data, tmp_path / "backup").logs == {}


def test_a_lock_that_was_replaced_before_it_was_held_is_taken_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.storage.state import data_directory

    held = data_directory.hold

    def late(file, directory) -> None:
        held(file, directory)
        monkeypatch.setattr(data_directory, "hold", held)
        (directory / LOCK).unlink()

    monkeypatch.setattr(data_directory, "hold", late)
    with engine(data) as one:
        one.create("orders").append([event()])
        with pytest.raises(StorageUnavailable, match="in use"):
            engine(data)
