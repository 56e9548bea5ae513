"""The room on the disk: used down to the reserve, one truth for appends, alarm and readiness, and what else fails."""

from __future__ import annotations

import errno
import logging
import mmap
import os
from pathlib import Path

import pytest

from headwater.core import Bus, NotificationType
from headwater.core.errors import DiskFull, StorageCorrupted, StorageUnavailable
from headwater.storage import Engine, check_directory
from headwater.storage.disk import system as system_module
from headwater.storage.disk.free_space import RESERVE_BYTES, Room
from headwater.storage.segments import segment_log as segment_log_module

from ...management.told import Told
from ..builders import Fatal, engine, event, numbers
from ..disks import FullDisk, OldFileSystem, RefusingDisk, SmallDisk

MIB = 2**20


def fill_up(store: Engine, size: int = 100_000) -> tuple[int, DiskFull]:
    """Append until the disk refuses; answers how many bytes were taken, and the refusal."""
    log, taken = store.open("orders"), 0
    while True:
        try:
            log.append([event(data=bytes(size))])
        except DiskFull as full:
            return taken, full
        taken += size


# Down to the reserve.


def test_everything_down_to_the_reserve_is_used(data: Path) -> None:
    """A doubled segment would need more than is there; a smaller one does not."""
    disk = SmallDisk(64 * MIB)
    with engine(data, disk=disk, reserve_bytes=16 * MIB) as one:
        one.create("orders")
        taken, full = fill_up(one)
        assert taken > 45 * MIB
        assert (full.free_bytes, full.needed_bytes) == (disk.free_bytes(data), 16 * MIB)
        assert 15 * MIB < full.free_bytes < 16 * MIB


def test_appends_alarm_and_readiness_never_disagree(data: Path) -> None:
    disk, bus = SmallDisk(64 * MIB), Bus()
    told = Told(bus)
    with engine(data, disk=disk, reserve_bytes=16 * MIB, bus=bus) as one:
        log = one.create("orders")
        while True:
            was_ready, was_low = one.unready() is None, bool(told.of(NotificationType.DISK_LOW))
            try:
                log.append([event(data=bytes(300_000))])
            except DiskFull:
                break
            assert was_ready and not was_low
        assert not was_ready and was_low, "readiness and the alarm knew before the append was refused"
        assert "the disk is full" in (one.unready() or "")


