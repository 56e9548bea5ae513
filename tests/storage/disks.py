"""Disks that fail, on purpose, where real ones do."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path

from headwater.storage.disk import Disk


class SlowWriter(Disk):
    """Writes at most so many bytes at a time."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max

    def _write_once(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        return super()._write_once(fd, [b"".join(buffers)[: self.bytes_max]], offset)


class FullDisk(Disk):
    """Has so many bytes free; allocation takes them, and fails with ENOSPC."""

    def __init__(self, free: int = 1 << 40) -> None:
        self.free = free
        self.refuses_allocation = False

    def allocate(self, fd: int, size: int) -> None:
        if self.refuses_allocation:
            raise OSError(errno.ENOSPC, "no space left on device")
        super().allocate(fd, size)

    def free_bytes(self, directory: Path) -> int:
        return self.free


class BrokenDisk(Disk):
    """Fails with EIO where it is told to, and counts its syncs."""

    def __init__(self) -> None:
        self.fails_write = self.fails_sync = False
        self.syncs = 0

    def sync(self, fd: int) -> None:
        if self.fails_sync:
            raise OSError(errno.EIO, "input/output error")
        self.syncs += 1
        super().sync(fd)

    def _write_once(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
        if self.fails_write:
            raise OSError(errno.EIO, "input/output error")
        return super()._write_once(fd, buffers, offset)


class HeldDisk(Disk):
    """Does not finish a sync before it is let go."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.is_syncing = threading.Event()

    def sync(self, fd: int) -> None:
        self.is_syncing.set()
        assert self.may_sync.wait(30)
        super().sync(fd)
