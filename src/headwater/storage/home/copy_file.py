"""COPY: the file by which a data directory says that it is a copy, which one, and of which home.

It is written first, so that nobody takes what is in such a directory for all that there is.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec

from ..disk.checked_file import CheckedFile
from ..frames.frame_log import Term

COPY_NAME = "COPY"
"""The file, in the data directory."""
COPY_FORMAT = 1


class CopyMark(msgspec.Struct, frozen=True):
    """COPY. An earlier version writes `home` alone, and passes over the rest."""

    format: int
    home: str
    """The incarnation of the home."""
    id: str = ""
    """Which copy it is: drawn when it begins. A directory that was copied draws another one when it is served."""
    inode: int = 0
    device: int = 0
    """Where the directory was when the id was drawn."""
    seen: Term = Term(0, 0)
    """The newest term that it has seen in its home."""

    def is_at(self, directory: Path) -> bool:
        """Whether it is still of that directory, rather than of one that this is a copy of. Raises OSError."""
        found = os.stat(directory)
        return self.id != "" and (self.inode, self.device) == (found.st_ino, found.st_dev)


def mark_copy(directory: Path, home: str) -> CopyMark:
    """From now on it is a copy of the home of that incarnation, and a new one, durably. Raises OSError."""
    found = os.stat(directory)
    mark = CopyMark(COPY_FORMAT, home, uuid.uuid4().hex, found.st_ino, found.st_dev)
    write_mark(directory, mark)
    return mark


def write_mark(directory: Path, mark: CopyMark) -> None:
    """Replace what the file says, durably. Raises OSError."""
    _FILE.write(directory, mark)


def read_mark(directory: Path) -> CopyMark | None:
    """What the file says; None: it is no copy. Raises StorageCorrupted, StorageUnavailable (a newer format)."""
    try:
        return _FILE.read(directory)
    except FileNotFoundError:
        return None


def home_of(directory: Path) -> str | None:
    """The incarnation of the home that a data directory is a copy of; None: it is no copy.

    Raises StorageCorrupted, StorageUnavailable (a newer format).
    """
    mark = read_mark(directory)
    return None if mark is None else mark.home


_FILE = CheckedFile(
    COPY_NAME,
    CopyMark,
    newest=COPY_FORMAT,
    checked_from=COPY_FORMAT,
    remedy="name an empty directory for the copy: all of it is in its home",
)
