"""Ids in immutable, mapped files: sorted hashes with their numbers, with a filter that answers "certainly not present".

The files are derived from frames, so they are rebuilt if missing or damaged. Nearly all looked-up ids are new; for
these, only the filter is read, which is a fifth of the file. The file is in the page cache, not in the memory of the
process.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..disk.checked_file import LEAD_BYTES, check_lead, check_rest, lead_of
from ..disk.system import write_whole
from .ids import Generation, Hashes, Hits, Offsets

MAGIC = b"HWIDS2\0\0"
_HEADER = struct.Struct("<QQQQ")
"""After the lead: first, last, ids, words of the filter"""
_FILTER_AT = LEAD_BYTES + _HEADER.size
IDS_PER_WORD = 4
"""The maximum number of ids that share a word of the filter, which passes about one new id in a hundred."""
MERGE_PARTS = 16
"""The number of ranges of hashes in which files are merged, one after the other."""
_ONE = np.uint64(1)
_SHIFTS = (np.uint64(58), np.uint64(52), np.uint64(46))
_SIX_BITS = np.uint64(63)


class IdFile:
    """A file of ids. Safe to call from any thread."""

    def __init__(self, path: Path) -> None:
        """Map the file. Raises ValueError or OSError if it is missing or incomplete (then rebuild it)."""
        self.path = path
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        check_lead(self._map, MAGIC, _HEADER.size, path)
        self.first, self.last, self.count, words = _HEADER.unpack_from(self._map, LEAD_BYTES)
        hashes_at = _FILTER_AT + 8 * words
        if len(self._map) != hashes_at + 12 * self.count or not words or words & (words - 1):
            raise ValueError(f"{path}: incomplete id file")
        self._mask = words - 1
        self._words: Hashes = np.frombuffer(self._map, np.uint64, words, _FILTER_AT)
        self._hashes: Hashes = np.frombuffer(self._map, np.uint64, self.count, hashes_at)
        self._offsets: Offsets = np.frombuffer(self._map, np.uint32, self.count, hashes_at + 8 * self.count)
        self._word_view = memoryview(self._words)  # type: ignore[arg-type]
        self._hash_view = memoryview(self._hashes)  # type: ignore[arg-type]

    def verify(self) -> None:
        """Raises ValueError if the checksum does not match."""
        check_rest(self._map, self.path)

    def has_any(self, wanted: Hashes) -> bool:
        """Whether any of these hashes is in the file."""
        wanted = wanted[self._may_have(wanted)]
        return bool((self._hashes[self._places_of(wanted)] == wanted).any()) if len(wanted) else False

    def has_any_of_few(self, wanted: Sequence[int]) -> bool:
        """The same for few hashes. Each append calls it."""
        words, mask = self._word_view, self._mask
        for each in wanted:
            word = words[each & mask]
            if (word >> (each >> 58)) & (word >> (each >> 52 & 63)) & (word >> (each >> 46 & 63)) & 1:
                slot = bisect_left(self._hash_view, each)
                if slot < self.count and self._hash_view[slot] == each:
                    return True
        return False

    def candidates(self, wanted: int) -> Iterator[int]:
        """The numbers with that hash."""
        slot = bisect_left(self._hash_view, wanted)
        while slot < self.count and self._hash_view[slot] == wanted:
            yield self.first + int(self._offsets[slot])
            slot += 1

    def find(self, wanted: Hashes) -> Hits:
        """See Generation.find."""
        indexes = np.flatnonzero(self._may_have(wanted))
        slots = np.searchsorted(self._hashes, wanted[indexes])
        while len(indexes):
            kept = slots < self.count
            indexes, slots = indexes[kept], slots[kept]
            hits = self._hashes[slots] == wanted[indexes]
            indexes, slots = indexes[hits], slots[hits]
            if len(indexes):
                yield indexes, self._offsets[slots].astype(np.int64) + self.first
            slots = slots + 1

    def generation(self) -> Generation:
        """The same content as a table that can grow."""
        return Generation.of(self.first, self.last, self._hashes, self._offsets)

    def between(self, low: int, high: int | None) -> tuple[Hashes, Offsets]:
        """The hashes from `low` up to `high` (exclusive; None: no upper bound), ascending, and their offsets."""
        start = int(np.searchsorted(self._hashes, np.uint64(low)))
        end = self.count if high is None else int(np.searchsorted(self._hashes, np.uint64(high)))
        return self._hashes[start:end], self._offsets[start:end]

    def _may_have(self, wanted: Hashes) -> npt.NDArray[np.bool_]:
        """Which hashes pass the filter."""
        bits = _bits(wanted)
        found: npt.NDArray[np.bool_] = self._words[wanted & np.uint64(self._mask)] & bits == bits
        return found

    def _places_of(self, wanted: Hashes) -> npt.NDArray[np.intp]:
        """The position where each hash is, if it exists."""
        places: npt.NDArray[np.intp] = np.minimum(np.searchsorted(self._hashes, wanted), self.count - 1)
        return places


def ids_name(first: int, last: int) -> str:
    """The name of the ids file of that range."""
    return f"{first:020d}-{last:020d}.ids"


def save(generation: Generation, directory: Path) -> Path:
    """Durably write the ids of a generation, under the final name or not at all; an older version of it is removed."""
    path = directory / ids_name(generation.first, generation.last)
    if path.exists():
        return path
    hashes, offsets = generation.entries()
    order = np.argsort(hashes)
    _write(path, generation.first, generation.last, [hashes[order]], [offsets[order]])
    for older in directory.glob(f"{generation.first:020d}-*.ids"):
        if older.name < path.name:
            older.unlink(missing_ok=True)
    return path


def load(path: Path) -> IdFile:
    """Map a file and verify it. Raises ValueError or OSError if it is missing or incomplete."""
    found = IdFile(path)
    found.verify()
    return found


def merge_ids(paths: Sequence[Path], directory: Path) -> Path:
    """Merge files of adjacent ranges, oldest first. This needs about as much memory as the result.

    Raises ValueError if one of them is damaged: wrong data must not get a valid checksum.
    """
    files = [load(path) for path in paths]
    first, last = files[0].first, files[-1].last
    hashes, offsets = [], []
    edges: list[int | None] = [part * (2**64 // MERGE_PARTS) for part in range(MERGE_PARTS)]
    for low, high in zip(edges, [*edges[1:], None], strict=True):
        parts = [file.between(low or 0, high) for file in files]
        joined = np.concatenate([part[0] for part in parts])
        numbers = [part[1] + np.uint32(file.first - first) for file, part in zip(files, parts, strict=True)]
        order = np.argsort(joined, kind="stable")  # sorted runs are merged, not sorted again
        hashes.append(joined[order])
        offsets.append(np.concatenate(numbers)[order])
    path = directory / ids_name(first, last)
    _write(path, first, last, hashes, offsets)
    return path


def _write(path: Path, first: int, last: int, hashes: Sequence[Hashes], offsets: Sequence[Offsets]) -> None:
    count = sum(map(len, hashes))
    words = 1
    while words * IDS_PER_WORD < count:
        words *= 2
    filter = np.zeros(words, np.uint64)
    for part in hashes:
        np.bitwise_or.at(filter, (part & np.uint64(words - 1)).astype(np.intp), _bits(part))
    header = _HEADER.pack(first, last, count, words)
    rest = [header, filter.tobytes(), *[part.tobytes() for part in hashes], *[part.tobytes() for part in offsets]]
    write_whole(path, lead_of(MAGIC, *rest), *rest)


def _bits(hashes: Hashes) -> Hashes:
    """The bits of each hash in its word of the filter."""
    a, b, c = [_ONE << (hashes >> shift & _SIX_BITS) for shift in _SHIFTS]
    bits: Hashes = a | b | c
    return bits
