"""Copies of files with their sums."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import google_crc32c
import pytest

from headwater.storage.disk import summed_copy
from headwater.storage.disk.summed_copy import FileSum, copy_summed, sum_of


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
