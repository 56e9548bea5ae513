"""What the storage asks of the operating system, behind one small seam, so that tests can make it fail.

Nothing here knows what a log is.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from ...core.errors import StorageUnavailable

_IOV_MAX = 1024
_NO_FALLOCATE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_ZEROS = bytes(1024 * 1024)
FILE_MODE = 0o600
"""Of files with secrets: for their owner alone, whatever the umask."""

if sys.platform == "darwin":  # fdatasync does not reach the platter there
    import fcntl

    def _sync(fd: int) -> None:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
else:
    _sync = os.fdatasync


class Disk:
    """The real disk. All offsets and sizes are in bytes."""

    @property
    def refusal(self) -> StorageUnavailable | None:
        """Why nothing can be written any more, as far as is known; None if it can."""
        return None

    def check(self) -> None:
        """Look whether files may be written. Raises StorageUnavailable: see `locks.OwnedDisk`."""

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        """Write all buffers, one after the other, from that offset on. Raises OSError."""
        for start in range(0, len(buffers), _IOV_MAX):
            offset = self._write_all(fd, buffers[start : start + _IOV_MAX], offset)

    def sync(self, fd: int) -> None:
        """What was written is durable when this returns. Raises OSError; never to be retried after that."""
        _sync(fd)

    def allocate(self, fd: int, size: int) -> None:
        """Make the file that large, with blocks behind it, reading as zeros. Raises OSError (ENOSPC).

        A file system that cannot do so at once gets the zeros written.
        """
        try:
            self._fallocate(fd, size)
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise
            for start in range(os.fstat(fd).st_size, size, len(_ZEROS)):
                self._write_all(fd, [_ZEROS[: size - start]], start)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name; what had that name is gone. Raises OSError."""
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file one name more. Raises OSError: there is no such file, or no way to do it."""
        os.link(source, target)

    def free_bytes(self, directory: Path) -> int:
        """What an ordinary process may still fill there."""
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize

    def size_bytes(self, directory: Path) -> int:
        """How large the file system is there."""
        found = os.statvfs(directory)
        return found.f_blocks * found.f_frsize

    def _fallocate(self, fd: int, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            os.ftruncate(fd, size)

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


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=private_opener)`: whatever is opened so is its owner's alone from then on.

    What root makes belongs to whom the directory belongs, so that the server can use it: commands are run by root too.
    """
    descriptor = os.open(path, flags, FILE_MODE)
    make_private(descriptor, os.path.dirname(path) or "." if flags & os.O_CREAT else None)
    return descriptor


def make_private(descriptor: int, directory: str | Path | None) -> None:
    """Make an open file its owner's alone; of one of root's that is new in a directory, the owner is that one's."""
    found = os.fstat(descriptor)
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != FILE_MODE:
        os.fchmod(descriptor, FILE_MODE)
    if found.st_uid == 0 and directory is not None and (owner := owner_above(directory)) is not None:
        os.fchown(descriptor, *owner)


def owner_above(directory: str | Path) -> tuple[int, int] | None:
    """User and group to whom what root makes in a directory is to belong; None where it belongs to whoever makes it."""
    if os.geteuid() != 0:
        return None
    home = os.stat(directory)
    return (home.st_uid, home.st_gid) if home.st_uid else None


def write_whole(path: Path, *parts: bytes) -> Path:
    """Write a file durably under its name, or not at all: a crash leaves the old one, or none, or the new one whole.

    It is its owner's alone. Two processes may do so at once, as an indexing process whose server was killed does beside
    the one of the next.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb", opener=private_opener) as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)
    return path
