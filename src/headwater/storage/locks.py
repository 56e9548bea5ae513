"""The lock between backups and whoever unlinks files of a data directory."""

from __future__ import annotations

import fcntl
import logging
from pathlib import Path
from typing import IO

logger = logging.getLogger("headwater.storage")

BACKUP_LOCK = "BACKUP.lock"
"""Held shared by a backup; files are unlinked only while nobody holds it."""


class NoBackup:
    """While held, no backup begins; enters with False where one is running, or where nobody can tell."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / BACKUP_LOCK
        self._file: IO[str] | None = None

    def __enter__(self) -> bool:
        try:
            self._file = open(self._path, "a", encoding="ascii")
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
