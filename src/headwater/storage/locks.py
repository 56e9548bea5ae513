"""The lock between backups and whoever unlinks files of a data directory."""

from __future__ import annotations

import fcntl
from pathlib import Path

from .disk import private_opener

BACKUP_LOCK = "BACKUP.lock"
"""Held shared by a backup; files are unlinked only while nobody holds it."""


class NoBackup:
    """While held, no backup begins; enters with False where one is running."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / BACKUP_LOCK

    def __enter__(self) -> bool:
        self._file = open(self._path, "a", encoding="ascii", opener=private_opener)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self._file.close()
