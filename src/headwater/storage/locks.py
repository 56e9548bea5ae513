"""The locks of a data directory: of whoever serves it, and between backups and whoever unlinks files."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..core.errors import StorageUnavailable
from .disk import private_opener

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
        raise StorageUnavailable(f"{directory / LOCK}: {error.strerror}") from None
    with file:
        hold(file, directory)
        yield
