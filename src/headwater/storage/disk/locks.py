"""The lock of a data directory, and locking of directories.

A lock is on a file, not on its name. If LOCK is removed, another process can lock a new file with that name. So the
directory itself is locked too: no second process can open it, whatever happens to LOCK, even under another name (a bind
mount, a rename).

If the directory is renamed or removed, the process that holds it would write where no reader looks. So it compares the
path with its file before each write, and again after each sync, before it answers.

Some file systems (NFS) do not lock directories. There only LOCK counts, and a path that cannot be checked counts as
lost. Two machines that share a volume exclude each other only if its file system propagates locks.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from ...core.errors import StorageUnavailable
from .background_writer import BackgroundWriter
from .system import Disk, private_opener, refusal_of

logger = logging.getLogger("headwater.storage")

LOCK = "LOCK"
"""Held by the one process that serves the directory; it contains the pid, for operators."""


_NO_LOCKS = frozenset(
    {errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
)
"""The errors of file systems that do not lock directories. NFS needs a writable descriptor, which directories lack."""


def lock_itself(directory: Path, operation: int) -> int | None:
    """Lock a directory itself; returns the descriptor that holds the lock, or None if directories cannot be locked.

    `operation` is the flock operation. Raises OSError: BlockingIOError if another process has it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        os.close(descriptor)
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return descriptor


@contextmanager
def locked(path: Path, directory: Path, operation: int) -> Iterator[None]:
    """While held, that file and, if it exists, that directory are locked. Removing the file frees nothing.

    Raises OSError: BlockingIOError if another process has one of them.
    """
    with ExitStack() as held:
        file = held.enter_context(open(path, "a", encoding="ascii", opener=private_opener))
        fcntl.flock(file, operation)
        held.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a forked child has it open too
        with suppress(FileNotFoundError):
            if (descriptor := lock_itself(directory, operation)) is not None:
                held.callback(_unlock, descriptor)
        yield


def _unlock(descriptor: int) -> None:
    """Release the lock of a directory, even if a forked child has the descriptor too."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


class DirectoryUnavailable(StorageUnavailable):
    """This process cannot have the data directory: another one has it, or it is not writable."""


class InUse(DirectoryUnavailable):
    """Another process has the data directory."""


class LockLost(StorageUnavailable):
    """LOCK was removed or replaced while this process held it: another process may have the data directory."""

    def __init__(self, path: str, problem: str) -> None:
        """`path` is the path of LOCK; `problem` says what is wrong with it."""
        super().__init__(
            f"{path} {problem} while this process held it: another process may use the data directory, so "
            "writing has stopped; find out what removed the file and start one server on the directory",
            reason="the server lost the lock of its data directory and has stopped writing",
        )


class LockUnseen(StorageUnavailable):
    """LOCK cannot be checked now, so nothing is written; whether its directory still exists is unknown."""

    def __init__(self, path: str, problem: str) -> None:
        """`path` is the path of LOCK; `problem` is the system's error."""
        super().__init__(
            f"{path} cannot be checked ({problem}): writing has stopped until it can; check the disk and the "
            "permissions of the parent directories",
            reason=f"cannot check the lock of the data directory: {problem}",
        )
        self.problem = problem


class LockLostMeanwhile(LockLost):
    """The lock was lost during a write, so the outcome of the write is unknown."""


class HeldLock:
    """The lock of a data directory, held by this process. Safe to call from any thread."""

    def __init__(self, directory: Path, file: IO[str], descriptor: int | None) -> None:
        """`file` is LOCK, open and locked; `descriptor` is the locked directory, if directories can be locked."""
        self._file, self._path, self._descriptor = file, os.path.abspath(directory / LOCK), descriptor
        found = os.fstat(file.fileno())
        self._identity = found.st_dev, found.st_ino
        self.problem_found: str | None = None
        """Why it was no longer held at the last check; None if it was held."""
        self._losing = threading.Lock()
        self._on_lost: Callable[[LockLost], None] | None = None
        if descriptor is None:
            problem = "%s: its file system cannot lock directories, so only the lock file protects this one"
            logger.warning(problem, self._path)

    @property
    def lost(self) -> LockLost | None:
        """The error for that; None if it was held."""
        return None if self.problem_found is None else LockLost(self._path, self.problem_found)

    def is_held(self) -> bool:
        """Check that LOCK is still the file that this process has locked. If not, that is final and logged.

        If it cannot be checked, the lock of the directory counts.
        """
        try:
            self.check_written()
        except LockLost:
            return False
        return True

    def check(self) -> None:
        """As `is_held`, before a write. Raises LockLost, LockUnseen."""
        try:
            problem = self.problem_found or self.problem()
        except LockUnseen as error:
            if self._descriptor is not None:
                raise
            problem = f"can no longer be checked ({error.problem})"
        if problem is not None:
            self._lose(problem)
            raise LockLost(self._path, problem)

    def check_written(self) -> None:
        """As `is_held`, after a write. Raises LockLostMeanwhile."""
        try:
            self.check()
        except LockUnseen:
            pass
        except LockLost:
            raise LockLostMeanwhile(self._path, self.problem_found or "") from None

    def problem(self) -> str | None:
        """Why LOCK's path does not currently lead to the locked file; None if it does. Raises LockUnseen."""
        try:
            found = os.stat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return "was removed, or its directory was removed or renamed,"
        except OSError as error:
            raise LockUnseen(self._path, error.strerror or str(error)) from None
        return None if (found.st_dev, found.st_ino) == self._identity else "was replaced by another file"

    def when_lost(self, on_lost: Callable[[LockLost], None]) -> None:
        """Set a callback, called once on the thread that finds the lock lost; at once if it is already lost."""
        with self._losing:
            self._on_lost = on_lost
            lost = self.lost
        if lost is not None:
            on_lost(lost)

    def close(self) -> None:
        """Release the lock."""
        if not self._file.closed:
            if self._descriptor is not None:
                _unlock(self._descriptor)
            fcntl.flock(self._file, fcntl.LOCK_UN)  # a forked child has the file open too
            self._file.close()

    def _lose(self, problem: str) -> None:
        with self._losing:
            if self.problem_found is not None:
                return
            self.problem_found = problem
            on_lost = self._on_lost
        lost = LockLost(self._path, problem)
        logger.error("the lock of the data directory is lost: %s", lost)
        if on_lost is not None:
            on_lost(lost)


