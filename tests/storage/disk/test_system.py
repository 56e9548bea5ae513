"""The seam to the operating system: whole writes, whole small files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.storage.disk import system
from headwater.storage.disk.system import Disk, write_whole

from ..disks import SlowWriter


@pytest.mark.parametrize("bytes_max", [1, 2, 3, 7, 1000])
def test_short_writes_are_gone_on_with(tmp_path: Path, bytes_max: int) -> None:
    buffers = [b"abc", b"", b"defgh", b"i" * 20]
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        SlowWriter(bytes_max).write(fd, buffers, 5)
        assert os.pread(fd, 100, 0) == bytes(5) + b"".join(buffers)
    finally:
        os.close(fd)


def test_more_buffers_than_one_call_takes_are_written(tmp_path: Path) -> None:
    buffers = [f"{number};".encode() for number in range(3000)]
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        Disk().write(fd, buffers, 0)
        assert os.pread(fd, 100_000, 0) == b"".join(buffers)
    finally:
        os.close(fd)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is asked of the system: each write with its offset and flags, each sync."""
    made: list[tuple[Any, ...]] = []

    def pwritev(fd: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
        made.append(("write", offset, flags))
        return pwritev_of_the_system(fd, buffers, offset, flags)

    pwritev_of_the_system = os.pwritev
    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(system, "_sync", lambda fd: made.append(("sync",)))
    return made


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


BUFFERS = [b"abc", b"", b"defgh"]


def test_a_few_bytes_are_written_and_synced_in_one_call(file: int, calls: list[tuple[Any, ...]]) -> None:
    assert Disk().write_durably(file, BUFFERS, 5)
    assert os.pread(file, 100, 0) == bytes(5) + b"abcdefgh"
    assert calls == [("write", 5, os.RWF_DSYNC)]


def test_a_short_write_is_written_whole_and_synced(file: int, calls: list[tuple[Any, ...]]) -> None:
    assert SlowWriter(3).write_durably(file, BUFFERS, 5)
    assert os.pread(file, 100, 0) == bytes(5) + b"abcdefgh"
    assert calls == [("write", 5, os.RWF_DSYNC), ("write", 5, 0), ("write", 8, 0), ("write", 11, 0), ("sync",)]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_where_the_system_has_no_such_call_nothing_is_written(
    file: int, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "pwritev", raising(number))
    assert not Disk().write_durably(file, BUFFERS, 5)


def test_a_write_that_fails_is_not_tried_in_another_way(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwritev", raising(errno.EIO))
    with pytest.raises(OSError) as raised:
        Disk().write_durably(file, BUFFERS, 5)
    assert raised.value.errno == errno.EIO


def raising(number: int) -> Callable[..., int]:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize(
    ("kind", "is_known"),
    [("ext4", True), ("xfs", True), ("tmpfs", True), ("9p", False), ("fuse.sshfs", False), ("overlay", False)],
)
def test_the_call_is_tried_on_file_systems_that_are_known_to_sync_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_known: bool
) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"20 1 0:0 / /proc rw - proc proc rw\n"
        f"27 1 {os.major(device)}:{os.minor(device)} / / rw,relatime shared:1 - {kind} /dev/vda rw\n"
    )
    monkeypatch.setattr(system, "_MOUNTS", mounts)
    system._file_system.cache_clear()
    assert Disk().writes_durably(tmp_path) == is_known
    system._file_system.cache_clear()
    mounts.unlink()
    assert not Disk().writes_durably(tmp_path)
    system._file_system.cache_clear()


def test_free_space_is_asked_for_every_50_ms_while_there_is_plenty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, now = 2 << 30, 100.0
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1))
    monkeypatch.setattr(system, "time", SimpleNamespace(monotonic=lambda: now))
    disk = Disk()
    assert disk.free_bytes(tmp_path) == 2 << 30
    free = 1 << 30
    assert disk.free_bytes(tmp_path) == 2 << 30
    now += 0.06
    assert disk.free_bytes(tmp_path) == 1 << 30
    free = 1000  # a GiB is not plenty: each call asks
    assert disk.free_bytes(tmp_path) == 1000
    free = 3 << 30
    assert disk.free_bytes(tmp_path) == 3 << 30
    free = 2 << 30
    assert disk.free_bytes(tmp_path / "other") == 2 << 30


def test_allocated_space_is_there_and_reads_as_zeros(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        Disk().allocate(fd, 10_000)
        assert os.pread(fd, 20_000, 0) == bytes(10_000)
        assert os.fstat(fd).st_blocks * 512 >= 10_000
    finally:
        os.close(fd)
    assert Disk().free_bytes(tmp_path) > 0


def test_a_small_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "META.json"
    write_whole(path, b"one")
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_two_processes_write_at_once_is_that_of_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fsync, process = tmp_path / "1-9.places", os.fsync, os.getpid()

    def other_comes_between(file: int) -> None:
        fsync(file)
        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "getpid", lambda: process + 1)
        write_whole(path, b"the other's")
        monkeypatch.setattr(os, "getpid", lambda: process)

    monkeypatch.setattr(os, "fsync", other_comes_between)
    write_whole(path, b"one", b"'s")
    assert path.read_bytes() == b"one's"
    assert list(tmp_path.iterdir()) == [path]
