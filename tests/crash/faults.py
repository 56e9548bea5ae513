"""Disks that fail in the way a test asks for."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from headwater.storage.disk.background_writer import BackgroundWriter
from headwater.storage.disk.system import Disk

from ..storage.disks import ThreadWriter


class FaultyDisk(Disk):
    """The real disk, until a given operation; from then on that operation fails."""

    def __init__(self, *, syncs: int | None = None, writes: int | None = None, torn_bytes: int = 0) -> None:
        """`syncs` and `writes`: how many succeed. Of the write that fails, the first `torn_bytes` arrive."""
        self._syncs, self._writes, self._torn_bytes = syncs, writes, torn_bytes
        self.free: int | None = None
        """What the disk says is free, if not the truth."""
        self.can_allocate = True

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        if self._writes is not None:
            if self._writes == 0:
                os.pwrite(fd, b"".join(buffers)[: self._torn_bytes], offset)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._writes -= 1
        super().write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        if self._syncs is not None:
            if self._syncs == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._syncs -= 1
        super().sync(fd)

    def write_durably(self, fd: int, buffers: Sequence[bytes], offset: int) -> bool:
        if 0 in (self._writes, self._syncs):  # the call fails as the one would, or as the other
            self.write(fd, buffers, offset)
            self.sync(fd)
        self._writes = None if self._writes is None else self._writes - 1
        self._syncs = None if self._syncs is None else self._syncs - 1
        return super().write_durably(fd, buffers, offset)

    def background_writer(self) -> BackgroundWriter:
        return ThreadWriter(self)

    def allocate(self, fd: int, size: int) -> None:
        if not self.can_allocate:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(fd, size)

    def free_bytes(self, directory: Path) -> int:
        return super().free_bytes(directory) if self.free is None else self.free


class ShortWritingDisk(Disk):
    """Writes a few bytes at a time, as a system call may."""

    def _write_once(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int, flags: int = 0) -> int:
        return os.pwrite(fd, b"".join(buffers)[:97], offset)


def fault_disk(fault: str) -> Disk:
    """The disk of a fault given on a command line: `sync:20`, `write:20`, `write:20:100`, or empty."""
    operation, *amounts = fault.split(":")
    if operation == "sync":
        return FaultyDisk(syncs=int(amounts[0]))
    if operation == "write":
        return FaultyDisk(writes=int(amounts[0]), torn_bytes=int((amounts[1:] or ["0"])[0]))
    return Disk()
