"""An engine whose LOCK is removed writes nothing more: neither before another process opens the directory nor after."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headwater.core.errors import Closed, OutcomeUnknown, StorageUnavailable
from headwater.storage import Engine, check_directory
from headwater.storage.disk.locks import LOCK

from ..builders import engine, event
from ..disks import HeldDisk

LOST = "LOCK was (removed|replaced by another file)"


def test_an_engine_that_lost_its_lock_to_another_writes_nothing(data: Path) -> None:
    one = engine(data)
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


def test_a_lock_that_was_replaced_before_it_was_held_is_taken_again(data: Path, monkeypatch) -> None:
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
