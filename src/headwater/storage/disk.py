"""What the storage asks of the operating system, behind one small seam, so that tests can make it fail.

Nothing here knows what a log is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_IOV_MAX = 1024

if sys.platform == "darwin":  # fdatasync does not reach the platter there
    import fcntl

    def _sync(fd: int) -> None:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
else:
    _sync = os.fdatasync


class Disk:
    """The real disk. All offsets and sizes are in bytes."""

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        """Write all buffers, one after the other, from that offset on. Raises OSError."""
        for start in range(0, len(buffers), _IOV_MAX):
            offset = self._write_all(fd, buffers[start : start + _IOV_MAX], offset)

    def sync(self, fd: int) -> None:
        """What was written is durable when this returns. Raises OSError; never to be retried after that."""
        _sync(fd)

    def allocate(self, fd: int, size: int) -> None:
        """Make the file that large, with blocks behind it, reading as zeros. Raises OSError (ENOSPC)."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            os.ftruncate(fd, size)

    def free_bytes(self, directory: Path) -> int:
        """What an ordinary process may still fill there."""
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize

    def _write_all(self, fd: int, buffers: Sequence[bytes], offset: int) -> int:
        left = sum(map(len, buffers))
        written = self._write_once(fd, buffers, offset)
        if written < left:  # a short write: rare, so a copy does not matter
            rest = memoryview(b"".join(buffers))
            while written < left:
                written += self._write_once(fd, [rest[written:]], offset + written)
        return offset + left

    def _write_once(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        return os.pwritev(fd, buffers, offset)


def sync_directory(directory: Path) -> None:
    """Make creations, renames and removals in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: Path, mode: int = 0o777) -> None:
    """Make a directory durably, with those above it that are missing (of the usual mode); it may be there already."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode, exist_ok=True)
    sync_directory(path.parent)


def write_whole(path: Path, *parts: bytes) -> Path:
    """Write a file durably under its name, or not at all: a crash leaves the old one, or none, or the new one whole.

    Two processes may do so at once, as an indexing process whose server was killed does beside the one of the next.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)
    return path
