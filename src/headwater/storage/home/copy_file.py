"""COPY: the file that marks a data directory as a copy, and identifies the copy and its home.

It is written first, so that the directory is never mistaken for complete data.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec

from ..disk.checked_file import CheckedFile
from ..disk.system import sync_directory
from ..frames.frame_log import Term

COPY_NAME = "COPY"
"""The file, in the data directory."""
COPY_FORMAT = 1


class CopyMark(msgspec.Struct, frozen=True):
    """COPY. An earlier version writes only `home` and ignores the rest."""

    format: int
    home: str
    """The incarnation of the home."""
    id: str = ""
    """A random id of the copy. A duplicated directory generates another id when it is served."""
    inode: int = 0
    device: int = 0
    """The device of the directory when the id was generated."""
    seen: Term = Term(0, 0)
    """The newest term that it has seen at its home."""

    def is_at(self, directory: Path) -> bool:
        """Whether the mark belongs to that directory, and not to a directory from which it was duplicated.

        Raises OSError.
        """
        found = os.stat(directory)
        return self.id != "" and (self.inode, self.device) == (found.st_ino, found.st_dev)


def mark_copy(directory: Path, home: str) -> CopyMark:
    """Durably mark a directory as a new copy of the home of that incarnation. Raises OSError."""
    found = os.stat(directory)
    mark = CopyMark(COPY_FORMAT, home, uuid.uuid4().hex, found.st_ino, found.st_dev)
    write_mark(directory, mark)
    return mark


def write_mark(directory: Path, mark: CopyMark) -> None:
    """Durably replace the file. Raises OSError."""
    _FILE.write(directory, mark)


def read_mark(directory: Path) -> CopyMark | None:
    """The mark of a directory; None if it is not a copy.

    Raises StorageCorrupted, StorageUnavailable (a newer format).
    """
    try:
        return _FILE.read(directory)
    except FileNotFoundError:
        return None


def remove_mark(directory: Path, *beside: str) -> None:
    """Durably turn a complete copy into an independent data directory. `beside`: files that belong to the mark.

    Raises OSError.
    """
    for name in (*beside, COPY_NAME):
        (directory / name).unlink(missing_ok=True)
    sync_directory(directory)


def home_of(directory: Path) -> str | None:
    """The incarnation of the home that a data directory copies; None if it is not a copy.

    Raises StorageCorrupted, StorageUnavailable (a newer format).
    """
    mark = read_mark(directory)
    return None if mark is None else mark.home


_FILE = CheckedFile(
    COPY_NAME,
    CopyMark,
    newest=COPY_FORMAT,
    checked_from=COPY_FORMAT,
    remedy="use an empty directory for the copy: all its data is in its home",
)