def test_below_the_reserve_all_but_appends_goes_on_and_it_recovers_by_itself(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, bus = SmallDisk(64 * MIB), Bus()
    told = Told(bus)
    with engine(data, disk=disk, reserve_bytes=16 * MIB, bus=bus) as one:
        log = one.create("orders")
        log.register_consumer("spark", "archiver", after=0)
        fill_up(one)
        head = log.head()
        assert numbers(log.read()) == list(range(1, head + 1))
        log.acknowledge("spark", "archiver", head)
        log.trim(head)
        one.maintain()
        assert one.unready() is None
        assert log.append([event()]).first == head + 1
        assert [len(told.of(type)) for type in (NotificationType.DISK_LOW, NotificationType.DISK_RECOVERED)] == [1, 1]


def test_a_quota_is_a_full_disk_though_much_is_free(data: Path) -> None:
    """What is free says nothing there: readiness follows what was refused, and tries it again by itself."""
    disk, bus = SmallDisk(1 << 40), Bus()
    told = Told(bus)
    with engine(data, disk=disk, reserve_bytes=MIB, bus=bus) as one:
        log = one.create("orders")
        disk.quota = 0
        with pytest.raises(DiskFull):
            log.append([event()])
        one.maintain()
        assert "the file system refused" in (one.unready() or "")
        (low,) = told.of(NotificationType.DISK_LOW)
        assert low["refusedBytes"] > 0
        disk.quota = None
        one.maintain()
        assert one.unready() is None
        assert len(told.of(NotificationType.DISK_RECOVERED)) == 1
        assert log.append([event()]).first == 1


def test_an_append_that_finds_no_large_segment_gets_a_small_one(data: Path) -> None:
    disk = SmallDisk(1 << 40)
    with engine(data, disk=disk, reserve_bytes=0) as one:
        log = one.create("orders")
        disk.quota = 16 * 1024
        assert log.append([event()]).first == 1
        assert log.info().allocated_bytes == 16 * 1024


def test_the_reserve_is_no_more_than_a_tenth_of_a_small_disk(data: Path) -> None:
    disk = SmallDisk(100 * MIB)
    with engine(data, disk=disk, reserve_bytes=None) as one:
        one.create("orders")
        assert one.room.reserve_bytes == 10 * MIB
        taken, _ = fill_up(one)
        assert taken > 86 * MIB
    assert Room(data, SmallDisk(1 << 40)).reserve_bytes == RESERVE_BYTES


# What is no full disk.


@pytest.mark.parametrize("operation", ["allocate", "rename"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EROFS])
def test_what_fails_before_a_frame_is_written_refuses_the_append_and_is_no_full_disk(
    data: Path, operation: str, number: int
) -> None:
    disk, fatal = RefusingDisk(), Fatal()
    with engine(data, disk=disk, fatal=fatal) as one:
        log = one.create("orders")
        disk.refuses[operation] = number
        with pytest.raises(StorageUnavailable, match="cannot create the next segment") as refused:
            log.append([event()])
        assert os.strerror(number) in refused.value.reason
        assert str(data) in str(refused.value) and str(data) not in refused.value.reason
        assert one.unready() is None, "there is room"
        disk.refuses.clear()
        assert log.append([event()]).first == 1
    assert fatal.reasons == []


@pytest.mark.parametrize("operation", ["allocate", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_is_a_full_disk_whatever_is_done(data: Path, operation: str, number: int) -> None:
    disk, fatal = RefusingDisk(), Fatal()
    with engine(data, disk=disk, fatal=fatal) as one:
        log = one.create("orders")
        disk.refuses[operation] = number
        with pytest.raises(DiskFull):
            log.append([event()])
        assert one.unready() is not None
        disk.refuses.clear()
        assert log.append([event()]).first == 1
        one.maintain()
        assert one.unready() is None
    assert fatal.reasons == []


def test_a_map_that_finds_no_memory_refuses_the_append(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fatal = Fatal()

    def no_memory(*_: object, **__: object) -> mmap.mmap:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with engine(data, fatal=fatal) as one:
        log = one.create("orders")
        with monkeypatch.context() as patched:
            patched.setattr(mmap, "mmap", no_memory)
            with pytest.raises(StorageUnavailable, match="out of memory"):
                log.append([event()])
        assert log.append([event()]).first == 1
    assert fatal.reasons == []
    with engine(data) as again:
        assert numbers(again.open("orders").read()) == [1]


def test_a_thread_that_cannot_be_started_costs_no_append(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fatal = Fatal()
    with engine(data, fatal=fatal) as one:
        log = one.create("orders")
        log.append([event()])
        with monkeypatch.context() as patched:
            patched.setattr(segment_log_module.threading.Thread, "start", _no_thread)
            for _ in range(5):
                log.append([event(data=bytes(1_000_000))])
    assert fatal.reasons == []


def _no_thread(_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_disk_that_does_not_say_what_is_free_refuses_appends_and_is_not_ready(data: Path) -> None:
    disk, fatal = RefusingDisk(), Fatal()
    with engine(data, disk=disk, fatal=fatal) as one:
        log = one.create("orders")
        disk.refuses["free_bytes"] = errno.EIO
        with pytest.raises(StorageUnavailable):
            log.append([event()])
        assert "Input/output error" in (one.unready() or "")
    assert fatal.reasons == []


def test_a_file_system_that_cannot_allocate_gets_the_zeros_written(data: Path) -> None:
    with engine(data, disk=OldFileSystem()) as one:
        log = one.create("orders")
        log.append([event()])
        path = log.frames.segments[-1].path
        assert path.stat().st_size == 64 * 1024 and path.stat().st_blocks * 512 >= 64 * 1024
        assert numbers(log.read()) == [1]


# Small files.


def no_space_left(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_meta_that_finds_no_space_refuses_and_changes_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event() for _ in range(5)])
        with monkeypatch.context() as patched:
            patched.setattr(system_module.os, "replace", no_space_left)
            with pytest.raises(DiskFull):
                log.trim(3)
            with pytest.raises(DiskFull):
                one.create("flights")
        assert log.first_retained == 1
        assert one.names() == ["orders"]
        assert log.trim(3) == 3
        one.create("flights")


def test_a_state_that_finds_no_space_refuses_and_goes_on(data: Path) -> None:
    disk = FullDisk()
    with engine(data, disk=disk) as one:
        log = one.create("orders")
        log.append([event() for _ in range(3)])
        disk.refuses_allocation = True
        with pytest.raises(DiskFull):
            for number in range(10_000):
                log.register_consumer("spark", f"archiver-{number}" + "x" * 100, after=0)
        assert number > 1000, "what is allocated is used up"
        disk.refuses_allocation = False
        log.register_consumer("spark", "archiver", after=0)
        assert log.acknowledge("spark", "archiver", 2).acknowledged == 2


def test_a_state_without_its_table_is_damaged_and_not_full(data: Path) -> None:
    with engine(data) as one:
        one.state.image._connection.execute("DROP TABLE entries")
        with pytest.raises(StorageCorrupted, match="no such table"):
            one.state.put("kind", "key", b"")


def test_a_disk_that_is_full_while_sealing_is_told_without_a_traceback(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, small_segments: None
) -> None:
    with engine(data) as one:
        log = one.create("orders")
        for _ in range(250):
            log.append([event(data=bytes(100))])
        with monkeypatch.context() as patched:
            patched.setattr(one._worker, "run", no_space_left)
            one.maintain()
    assert "maintenance failed" in caplog.text
    assert not any(record.exc_info for record in caplog.records if record.levelno >= logging.WARNING)


# Sizes.


def test_a_log_of_one_event_is_small(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event(data=b"x")])
        info = log.info()
        assert 0 < info.bytes < 1000
        assert info.allocated_bytes == 64 * 1024
    (checked,) = check_directory(data).logs
    assert checked.bytes == info.bytes


def test_what_was_prepared_ahead_counts_as_allocated(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.frames._segment_bytes = 4 * MIB
        for _ in range(3):
            log.append([event(data=bytes(1_000_000))])
        assert log.frames._preparing is not None
        log.frames._preparing.join()
        info = log.info()
        assert 3_000_000 < info.bytes < 3_001_000
        assert info.allocated_bytes == 8 * MIB
        for _ in range(3):
            log.append([event(data=bytes(1_000_000))])
        sealed, newest = log.frames.segments
        assert log.info().allocated_bytes == sealed.path.stat().st_size + newest.path.stat().st_size < 8 * MIB
