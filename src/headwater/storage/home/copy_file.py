"""COPY: the file by which a data directory says that it is the copy of a home, and of which.

It is written first, so that nobody takes what is in such a directory for all that there is.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..disk.checked_file import CheckedFile

COPY_NAME = "COPY"
"""The file, in the data directory."""
COPY_FORMAT = 1


class _File(msgspec.Struct):
    """COPY."""

    format: int
    home: str
    """The incarnation of the home."""


def mark_copy(directory: Path, home: str) -> None:
    """From now on it is a copy of the home of that incarnation, durably. Raises OSError."""
    _FILE.write(directory, _File(COPY_FORMAT, home))


def home_of(directory: Path) -> str | None:
    """The incarnation of the home that a data directory is a copy of; None: it is no copy.

    Raises StorageCorrupted, StorageUnavailable (a newer format).
    """
    try:
        return _FILE.read(directory).home
    except FileNotFoundError:
        return None


_FILE = CheckedFile(
    COPY_NAME,
    _File,
    newest=COPY_FORMAT,
    checked_from=COPY_FORMAT,
    remedy="name an empty directory for the copy: all of it is in its home",
)
