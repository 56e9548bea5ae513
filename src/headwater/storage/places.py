"""What is kept beside a sealed segment so that opening it reads no frame: places of frames, hashes of ids.

Derived from the segment; made anew where it is missing or damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from ..core.limits import EventColumns
from ..formats.arrow_columns import ArrowColumns, buffer_of, parts_of
from ..formats.late import pa, pc
from .checked_file import LEAD_BYTES, check_lead, check_rest, lead_of
from .disk import write_whole
from .frame import ARROW_MIN, Frame
from .ids import Hashes, IdHashes

MAGIC = b"HWPLACE1"
_HEADER = struct.Struct("<QQQQ")
"""Behind the lead: first number, size of the segment's used part, frames, events"""
_BODY_AT = LEAD_BYTES + _HEADER.size


class Places:
    """A file of places."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError or OSError if it is not there, or not whole."""
        content = path.read_bytes()
        buffer = memoryview(content)
        check_lead(content, MAGIC, _HEADER.size, path)
        self.first, self.end, frames, events = _HEADER.unpack_from(buffer, LEAD_BYTES)
        if len(buffer) != _BODY_AT + 16 * frames + 8 * events:
            raise ValueError(f"{path}: an incomplete file of places")
        check_rest(content, path)
        ends = (_BODY_AT, _BODY_AT + 8 * frames, _BODY_AT + 16 * frames)
        # As copies: who keeps them must not keep the hashes, which are most of the file.
        self.firsts: Sequence[int] = memoryview(content[ends[0] : ends[1]]).cast("Q")
        self.offsets: Sequence[int] = memoryview(content[ends[1] : ends[2]]).cast("Q")
        self.id_hashes: npt.NDArray[np.uint64] = np.frombuffer(buffer[ends[2] :], dtype=np.uint64)


def places_name(first: int) -> str:
    """The file name of the places of the segment that begins with that number."""
    return f"{first:020d}.places"


def write_places(
    directory: Path,
    first: int,
    end: int,
    firsts: Sequence[int],
    offsets: Sequence[int],
    id_hashes: npt.NDArray[np.uint64],
) -> Path:
    """Write a file of places, durably, under its final name or not at all."""
    body = b"".join(np.array(column, dtype=np.uint64).tobytes() for column in (firsts, offsets, id_hashes))
    header = _HEADER.pack(first, end, len(firsts), len(id_hashes))
    return write_whole(directory / places_name(first), lead_of(MAGIC, header, body), header, body)


def hashes_of(columns: EventColumns, seed: int) -> IdHashes:
    """As `hash_ids`, of columns; of large ones as an array."""
    if not isinstance(columns, ArrowColumns) or columns.count < ARROW_MIN:
        return hash_ids(columns.sources, columns.ids, seed)
    ids = columns.batch.column("id")
    sources = columns.batch.column("source")
    if len(buffer_of(sources)):
        prefix = pc.if_else(pc.equal(sources, ""), "", pc.binary_join_element_wise(sources, "", "\n"))
        ids = pc.binary_join_element_wise(prefix, ids, "")
    return _hashes(chain.from_iterable(parts_of(ids.cast(pa.binary()))), len(ids), seed)


def hashes_of_frame(frame: Frame, seed: int) -> IdHashes:
    """The hashes of all ids of a frame."""
    if frame.count < ARROW_MIN or frame.has_sources:
        return hash_ids(frame.sources(), frame.ids(), seed)
    return _hashes(frame.encoded_ids(), frame.count, seed)


def _hashes(keys: Iterable[bytes], count: int, seed: int) -> Hashes:
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, keys, repeat(seed)), np.uint64, count)
    hashes[hashes == 0] = 1  # 0 is a free slot
    return hashes


def hash_ids(sources: Sequence[str], ids: Sequence[str], seed: int) -> list[int]:
    """The 64-bit hash of each (source, id). `seed` is the log's own, so that nobody can aim at collisions."""
    digest = xxhash.xxh3_64_intdigest
    if any(sources):
        ids = [f"{source}\n{id}" if source else id for source, id in zip(sources, ids, strict=True)]
    return [digest(id.encode(), seed) or 1 for id in ids]
