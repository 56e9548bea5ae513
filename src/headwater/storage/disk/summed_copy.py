"""Copying files with their checksum, of the same bytes, which are read once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import google_crc32c

from .system import private_opener

_PIECE_BYTES = 1024 * 1024


class FileSum(NamedTuple):
    """The size of a file, and its checksum."""

    bytes: int
    crc32c: int
    """Of all of them."""


def sum_of(path: Path) -> FileSum:
    """The sum of a file. Raises OSError."""
    size = crc = 0
    with open(path, "rb", buffering=0) as file:
        for piece in _pieces(file):
            size, crc = size + len(piece), google_crc32c.extend(crc, piece)
    return FileSum(size, crc)


def copy_summed(source: Path, target: Path) -> FileSum:
    """Copy a file durably to one that is its owner's alone; answers the sum of the bytes read. Raises OSError."""
    size = crc = 0
    with open(source, "rb", buffering=0) as read, open(target, "wb", opener=private_opener) as written:
        for piece in _pieces(read):
            size, crc = size + len(piece), google_crc32c.extend(crc, piece)
            written.write(piece)
        written.flush()
        os.fsync(written.fileno())
    return FileSum(size, crc)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece
