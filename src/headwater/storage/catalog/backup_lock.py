"""The lock between backups of a data directory and the unlinking of its files."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..disk.locks import locked
from .directories import LOGS

logger = logging.getLogger("headwater.storage")

BACKUP_LOCK = "BACKUP.lock"
"""A backup holds a shared lock on this file and on the folder of the logs. Files are unlinked only while both are
free."""


@contextmanager
def backing_up(directory: Path) -> Iterator[None]:
    """While held, no file of a data directory is unlinked. Waits for unlinking in progress. Raises OSError."""
    with locked(directory / BACKUP_LOCK, directory / LOGS, fcntl.LOCK_SH):
        yield


class NoBackup:
    """While held, no backup begins. Yields False if a backup is running, or if this is unknown."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held = ExitStack()

    def __enter__(self) -> bool:
        operation = fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            self._held.enter_context(locked(self._directory / BACKUP_LOCK, self._directory / LOGS, operation))
        except BlockingIOError:
            return False
        except OSError as error:
            logger.warning(
                "%s: %s; no files are removed until it can be locked", self._directory / BACKUP_LOCK, error.strerror
            )
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self._held.close()
