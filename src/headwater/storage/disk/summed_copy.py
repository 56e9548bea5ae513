"""Copies files and computes their checksums in one pass over the bytes."""

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
"""The maximum number of files to sync at a time, and of descriptors that are open meanwhile."""
_NO_HOLES_TOLD = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems that do not report holes."""


class FileSum(NamedTuple):
    """The size and checksum of a file."""

    bytes: int
    crc32c: int
    """The checksum of all bytes."""


def sum_of(path: Path) -> FileSum:
    """The size and checksum of a file. Raises OSError."""
    size = crc = 0
    with open(path, "rb", buffering=0) as file:
        for piece in _pieces(file):
            size, crc = size + len(piece), google_crc32c.extend(crc, piece)
    return FileSum(size, crc)


def copy_summed(
    source: Path, target: Path, *, without_hole: bool = False, sync: Callable[[int], None] = os.fsync
) -> FileSum:
    """Copy a file to a private one; returns the sum of the bytes read.

    `without_hole`: leaves out the allocated but unwritten space at the end. `sync` gets the descriptor of the copy,
    which is closed afterwards. Raises OSError.
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
    """Makes files durable while the next ones are written; `wait` for all before relying on them.

    A copy mostly waits for the disk, which needs hardly more time for several files than for one.
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
        """Sync the file of a descriptor, which may be closed meanwhile. `wait` raises any error."""
        self._room.acquire()
        self._begun.append(self._threads.submit(self._sync, os.dup(descriptor)))

    def wait(self) -> None:
        """Wait until all are durable. Raises OSError if one could not be synced."""
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
    """The bytes of a file, or the first `upto`, as arrays that reuse one buffer, so that it stays in the CPU cache."""
    left = upto
    buffer = np.empty(max(1, min(_PIECE_BYTES, _size(file))), np.uint8)
    while left is None or left > 0:
        count = file.readinto(buffer if left is None else buffer[:left])  # type: ignore[attr-defined]
        if not count:
            return
        left = None if left is None else left - count
        yield buffer[:count]


def _write_all(file: IO[bytes], piece: Any) -> None:
    """Write the whole piece: a single write may be short."""
    written = 0
    while written < len(piece):
        written += file.write(piece[written:])


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _end_of_data(file: IO[bytes]) -> int:
    """The offset at which the unwritten space begins; the end of the file if its file system does not report it."""
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
