"""A file for each sealed segment with offsets of frames and hashes of ids, so that opening a segment reads no frame.

It is derived from the segment, and rebuilt if missing or damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..disk.checked_file import LEAD_BYTES, check_lead, check_rest, lead_of
from ..disk.system import write_whole

MAGIC = b"HWPLACE1"
_HEADER = struct.Struct("<QQQQ")
"""After the lead: first number, size of the segment's used part, frames, events"""
_BODY_AT = LEAD_BYTES + _HEADER.size


class FramePlaces:
    """A places file: the positions of the frames of a sealed segment, and the id hashes of its events."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError or OSError if the file is missing, incomplete, or belongs to another segment."""
        content = path.read_bytes()
        buffer = memoryview(content)
        check_lead(content, MAGIC, _HEADER.size, path)
        self.first, self.end, frames, events = _HEADER.unpack_from(buffer, LEAD_BYTES)
        if len(buffer) != _BODY_AT + 16 * frames + 8 * events:
            raise ValueError(f"{path}: incomplete places file")
        check_rest(content, path)
        if path.name != places_name(self.first):
            raise ValueError(f"{path}: it belongs to the segment that starts with event {self.first}")
        ends = (_BODY_AT, _BODY_AT + 8 * frames, _BODY_AT + 16 * frames)
        # Copies, so that keeping them does not keep the hashes, which are most of the file.
        self.firsts: Sequence[int] = memoryview(content[ends[0] : ends[1]]).cast("Q")
        self.offsets: Sequence[int] = memoryview(content[ends[1] : ends[2]]).cast("Q")
        self.id_hashes: npt.NDArray[np.uint64] = np.frombuffer(buffer[ends[2] :], dtype=np.uint64)


def places_name(first: int) -> str:
    """The name of the places file of the segment that begins with that number."""
    return f"{first:020d}.places"


def write_places(
    directory: Path,
    first: int,
    end: int,
    firsts: Sequence[int],
    offsets: Sequence[int],
    id_hashes: npt.NDArray[np.uint64],
) -> Path:
    """Durably write a places file, under its final name or not at all."""
    body = b"".join(np.array(column, dtype=np.uint64).tobytes() for column in (firsts, offsets, id_hashes))
    header = _HEADER.pack(first, end, len(firsts), len(id_hashes))
    return write_whole(directory / places_name(first), lead_of(MAGIC, header, body), header, body)
