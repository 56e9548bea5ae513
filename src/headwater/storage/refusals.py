"""What the operating system refuses, as errors of the core: the one table, for whatever the storage writes.

A frame is not among it: if writing or syncing one fails, nobody knows what the disk holds, and the process ends.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core.errors import DiskFull, EventLogError, StorageUnavailable

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The disk is full, or the server's part of it is."""
SMALL_BYTES = 4096
"""What a small file needs at least."""
_REMEDIES = {
    errno.EIO: "the disk is failing: look at it, and have a backup",
    errno.EROFS: "the disk is mounted read-only: it may be failing",
    errno.ENOMEM: "the system is out of memory, or of maps (vm.max_map_count)",
    errno.EMFILE: "raise the server's limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
}


def refusal_of(error: OSError | sqlite3.Error, path: Path, doing: str, needed: int = SMALL_BYTES) -> EventLogError:
    """The error of the core: DiskFull where there is no space, StorageUnavailable for all else.

    `doing` says what cannot be done (`the next segment cannot be made`); whoever asked is told, without the path.
    """
    if _is_without_space(error):
        return DiskFull(str(path), free_bytes_at(path), needed)
    problem, remedy = str(error), None
    if isinstance(error, OSError):
        problem, remedy = error.strerror or problem, _REMEDIES.get(error.errno or 0)
    reason = f"{doing}: {problem}" + (f"; {remedy}" if remedy else "")
    return StorageUnavailable(f"{path}: {reason}", reason=reason)


def _is_without_space(error: OSError | sqlite3.Error) -> bool:
    if isinstance(error, OSError):
        return error.errno in NO_SPACE
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


@contextmanager
def refusing(path: Path, doing: str) -> Iterator[None]:
    """What the operating system refuses within becomes an error of the core. See `refusal_of`."""
    try:
        yield
    except OSError as error:
        raise refusal_of(error, path, doing) from error


def free_bytes_at(path: Path) -> int:
    """What is free on the file system of a file or directory that is, or was to be, there; 0 if nobody can tell."""
    try:
        return shutil.disk_usage(path if path.is_dir() else path.parent).free
    except OSError:
        return 0
