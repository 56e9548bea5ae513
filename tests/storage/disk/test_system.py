"""The seam to the operating system: whole writes, whole small files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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
