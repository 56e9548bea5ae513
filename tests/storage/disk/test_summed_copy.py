"""Copies of files with their sums."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import google_crc32c
import pytest

from headwater.storage.disk import summed_copy
from headwater.storage.disk.summed_copy import FileSum, Syncs, copy_summed, sum_of


@pytest.mark.parametrize("size", [0, 1, 1000, 1001, 4096])
def test_the_sum_of_a_copy_is_that_of_all_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(summed_copy, "_PIECE_BYTES", 1000)
    content = os.urandom(size)
    (tmp_path / "a").write_bytes(content)
    expected = FileSum(size, google_crc32c.value(content))
    assert copy_summed(tmp_path / "a", tmp_path / "b") == expected == sum_of(tmp_path / "a")
    assert (tmp_path / "b").read_bytes() == content
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600


def test_what_was_never_written_at_the_end_is_left_out(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb") as file:
        file.write(b"x" * 5000)
        file.truncate(4_000_000)
    if (tmp_path / "a").stat().st_blocks * 512 > 1_000_000:
        pytest.skip("the file system has no holes")
    copied = copy_summed(tmp_path / "a", tmp_path / "b", without_hole=True)
    content = (tmp_path / "b").read_bytes()
    assert content.startswith(b"x" * 5000) and not content[5000:].strip(b"\0") and len(content) < 100_000
    assert copied == FileSum(len(content), google_crc32c.value(content))
    assert copy_summed(tmp_path / "a", tmp_path / "c").bytes == 4_000_000


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_that_does_not_tell_of_holes_has_its_files_copied_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    content = os.urandom(5000) + bytes(5000)
    (tmp_path / "a").write_bytes(content)
    seek = os.lseek

    def without_holes(descriptor: int, at: int, whence: int) -> int:
        if whence in (os.SEEK_DATA, os.SEEK_HOLE):
            raise OSError(number, os.strerror(number))
        return seek(descriptor, at, whence)

    monkeypatch.setattr(os, "lseek", without_holes)
    assert copy_summed(tmp_path / "a", tmp_path / "b", without_hole=True).bytes == 10_000
    assert (tmp_path / "b").read_bytes() == content


def test_files_are_durable_when_all_syncs_were_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def slow(descriptor: int) -> None:
        time.sleep(0.01)
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", slow)
    (tmp_path / "a").write_bytes(b"some bytes")
    with Syncs() as syncs:
        for number in range(40):
            copy_summed(tmp_path / "a", tmp_path / str(number), sync=syncs.soon)
        syncs.wait()
        assert sorted(synced) == sorted((tmp_path / str(number)).stat().st_ino for number in range(40))


def test_a_sync_that_fails_is_raised_by_the_wait_and_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a").write_bytes(b"some bytes")
    with Syncs() as syncs:
        monkeypatch.setattr(os, "fsync", failing)
        for number in range(40):
            copy_summed(tmp_path / "a", tmp_path / str(number), sync=syncs.soon)
        with pytest.raises(OSError, match="Input/output error"):
            syncs.wait()
    opened = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert not [path for path in opened if path.startswith(str(tmp_path))]
