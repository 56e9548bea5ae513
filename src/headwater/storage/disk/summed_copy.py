"""Copying files with their checksum, of the same bytes, which are read once."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import google_crc32c
import numpy as np

from .system import private_opener

_PIECE_BYTES = 1024 * 1024
_NO_HOLES_TOLD = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})
"""From a file system that does not say where its files have holes."""


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


def copy_summed(source: Path, target: Path, *, without_hole: bool = False) -> FileSum:
    """Copy a file durably to one that is its owner's alone; answers the sum of the bytes read.

    `without_hole`: leaves out the room at its end that was allocated and never written. Raises OSError.
    """
    size = crc = 0
    with (
        open(source, "rb", buffering=0) as read,
        open(target, "wb", buffering=0, opener=private_opener) as written,
    ):
        for piece in _pieces(read, _end_of_data(read) if without_hole else None):
            size, crc = size + len(piece), google_crc32c.extend(crc, piece)
            _write_all(written, piece)
        os.fsync(written.fileno())
    return FileSum(size, crc)


def _pieces(file: IO[bytes], upto: int | None = None) -> Iterator[Any]:
    """The bytes of a file, or so many of them, as arrays: each lies in the place of the one before it, in cache."""
    left = upto
    buffer = np.empty(max(1, min(_PIECE_BYTES, _size(file))), np.uint8)
    while left is None or left > 0:
        count = file.readinto(buffer if left is None else buffer[:left])  # type: ignore[attr-defined]
        if not count:
            return
        left = None if left is None else left - count
        yield buffer[:count]


def _write_all(file: IO[bytes], piece: Any) -> None:
    """Write all of it: one write may take a part."""
    written = 0
    while written < len(piece):
        written += file.write(piece[written:])


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _end_of_data(file: IO[bytes]) -> int:
    """Where the room begins that was never written; the file's end, if its system does not say."""
    descriptor, end, size = file.fileno(), 0, _size(file)
    while end < size:
        try:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno in _NO_HOLES_TOLD:
                end = size
            elif error.errno != errno.ENXIO:
                raise
            break
    os.lseek(descriptor, 0, os.SEEK_SET)
    return end
