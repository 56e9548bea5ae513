"""Removing the directories of deleted logs, and of logs whose making was interrupted: by two witnesses.

The state says which ones; and each says itself that it is the one that is meant, or that there is nothing in it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ..core.errors import StorageCorrupted
from .disk import sync_directory
from .meta import META_NAME, read_meta
from .sealing import FRAMES
from .segments import segment_paths

_DIRECTORY = re.compile(r"(.+)\.[0-9a-f]{8}")


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
