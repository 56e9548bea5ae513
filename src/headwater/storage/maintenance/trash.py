"""Removing the directories of deleted logs, and of logs whose making was interrupted: by two witnesses.

The state says which ones; and each says itself that it is the one that is meant, or that there is nothing in it.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from ...core.errors import StorageCorrupted, StorageUnavailable
from ...core.state import StateStore
from ..catalog.directories import LOGS, TRASH_KIND, known_logs
from ..catalog.identity import forget_identity, known_identity
from ..disk.system import sync_directory
from ..segments.meta import FRAMES, META_NAME, read_meta
from ..segments.segment import segment_paths

logger = logging.getLogger("headwater.storage")

_DIRECTORY = re.compile(r"(.+)\.[0-9a-f]{8}")


class Trash:
    """Directories that are to go, of one data directory."""

    def __init__(self, directory: Path, state: StateStore, delete: Callable[[str], None] | None) -> None:
        """`delete` forgets a log at the home, by its key there; None without one."""
        self._logs, self._state, self._delete = directory / LOGS, state, delete
        self._not_removed: set[str] = set()
        """What is not what the state says of it."""

    def empty(self) -> None:
        """Remove the directories of deleted logs, and of one whose making was interrupted before it was known.

        No log is being made meanwhile. Raises NotPrimary, StorageUnavailable: the home does not forget a log.
        """
        trash = dict(self._state.items(TRASH_KIND))
        if not trash:  # each second, and there may be very many logs
            return
        used = {entry.directory for entry in known_logs(self._state).values()}
        gone = [each for each, entry in trash.items() if each in used or self.is_gone(each, entry.value)]
        if gone:
            sync_directory(self._logs)  # it must not come back when nobody knows it any more
        for each in gone:
            if each not in used:  # else it is a log: its making was interrupted after it was known
                path = self._logs / each
                if self._delete is not None and (identity := known_identity(self._state, path)) is not None:
                    self._delete(identity.segments_id)
                forget_identity(self._state, path)
            self._state.delete(TRASH_KIND, each)

    def is_gone(self, directory: str, name: bytes) -> bool:
        """Remove a directory: see `remove_log_directory`. What is not what it should be is told, once."""
        if directory in self._not_removed:
            return False
        try:
            return remove_log_directory(self._logs, directory, name)
        except (StorageCorrupted, StorageUnavailable) as error:
            self._not_removed.add(directory)
            logger.error("%s", error)
            return False


def remove_log_directory(logs: Path, directory: str, name: bytes) -> bool:
    """Remove a directory of `logs`; whether it is gone. What cannot be removed now is tried again.

    `name` is that of the log that was deleted, or empty: it was never finished. META goes last, so that an interrupted
    removal can go on. Raises StorageCorrupted, StorageUnavailable if the directory is not what it should be.
    """
    path = logs / directory
    called = _DIRECTORY.fullmatch(directory)
    if called is None or path.parent != logs:
        raise _doubtful(path, "no log can have such a directory")
    if segment_paths(path / FRAMES):
        if not name:
            raise _doubtful(path, "there are events in it, though the state says that it was never finished")
        if (found := read_meta(path).name) != name.decode(errors="replace") or called[1] != found:
            raise _doubtful(path, f"it is that of log {found!r}, though the state says that it is that of another")
    for each in list(path.iterdir()) if path.exists() else ():
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
    if path.exists() and not segment_paths(path / FRAMES):
        sync_directory(path)  # META is not gone before what it stands for
        (path / META_NAME).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


def _doubtful(path: Path, problem: str) -> StorageCorrupted:
    return StorageCorrupted(str(path), f"not removed: {problem}", "look at it; if it is not needed, remove it by hand")
