"""The operating system calls of the storage, behind a small interface, so that tests can make them fail.

Nothing here knows about logs.

A data directory contains password hashes, keys of users and the seeds of checksums. So its files are 0600 and its
directories 0700, whatever the umask.

`refusal_of` maps errors of the system to errors of the core. It is not used for frames: if writing or syncing one
fails, the content of the disk is unknown, and the process ends.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from ...core.errors import DiskFull, EventLogError, StorageUnavailable
from .background_writer import HAS_WRITER, BackgroundWriter

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk or the server's quota is full."""
SMALL_BYTES = 4096
"""The minimum space that a small file occupies."""
_REMEDIES = {
    errno.EIO: "the disk is failing: check it and make a backup",
    errno.EROFS: "the disk is mounted read-only: it may be failing",
    errno.ENOMEM: "the system is out of memory, or of maps (vm.max_map_count)",
    errno.EMFILE: "raise the server's limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
}
_IOV_MAX = 1024
_NO_FALLOCATE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_ZEROS = bytes(1024 * 1024)
_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
_MOUNTS = Path("/proc/self/mountinfo")
_HEEDS_DSYNC = frozenset({"ext4", "tmpfs", "xfs"})
"""The kernel accepts the flag for all file systems, but others may silently ignore it. A tmpfs is volatile anyway."""
_PLENTY_BYTES, _PLENTY_S = 1024 * 1024 * 1024, 0.05
_NO_DSYNC = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
FILE_MODE = 0o600
"""The mode of files with secrets: accessible only to their owner, whatever the umask."""
DIRECTORY_MODE = 0o700
_OTHERS = 0o077

if sys.platform == "darwin":  # fdatasync does not reach the medium there
    import fcntl

    def _sync(fd: int) -> None:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
else:
    _sync = os.fdatasync


class Disk:
    """The real disk. All offsets and sizes are in bytes."""

    _plenty: tuple[Path, float, int] | None = None
    """The directory that last had more than _PLENTY_BYTES free, the time, and the number of free bytes."""

    @property
    def refusal(self) -> StorageUnavailable | None:
        """Why nothing can be written, as far as known; None if writing works."""
        return None

    def check(self) -> None:
        """Check that files may be written. Raises StorageUnavailable: see `locks.OwnedDisk`."""

    def check_written(self) -> None:
        """Check that a finished write will be kept. Raises StorageUnavailable: see `locks.OwnedDisk`."""

    def background_writer(self) -> BackgroundWriter | None:
        """A new thread that does `write_durably`; None if only Python could. Raises OSError.

        A disk with a `write_durably` of its own needs a writer of its own.
        """
        return BackgroundWriter() if HAS_WRITER and type(self) is Disk else None

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        """Write all buffers, one after the other, from that offset on. Raises OSError."""
        for start in range(0, len(buffers), _IOV_MAX):
            offset = self._write_all(fd, buffers[start : start + _IOV_MAX], offset)

    def sync(self, fd: int) -> None:
        """Make everything written durable. Raises OSError; never retry after that."""
        _sync(fd)

    def writes_durably(self, directory: Path) -> bool:
        """Whether `write_durably` may be tried in that directory. Raises OSError."""
        return bool(_DSYNC) and _file_system(os.stat(directory).st_dev) in _HEEDS_DSYNC

    def write_durably(self, fd: int, buffers: Sequence[bytes], offset: int) -> bool:
        """`write` and `sync` a few bytes in one call; False, with nothing written, if the system cannot.

        Only these bytes become durable, not earlier writes. Raises OSError; never retry after that.
        """
        try:
            written = self._write_once(fd, buffers, offset, _DSYNC)
        except OSError as error:
            if error.errno not in _NO_DSYNC:
                raise
            return False
        if written < sum(map(len, buffers)):
            self.write(fd, buffers, offset)
            self.sync(fd)
        return True

    def allocate(self, fd: int, size: int) -> None:
        """Extend the file to that size with allocated blocks that read as zeros. Raises OSError (ENOSPC).

        If the file system cannot allocate, zeros are written.
        """
        try:
            self._fallocate(fd, size)
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise
            for start in range(os.fstat(fd).st_size, size, len(_ZEROS)):
                self._write_all(fd, [_ZEROS[: size - start]], start)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file, replacing any existing target. Raises OSError."""
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Add a hard link to a file. Raises OSError if there is no such file, or links are not supported."""
        os.link(source, target)

    def free_bytes(self, directory: Path) -> int:
        """The bytes free for an ordinary process; at most 50 ms old if more than a GiB.

        Each commit calls this, and the system call releases the interpreter lock.
        """
        now = time.monotonic()
        if (plenty := self._plenty) is not None and plenty[0] is directory and now - plenty[1] < _PLENTY_S:
            return plenty[2]
        found = os.statvfs(directory)
        free = found.f_bavail * found.f_frsize
        self._plenty = (directory, now, free) if free > _PLENTY_BYTES else None
        return free

    def size_bytes(self, directory: Path) -> int:
        """The size of the directory's file system."""
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

    def _write_once(self, fd: int, buffers: Sequence[bytes | memoryview], offset: int, flags: int = 0) -> int:
        return os.pwritev(fd, buffers, offset, flags)


@lru_cache(64)
def _file_system(device: int) -> str:
    """The type of the file system on a device; empty if unknown."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = _MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(" - ")[2].split()[0] for line in mounts if line.split()[2] == number), "")


def sync_directory(directory: Path) -> None:
    """Make creations, renames and removals in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(directory: Path) -> None:
    """Make everything below a directory durable, and its names. Raises OSError."""
    for path in (directory, *directory.rglob("*")):
        if path.is_dir():
            sync_directory(path)
        elif path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=private_opener)`: the opened file becomes accessible only to its owner.

    Files created by root get the directory's owner, so that the server can use them when root runs a command.
    """
    descriptor = os.open(path, flags, FILE_MODE)
    make_private(descriptor, os.path.dirname(path) or "." if flags & os.O_CREAT else None)
    return descriptor


def make_private(descriptor: int, directory: str | Path | None) -> None:
    """Make an open file private to its owner; a new file of root gets the owner of `directory`."""
    found = os.fstat(descriptor)
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != FILE_MODE:
        os.fchmod(descriptor, FILE_MODE)
    if found.st_uid == 0 and directory is not None and (owner := owner_above(directory)) is not None:
        os.fchown(descriptor, *owner)


def owner_above(directory: str | Path) -> tuple[int, int] | None:
    """The user and group for files that root creates in a directory; None to keep the creator."""
    if os.geteuid() != 0:
        return None
    home = os.stat(directory)
    return (home.st_uid, home.st_gid) if home.st_uid else None


def write_whole(path: Path, *parts: bytes) -> Path:
    """Durably and atomically write a file: a crash leaves the old one, none, or the complete new one.

    It is private to its owner. Two processes may do so at once, such as the indexing processes of a killed server and
    of the next one.
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


logger = logging.getLogger("headwater.storage")


BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The id of the current machine boot; empty if unknown."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


def make_file(path: Path) -> None:
    """Create an empty file if there is none. Raises OSError."""
    os.close(private_opener(str(path), os.O_CREAT | os.O_RDWR))


def make_directory(path: Path) -> None:
    """Durably create a directory and missing parents; an existing one stays unchanged. Raises OSError."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    path.chmod(DIRECTORY_MODE)  # the umask may have reduced its owner's rights
    if (owner := owner_above(path.parent)) is not None:
        os.chown(path, *owner)
    sync_directory(path.parent)


def tighten(path: Path) -> int:
    """Remove other users' rights from a file or directory; returns its previous mode if others had rights, or 0.

    A directory with the setgid bit was opened to a group on purpose and stays unchanged. A warning is logged for it,
    and for a path whose mode this process may not change. Files created in it are private.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _OTHERS and mode & stat.S_ISGID and path.is_dir():
            problem = (
                "%s: others have access to it (mode %04o), kept because of its setgid bit; files in it are private"
            )
            logger.warning(problem, path, mode)
        elif mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
            return mode
    except FileNotFoundError:
        pass  # it will be created with the right mode
    except OSError as error:
        wanted = mode & ~_OTHERS
        problem = "%s: others have access to it (mode %04o): %s; it contains secrets, set it to %04o"
        logger.warning(problem, path, mode, error.strerror, wanted)
    return 0


def refusal_of(error: OSError | sqlite3.Error, path: Path, doing: str, needed: int = SMALL_BYTES) -> EventLogError:
    """The error of the core: DiskFull if there is no space, otherwise StorageUnavailable.

    `doing` says what failed (`the next segment cannot be made`); clients see it, without the path.
    """
    if is_without_space(error):
        return DiskFull(str(path), free_bytes_at(path), needed, has_inodes=has_inodes(path))
    problem, remedy = str(error), None
    if isinstance(error, OSError):
        problem, remedy = error.strerror or problem, _REMEDIES.get(error.errno or 0)
    reason = f"{doing}: {problem}" + (f"; {remedy}" if remedy else "")
    return StorageUnavailable(f"{path}: {reason}", reason=reason)


def is_without_space(error: OSError | sqlite3.Error) -> bool:
    """Whether the disk or the server's quota is full."""
    if isinstance(error, OSError):
        return error.errno in NO_SPACE
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


@contextmanager
def refusing(path: Path, doing: str) -> Iterator[None]:
    """Turn errors of the operating system in the block into errors of the core. See `refusal_of`."""
    try:
        yield
    except OSError as error:
        raise refusal_of(error, path, doing) from error


def has_inodes(path: Path) -> bool:
    """Whether the file system at that path can take one more file; True if unknown."""
    try:
        found = os.statvfs(path if path.is_dir() else path.parent)
    except OSError:
        return True
    return not found.f_files or found.f_favail > 0


def free_bytes_at(path: Path) -> int:
    """The free bytes of the file system at a path, which need not exist; 0 if unknown."""
    try:
        return shutil.disk_usage(path if path.is_dir() else path.parent).free
    except OSError:
        return 0