class OwnedDisk(Disk):
    """A disk that writes only while a lock is held, so that its users need not check."""

    def __init__(self, disk: Disk, lock: HeldLock) -> None:
        self._disk, self._lock = disk, lock
        self.check = lock.check  # type: ignore[method-assign]
        """See Disk. Raises LockLost, like the methods below before they change anything."""
        self.check_written = lock.check_written  # type: ignore[method-assign]
        """See Disk. Raises LockLostMeanwhile."""

    @property
    def refusal(self) -> StorageUnavailable | None:
        return None if self._lock.problem_found is None else self._lock.lost

    def background_writer(self) -> BackgroundWriter | None:
        return self._disk.background_writer()

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        self._lock.check()
        self._disk.write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        """See Disk. Raises LockLostMeanwhile if the write is durable, but may not be kept."""
        self._disk.sync(fd)
        self._lock.check_written()

    def writes_durably(self, directory: Path) -> bool:
        return self._disk.writes_durably(directory)

    def write_durably(self, fd: int, buffers: Sequence[bytes], offset: int) -> bool:
        """See Disk, and `sync`."""
        self._lock.check()
        done = self._disk.write_durably(fd, buffers, offset)
        self._lock.check_written()
        return done

    def allocate(self, fd: int, size: int) -> None:
        self._lock.check()
        self._disk.allocate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        self._lock.check()
        self._disk.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._lock.check()
        self._disk.link(source, target)

    def free_bytes(self, directory: Path) -> int:
        return self._disk.free_bytes(directory)

    def size_bytes(self, directory: Path) -> int:
        return self._disk.size_bytes(directory)


def hold_itself(directory: Path, operation: int = fcntl.LOCK_EX) -> int | None:
    """Lock a data directory, whatever the state of its LOCK; see `lock_itself`. Raises InUse, OSError."""
    try:
        return lock_itself(directory, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUse(
            f"{directory}: in use by another process, although its {LOCK} is free: that file was removed, or the "
            "directory has a second name; stop the other process (`fuser -v` on the directory shows it)"
        ) from None


def hold(file: IO[str], directory: Path) -> None:
    """Take the lock of a data directory with this LOCK file; closes the file on failure.

    Raises InUse; DirectoryUnavailable, with the system's error, if it cannot be locked.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise InUse(
            f"{directory}: in use by another process (pid {holder}): a data directory belongs to one process; stop it, "
            "or run one server (`headwater serve`) and have all programs use headwater.client"
        ) from None
    except OSError as error:
        file.close()
        remedy = "; mount its file system with locking, or use a local disk" if error.errno in _NO_LOCKS else ""
        raise DirectoryUnavailable(f"{directory / LOCK}: {error.strerror}; it cannot be locked{remedy}") from None


@contextmanager
def unserved(directory: Path) -> Iterator[None]:
    """While held, no process serves the directory. Writes nothing: the medium may be read-only.

    A directory never served, such as a backup, has no LOCK and gets none; a missing one is not created.
    Raises StorageUnavailable.
    """
    with ExitStack() as held:
        try:
            with suppress(FileNotFoundError):
                hold(held.enter_context(open(directory / LOCK, encoding="ascii")), directory)
            with suppress(FileNotFoundError):  # it may not exist yet
                if (descriptor := hold_itself(directory, fcntl.LOCK_SH)) is not None:
                    held.callback(_unlock, descriptor)
        except OSError as error:
            raise refusal_of(error, directory / LOCK, "the lock cannot be read") from None
        yield
