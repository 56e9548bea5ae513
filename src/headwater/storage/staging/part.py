"""The file of one staged part: an Arrow file followed by a checksum over all of it.

The whole part is verified before any row is read, so the appended rows are those that were staged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from ...core.errors import StorageCorrupted
from ...formats.arrow.lazy import pa
from ...formats.files.summed_file import SummedFile

PART_SUFFIX = ".arrow"
PART_MAGIC = b"HWSTAGE1"
"""Follows the Arrow file; the last four bytes are the CRC32C of everything before them."""
STAGE_AGAIN = "discard the batch and stage it again (rows already in the log must come in the same order)"
_TRAILER_BYTES = len(PART_MAGIC) + 4
_PIECE_BYTES = 1024 * 1024
"""The number of bytes to verify at once: other threads run in between."""


class PartFile(SummedFile):
    """A part being written."""

    def __init__(self, path: Path) -> None:
        """Create the file, replacing an unfinished one. Raises OSError."""
        super().__init__(path, replaces=True)

    def finish(self) -> int:
        """Add the checksum, make the file durable and close it; returns the size in bytes. Raises OSError."""
        self.write(PART_MAGIC)
        self._file.write(self.crc.to_bytes(4, "little"))
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return size

    def touch(self) -> None:
        """Mark the file as in use: files without a writer are removed after a while. Raises OSError."""
        os.utime(self._file.fileno())


def check_part(path: Path, *, may_be_plain: bool = False) -> None:
    """Verify every byte. Raises StorageCorrupted if the part is damaged.

    `may_be_plain`: accept a part without a checksum, for a commit begun by 0.1.0 that must continue.
    """
    with _mapped(path) as content:
        if _is_plain(content):
            if not may_be_plain:
                raise damaged_part(path, "it has no checksum (0.1.0 wrote none)")
            return
        crc = 0
        for start in range(0, content.size - 4, _PIECE_BYTES):
            crc = google_crc32c.extend(crc, content.slice(start, min(_PIECE_BYTES, content.size - 4 - start)))
        if crc != int.from_bytes(content.slice(content.size - 4).to_pybytes(), "little"):
            raise damaged_part(path, "the checksum does not match")


def is_plain(path: Path) -> bool:
    """Whether it has no checksum: 0.1.0 staged it, or it was truncated."""
    with _mapped(path) as content:
        return _is_plain(content)


@contextlib.contextmanager
def opened_part(path: Path) -> Iterator[pa.ipc.RecordBatchFileReader]:
    """The mapped rows of a verified part (`check_part`). Raises StorageCorrupted."""
    with _mapped(path) as content:
        size = content.size if _is_plain(content) else content.size - _TRAILER_BYTES
        try:
            yield pa.ipc.open_file(pa.BufferReader(content.slice(0, size)))
        except pa.ArrowInvalid as error:
            raise damaged_part(path, f"unreadable: {error}") from None


def damaged_part(path: Path, problem: str) -> StorageCorrupted:
    """The error for that problem, with the remedy."""
    return StorageCorrupted(str(path), problem, STAGE_AGAIN)


def _is_plain(content: pa.Buffer) -> bool:
    return content.size < _TRAILER_BYTES or bytes(content.slice(content.size - _TRAILER_BYTES, 8)) != PART_MAGIC


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[pa.Buffer]:
    if not path.stat().st_size:  # cannot be mapped
        raise damaged_part(path, "it is empty")
    with pa.memory_map(str(path)) as file:
        yield file.read_buffer()
