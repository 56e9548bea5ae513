"""Copying files with their checksum, of the same bytes, which are read once."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import google_crc32c
import numpy as np

from .system import private_opener

_PIECE_BYTES = 1024 * 1024
_SYNCS_MAX, _DESCRIPTORS_MAX = 4, 16
"""So many files are synced at a time, and so many have a descriptor meanwhile."""
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


def copy_summed(
    source: Path, target: Path, *, without_hole: bool = False, sync: Callable[[int], None] = os.fsync
) -> FileSum:
    """Copy a file to one that is its owner's alone; answers the sum of the bytes read.

    `without_hole`: leaves out the room at its end that was allocated and never written. `sync` gets the descriptor of
    the copy, which is closed afterwards. Raises OSError.
    """
    size = crc = 0
    with (
        open(source, "rb", buffering=0) as read,
        open(target, "wb", buffering=0, opener=private_opener) as written,
    ):
        for piece in _pieces(read, _end_of_data(read) if without_hole else None):
            size, crc = size + len(piece), google_crc32c.extend(crc, piece)
            _write_all(written, piece)
        sync(written.fileno())
    return FileSum(size, crc)


class Syncs:
    """Makes files durable while the next ones are written; `wait` for all of them before they are relied on.

    Most of the time of a copy is that of the disk, which takes hardly longer for several files than for one.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_SYNCS_MAX, thread_name_prefix="sync")
        self._room = threading.Semaphore(_DESCRIPTORS_MAX)
        self._begun: list[Future[None]] = []

    def __enter__(self) -> Syncs:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()

    def soon(self, descriptor: int) -> None:
        """Sync the file of a descriptor, which may be closed meanwhile. What fails is raised by `wait`."""
        self._room.acquire()
        self._begun.append(self._threads.submit(self._sync, os.dup(descriptor)))

    def wait(self) -> None:
        """Return when all are durable. Raises OSError where one could not be synced."""
        for each in self._begun:
            each.result()
        self._begun.clear()

    def _sync(self, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            self._room.release()


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
