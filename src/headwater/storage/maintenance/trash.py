"""Removes the directories of deleted logs, and of logs whose creation was interrupted, if two witnesses agree.

The state names the directories, and each directory must itself confirm that it is the right one, or be empty.
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
    """The directories to remove in one data directory."""

    def __init__(self, directory: Path, state: StateStore, delete: Callable[[str], None] | None) -> None:
        """`delete` removes a log at the home, by its key there; None without a home."""
        self._logs, self._state, self._delete = directory / LOGS, state, delete
        self._not_removed: set[str] = set()
        """Directories that contradict the state."""

    def empty(self) -> None:
        """Remove the directories of deleted logs, and of a log whose creation was interrupted before the state had it.

        No log may be created meanwhile. Raises NotPrimary, StorageUnavailable: the home does not delete a log.
        """
        trash = dict(self._state.items(TRASH_KIND))
        if not trash:  # called each second, perhaps with very many logs
            return
        used = {entry.directory for entry in known_logs(self._state).values()}
        gone = [each for each, entry in trash.items() if each in used or self.is_gone(each, entry.value)]
        if gone:
            sync_directory(self._logs)  # it must not reappear after the state has forgotten it
        for each in gone:
            if each not in used:  # else it is a log: its creation was interrupted after the state knew it
                path = self._logs / each
                if self._delete is not None and (identity := known_identity(self._state, path)) is not None:
                    self._delete(identity.segments_id)
                forget_identity(self._state, path)
            self._state.delete(TRASH_KIND, each)

    def is_gone(self, directory: str, name: bytes) -> bool:
        """Remove a directory: see `remove_log_directory`. A wrong one is reported once."""
        if directory in self._not_removed:
            return False
        try:
            return remove_log_directory(self._logs, directory, name)
        except (StorageCorrupted, StorageUnavailable) as error:
            self._not_removed.add(directory)
            logger.error("a deleted log cannot be removed: %s", error)
            return False


def remove_log_directory(logs: Path, directory: str, name: bytes) -> bool:
    """Remove a directory of `logs`; returns whether it is gone. A failed removal is retried.

    `name` is the name of the deleted log, or empty if its creation was never finished. META is removed last, so that an
    interrupted removal can resume. Raises StorageCorrupted, StorageUnavailable if the directory is the wrong one.
    """
    path = logs / directory
    called = _DIRECTORY.fullmatch(directory)
    if called is None or path.parent != logs:
        raise _doubtful(path, "it is not a log directory")
    if segment_paths(path / FRAMES):
        if not name:
            raise _doubtful(path, "it contains events, although its creation never finished according to the state")
        if (found := read_meta(path).name) != name.decode(errors="replace") or called[1] != found:
            raise _doubtful(path, f"it belongs to log {found!r}, but to another log according to the state")
    for each in list(path.iterdir()) if path.exists() else ():
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
    if path.exists() and not segment_paths(path / FRAMES):
        sync_directory(path)  # META must not be removed before the rest
        (path / META_NAME).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)
    return not path.exists()


def _doubtful(path: Path, problem: str) -> StorageCorrupted:
    return StorageCorrupted(str(path), f"not removed: {problem}", "check it and remove it by hand if it is not needed")
