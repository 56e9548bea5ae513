"""The bytes of a file on disk, read into memory of this process piece by piece, without the page cache.

A cached page proves nothing about the disk, and a mapped page cannot be dropped. So files are read with O_DIRECT into
anonymous memory, which is aligned. If the file system refuses that or has no disk, the cache is read, and `is_direct`
is False. A file system that accepts O_DIRECT but reads its cache cannot be detected.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

PIECE_BYTES = 1024 * 1024
"""The number of bytes to read at once."""
_PAGE = 4096
"""The unit that every disk can read, and the alignment of O_DIRECT."""
_DIRECT = getattr(os, "O_DIRECT", 0)


class DiskImage:
    """One file; `fill` reads it into `content`. The caller closes it."""

    def __init__(self, path: Path) -> None:
        """Open the file without reading. Raises OSError."""
        self.path = path
        self._fd, self.is_direct = _opened(path)
        self.size = os.fstat(self._fd).st_size
        """The size in bytes at opening."""
        self.map = mmap.mmap(-1, max(_up(self.size), _PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.content = memoryview(self.map)[: self.size]
        """The whole file; zeros where it was not read yet, was dropped, or cannot be read."""
        self.filled = self._kept_from = 0
        self.bytes_read = 0
        self.unreadable = ""
        """The system's error for an unreadable page; empty if there was none."""

    def fill(self, upto: int) -> Iterator[None]:
        """Read at least up to that offset, one piece per step."""
        while self.filled < min(upto, self.size):
            self._read(self.filled, min(self.filled + PIECE_BYTES, len(self.map)))
            yield

    def drop(self, below: int) -> None:
        """Drop the bytes before that offset."""
        end = below // _PAGE * _PAGE
        if end - self._kept_from >= PIECE_BYTES:
            self.map.madvise(mmap.MADV_DONTNEED, self._kept_from, end - self._kept_from)
            self._kept_from = end

    def read_again(self, start: int) -> None:
        """Make the next `fill` read again from that offset on."""
        self.filled = min(self.filled, start // _PAGE * _PAGE)
        self._kept_from = min(self._kept_from, self.filled)

    def close(self) -> None:
        """Close the file; the content stays."""
        os.close(self._fd)

    def _read(self, start: int, end: int) -> None:
        at = start
        while at < min(end, self.size):
            try:
                size = os.preadv(self._fd, [memoryview(self.map)[at:end]], at)
            except OSError as error:
                if end - at > _PAGE:  # only unreadable pages remain empty
                    for page in range(at, end, _PAGE):
                        self._read(page, page + _PAGE)
                    return
                self.unreadable = error.strerror or str(error)
                break
            self.bytes_read += size
            if size < _PAGE:  # the end
                break
            at += size // _PAGE * _PAGE
        self.filled = end


def _opened(path: Path) -> tuple[int, bool]:
    if _DIRECT:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _DIRECT)
            return fd, not _is_in_memory(os.fstat(fd).st_dev)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    _drop_cached(fd)
    return fd, False


def drop_cached(path: Path) -> None:
    """Make the next read of a file come from its disk, unless it is mapped. Raises OSError."""
    with open(path, "rb") as file:
        _drop_cached(file.fileno())


def _drop_cached(fd: int) -> None:
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@lru_cache
def _is_in_memory(device: int) -> bool:
    """Whether a file system has no disk: tmpfs accepts O_DIRECT, but has only the mapped pages."""
    name = f" {os.major(device)}:{os.minor(device)} "
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    return any(name in mount and " - tmpfs " in mount for mount in mounts)


def _up(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
