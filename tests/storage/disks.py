"""Disks that fail, on purpose, where real ones do."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.storage.disk.background_writer import BackgroundWriter
from headwater.storage.disk.free_space import TRIAL
from headwater.storage.disk.system import Disk
from headwater.storage.segments.segment_log import PREPARED

_FLOCK = fcntl.flock


def without_directory_locks(file: Any, operation: int) -> None:
    """`flock` as of NFS, to be put in its place: it locks files, but no directory."""
    if isinstance(file, int) and stat.S_ISDIR(os.fstat(file).st_mode):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    _FLOCK(file, operation)


class ThreadWriter(BackgroundWriter):
    """Writes with the methods of a disk, so that its faults are those of an event loop's commits too."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__()

    def _start(self) -> None:
        pass

    def begin(self, fd: int, content: bytes, offset: int) -> None:
        threading.Thread(target=self._write, args=(fd, content, offset), name="behind").start()

    def _write(self, fd: int, content: bytes, offset: int) -> None:
        failure = 0
        try:
            if not self._disk.write_durably(fd, [content], offset):
                self._disk.write(fd, [content], offset)
                self._disk.sync(fd)
        except OSError as error:
            failure = error.errno or errno.EIO
        os.eventfd_write(self.ended, 1 + failure)

    def _end(self) -> None:
        pass


class BehindDisk(Disk):
    """Writes behind an event loop. Does not finish a write before it is let go, and fails it if told to."""

    def __init__(self) -> None:
        self.may_write = threading.Event()
        self.may_write.set()
        self.is_writing = threading.Event()
        self.failure = 0
        self.free: int | None = None
        """What the disk says is free, if not the truth."""
        self.behind = 0
        """How many writes were begun behind an event loop."""

    def writes_durably(self, directory: Path) -> bool:
        return True

    def write_durably(self, fd: int, buffers: Sequence[bytes], offset: int) -> bool:
        self.behind += threading.current_thread().name == "behind"
        self.is_writing.set()
        assert self.may_write.wait(30)
        if self.failure:
            raise OSError(self.failure, os.strerror(self.failure))
        return super().write_durably(fd, buffers, offset)

    def free_bytes(self, directory: Path) -> int:
        return super().free_bytes(directory) if self.free is None else self.free

    def background_writer(self) -> BackgroundWriter:
        return ThreadWriter(self)


class SlowWriter(Disk):
    """Writes at most so many bytes at a time."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max

    def _write_once(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int, flags: int = 0) -> int:
        return super()._write_once(fd, [b"".join(buffers)[: self.bytes_max]], offset, flags)


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


class FillingDisk(Disk):
    """Is full for as long as that file is there, as of others' doing."""

    def __init__(self, full_while: Path) -> None:
        self._full_while = full_while

    def allocate(self, fd: int, size: int) -> None:
        if self._full_while.exists():
            raise OSError(errno.ENOSPC, "no space left on device")
        super().allocate(fd, size)

    def free_bytes(self, directory: Path) -> int:
        return 0 if self._full_while.exists() else super().free_bytes(directory)


class SmallDisk(Disk):
    """Has so many bytes for what is allocated on it; a file given up gives its bytes back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.quota: int | None = None
        """What may be allocated at once, though more is free."""
        self._directories: set[Path] = set()

    def allocate(self, fd: int, size: int) -> None:
        more = size - os.fstat(fd).st_size
        if more > self._free() or (self.quota is not None and more > self.quota):
            raise OSError(errno.ENOSPC if self.quota is None else errno.EDQUOT, "no space left on device")
        super().allocate(fd, size)

    def free_bytes(self, directory: Path) -> int:
        self._directories.add(directory)
        return self._free()

    def size_bytes(self, directory: Path) -> int:
        return self.size

    def _free(self) -> int:
        used = 0
        for directory in self._directories:
            for path in directory.rglob("*"):
                if path.suffix == ".log" or path.name.startswith(PREPARED) or path.name == TRIAL:
                    with contextlib.suppress(FileNotFoundError):
                        used += path.stat().st_size
        return self.size - used


class RefusingDisk(Disk):
    """Fails an operation (`allocate`, `rename`, `free_bytes`) with an error, as long as it is told to."""

    def __init__(self) -> None:
        self.refuses: dict[str, int] = {}

    def allocate(self, fd: int, size: int) -> None:
        self._perhaps("allocate")
        super().allocate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        self._perhaps("rename")
        super().rename(source, target)

    def free_bytes(self, directory: Path) -> int:
        self._perhaps("free_bytes")
        return super().free_bytes(directory)

    def _perhaps(self, operation: str) -> None:
        if (number := self.refuses.get(operation)) is not None:
            raise OSError(number, os.strerror(number))


class OldFileSystem(Disk):
    """Cannot allocate, as NFS and some others cannot."""

    def _fallocate(self, fd: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


class BrokenDisk(Disk):
    """Fails with EIO where it is told to, and counts its syncs."""

    def __init__(self) -> None:
        self.fails_write = self.fails_sync = False
        self.syncs = 0

    def writes_durably(self, directory: Path) -> bool:
        return False  # so that each write and each sync is one of its own

    def sync(self, fd: int) -> None:
        if self.fails_sync:
            raise OSError(errno.EIO, "input/output error")
        self.syncs += 1
        super().sync(fd)

    def _write_once(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int, flags: int = 0) -> int:
        if self.fails_write:
            raise OSError(errno.EIO, "input/output error")
        return super()._write_once(fd, buffers, offset, flags)


class HeldDisk(Disk):
    """Does not finish a sync before it is let go."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.is_syncing = threading.Event()

    def writes_durably(self, directory: Path) -> bool:
        return False  # so that each write and each sync is one of its own

    def sync(self, fd: int) -> None:
        self.is_syncing.set()
        assert self.may_sync.wait(30)
        super().sync(fd)
