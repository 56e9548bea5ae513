"""Tells a data directory, or a folder that can become one, from one of other programs, before anything in it changes.

A data directory is made private and filled with files. In a folder of other programs, that would lock them out.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..core.errors import StorageCorrupted, StorageUnavailable
from ..core.newer import WrittenByNewer
from ..core.quoting import show
from .catalog.directories import LOGS, is_of_a_log
from .disk.locks import BACKUP_LOCK, LOCK, DirectoryUnavailable
from .home.copy_file import home_of
from .state.files import ACCEPTED, STATE_NAME, files_of
from .state.journal import JOURNAL, UNFINISHED

LOST_AND_FOUND = "lost+found"
"""A new file system has it at its top. A folder with nothing else is empty."""
_SCHEMA = re.compile(rb"CREATE TABLE (entries|entry) \(\s*kind TEXT")
"""What the file of a state has in its first page; `entry` in the first versions."""
_LOOKED_AT = 64 * 1024
_OURS = frozenset(
    {LOST_AND_FOUND, LOGS, LOCK, BACKUP_LOCK, UNFINISHED, ACCEPTED, "BACKUP.partial", "BACKUP.json", "LEASE",
     "state.sock", "state.new", "room.tmp", *(path.name for path in files_of(Path(STATE_NAME)))}
)  # fmt: skip
_OURS_LEFT = re.compile(
    r"(COPY|state\.witness|BACKUP\.json)\.\d+\.tmp|state-new\..+|state\.(lost|damaged)-\d+|aside-.+"
)
"""What an interrupted start, or a repair, leaves."""


def has_data(directory: Path) -> bool:
    """Whether it is a data directory, or a backup, by what its files hold: names alone say nothing. Raises OSError.

    With a state, a journal or the mark of a copy it is one, whatever else is in it.
    """
    return _has_state(directory) or is_of_a_log(directory / JOURNAL) or _is_marked(directory)


def _has_state(directory: Path) -> bool:
    for path in files_of(directory / STATE_NAME):
        if path.is_file():
            with path.open("rb") as file:
                if _SCHEMA.search(file.read(_LOOKED_AT)):
                    return True
    return False


def _is_marked(directory: Path) -> bool:
    try:
        return home_of(directory) is not None
    except StorageCorrupted:
        return False
    except WrittenByNewer:
        return True


def is_empty(directory: Path) -> bool:
    """Whether nothing is in it, or it is no directory. Raises OSError."""
    return not _names(directory) - {LOST_AND_FOUND}


def refuse_foreign(directory: Path) -> None:
    """Raises StorageUnavailable if a folder is neither empty nor a data directory, nor the beginning of one."""
    try:
        others = sorted(name for name in _names(directory) - _OURS if not _OURS_LEFT.fullmatch(name))
        others += sorted(f"{LOGS}/{name}" for name in _names(directory / LOGS) if not _may_be_of_a_log(directory, name))
        is_foreign = bool(others) and not has_data(directory)
    except OSError as error:
        raise DirectoryUnavailable(f"{directory}: {error.strerror}; the data directory must be readable") from None
    if is_foreign:
        raise StorageUnavailable(
            f"{directory}: no data directory (it holds {show(others[0])}); --data names one, or an empty directory"
        )


def _may_be_of_a_log(directory: Path, name: str) -> bool:
    path = directory / LOGS / name
    return name == LOST_AND_FOUND or is_of_a_log(path) or (path.is_dir() and not _names(path))


def _names(directory: Path) -> set[str]:
    try:
        return {each.name for each in directory.iterdir()}
    except (FileNotFoundError, NotADirectoryError):  # whoever makes it is told
        return set()
