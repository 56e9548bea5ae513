"""The locks of a data directory: that of its server, and that between backups and the unlinking of files.

A lock is on a file, not on its name. If LOCK is removed, or its directory is renamed, another process can lock a new
file and open the same data. So the process that holds the lock compares the path with its file before each write, and
again after each sync, before anything is answered.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ...core.errors import StorageUnavailable
from .system import Disk, private_opener, refusal_of

logger = logging.getLogger("headwater.storage")

LOCK = "LOCK"
"""Held by the one process that serves the directory; its pid is in it, for people."""
BACKUP_LOCK = "BACKUP.lock"
"""Held shared by a backup; files are unlinked only while nobody holds it."""


class NoBackup:
    """While held, no backup begins; enters with False where one is running, or where nobody can tell."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / BACKUP_LOCK
        self._file: IO[str] | None = None

    def __enter__(self) -> bool:
        try:
            self._file = open(self._path, "a", encoding="ascii", opener=private_opener)
        except OSError as error:
            logger.warning("%s: %s; nothing is unlinked until it can be opened", self._path, error.strerror)
            return False
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


class DirectoryUnavailable(StorageUnavailable):
    """A data directory that this process cannot have: another one has it, or it cannot be written."""


class InUse(DirectoryUnavailable):
    """Another process has the data directory."""


class LockLost(StorageUnavailable):
    """LOCK is gone, or another file, while this process held it: another process may have the data directory."""

    def __init__(self, path: str, problem: str) -> None:
        """`path` is that of LOCK; `problem` says what is wrong with it."""
        super().__init__(
            f"{path} {problem} while this process held it: another process may use the data directory, so nothing more "
            "is written to it; find out what removed the file, and start one server on the directory",
            reason="the server has lost the lock of its data directory and writes nothing more",
        )


class LockLostMeanwhile(LockLost):
    """The lock was lost during a write. It is not known whether that write is kept."""


class HeldLock:
    """The lock of a data directory, held by this process. Any thread may ask whether it still is."""

    def __init__(self, directory: Path, file: IO[str]) -> None:
        """`file` is LOCK, open and locked."""
        self._file, self._path = file, os.path.abspath(directory / LOCK)
        found = os.fstat(file.fileno())
        self._identity = found.st_dev, found.st_ino
        self._problem: str | None = None
        self._losing = threading.Lock()
        self._on_lost: Callable[[LockLost], None] | None = None

    @property
    def lost(self) -> LockLost | None:
        """Why it is not held any more, as of the last look; None if it is held."""
        return None if self._problem is None else LockLost(self._path, self._problem)

    def is_held(self) -> bool:
        """Look whether LOCK is still the file that this process has locked. If not, that is final, and is logged."""
        if self._problem is not None:
            return False
        if (problem := self.problem()) is None:
            return True
        self._lose(problem)
        return False

    def check(self) -> None:
        """As `is_held`, before something is written. Raises LockLost."""
        if not self.is_held():
            raise LockLost(self._path, self._problem or "")

    def check_written(self) -> None:
        """As `is_held`, after something was written. Raises LockLostMeanwhile."""
        if not self.is_held():
            raise LockLostMeanwhile(self._path, self._problem or "")

    def problem(self) -> str | None:
        """Why the path of LOCK is not that of the locked file at this moment; None if it is."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return "was removed, or its directory was removed or renamed,"
        except OSError as error:
            return f"cannot be found any more ({error.strerror})"
        return None if (found.st_dev, found.st_ino) == self._identity else "was replaced by another file"

    def when_lost(self, on_lost: Callable[[LockLost], None]) -> None:
        """Call that once, in the thread that finds the lock lost; at once if it is lost already."""
        with self._losing:
            self._on_lost = on_lost
            lost = self.lost
        if lost is not None:
            on_lost(lost)

    def close(self) -> None:
        """Give the lock back."""
        if not self._file.closed:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # a forked child has the file open too
            self._file.close()

    def _lose(self, problem: str) -> None:
        with self._losing:
            if self._problem is not None:
                return
            self._problem = problem
            on_lost = self._on_lost
        lost = LockLost(self._path, problem)
        logger.error("%s", lost)
        if on_lost is not None:
            on_lost(lost)


class OwnedDisk(Disk):
    """A disk that writes only while a lock is held: whatever writes frames through it need not ask."""

    def __init__(self, disk: Disk, lock: HeldLock) -> None:
        self._disk, self._lock = disk, lock

    @property
    def refusal(self) -> StorageUnavailable | None:
        return self._lock.lost

    def check(self) -> None:
        """See Disk. Raises LockLost, as all that follow do before they change anything."""
        self._lock.check()

    def write(self, fd: int, buffers: Sequence[bytes], offset: int) -> None:
        self._lock.check()
        self._disk.write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        """See Disk. Raises LockLostMeanwhile: it is durable, but perhaps not kept."""
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


def hold(file: IO[str], directory: Path) -> None:
    """Take the lock of a data directory, whose file this is; closes it where that fails.

    Raises InUse.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise InUse(
            f"{directory}: in use by another process (pid {holder}): a data directory belongs to one process; stop it, "
            "or run one server (`headwater serve`) and let every program use it through headwater.client"
        ) from None


@contextmanager
def unserved(directory: Path) -> Iterator[None]:
    """While held, no process serves the directory. Writes nothing: it may be on a medium that takes none.

    A directory that was never served, such as a backup, has no lock, and gets none. Raises StorageUnavailable.
    """
    try:
        file = open(directory / LOCK, encoding="ascii")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise refusal_of(error, directory / LOCK, "the lock cannot be read") from None
    with file:
        hold(file, directory)
        yield
