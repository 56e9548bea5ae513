"""Which ids are in the log: generations of open-addressing tables from the hash of (source, id) to the number.

A hit is a candidate, to be confirmed by reading the event. Tables are numpy arrays: a group of ids is looked up
column-wise, a few of them one by one over memoryviews, which is faster for few.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from .disk import write_whole

SLOTS_MIN = 1 << 10
SLOTS_REHASHED_MAX = 1 << 18
"""A table grows in place up to that; a larger one is followed by another, so that no append waits for a rehash."""
SLOTS_MAX = 1 << 24
SLOTS_GROWTH = 4
LOAD_MAX = 0.55
_VECTOR_MIN = 200
"""From so many ids on, numpy is faster than a loop."""
_VECTOR_ROUNDS = 3
"""So many rounds of probing at least; when few are left after that, a loop takes them."""
_ONE = np.uint64(1)
_GONE = 0xFFFFFFFF
"""Offset of an entry that was rolled back."""
_OFFSET_MAX = _GONE - 1

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.uint32]
IdHashes = list[int] | Hashes
"""Hashes of some ids: a list of few, an array of many."""


class Generation:
    """One table: hashes (0 = free slot) and numbers relative to `first`."""

    def __init__(self, first: int, slots: int) -> None:
        self.first, self.last, self.count = first, first - 1, 0
        self.use(np.zeros(slots, np.uint64), np.zeros(slots, np.uint32))

    def use(self, hashes: Hashes, offsets: Offsets) -> None:
        """Take these arrays as the table."""
        self.table = (hashes, offsets)
        """Both at once, for other threads than the one that changes them."""
        self.hashes, self.offsets = hashes, offsets
        self.slots = len(hashes)
        self.mask = self.slots - 1
        self.hash_view = memoryview(hashes)  # type: ignore[arg-type]
        self.offset_view = memoryview(offsets)  # type: ignore[arg-type]

    @property
    def room(self) -> int:
        """How many more entries it takes."""
        return int(self.slots * LOAD_MAX) - self.count

    def candidates(self, wanted: int) -> Iterator[int]:
        """The numbers under that hash."""
        mask, hashes, offsets = self.mask, self.hash_view, self.offset_view
        slot = wanted & mask
        while found := hashes[slot]:
            if found == wanted and offsets[slot] != _GONE:
                yield self.first + offsets[slot]
            slot = (slot + 1) & mask

    def has_any(self, wanted: Hashes) -> bool:
        """Whether any of these hashes is in the table."""
        mask = np.uint64(self.mask)
        slots = wanted & mask
        rounds = 0
        while rounds < _VECTOR_ROUNDS or len(wanted) >= _VECTOR_MIN:
            found = self.hashes[slots]
            if (found == wanted).any():
                return True
            busy = found.nonzero()[0]
            wanted = wanted[busy]
            slots = (slots[busy] + _ONE) & mask
            rounds += 1
        return has_any_of_few([self], wanted.tolist())

    def find(self, wanted: Hashes) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]]:
        """For these hashes: (indexes of some of them, a number under each), until all numbers were told.

        Any thread may ask: of what is entered meanwhile, some may be missing.
        """
        hashes, offsets = self.table
        mask = np.uint64(len(hashes) - 1)
        indexes = np.arange(len(wanted))
        slots = wanted & mask
        while len(indexes):
            found = hashes[slots]
            hits = np.flatnonzero((found == wanted) & (offsets[slots] != _GONE))
            if len(hits):
                yield indexes[hits], offsets[slots[hits]].astype(np.int64) + self.first
            busy = np.flatnonzero(found)
            indexes, wanted = indexes[busy], wanted[busy]
            slots = (slots[busy] + _ONE) & mask

    def insert(self, hashes: IdHashes, first: int) -> None:
        """Enter hashes for the numbers from `first` on; there must be room."""
        start, count = first - self.first, len(hashes)
        numbers: Iterable[int] = range(start, start + count)
        if count >= _VECTOR_MIN:
            wanted, numbers = self._insert_most(
                np.asarray(hashes, np.uint64), np.arange(start, start + count, dtype="u4")
            )
        else:
            wanted = as_list(hashes)
        mask, hash_view, offset_view = self.mask, self.hash_view, self.offset_view
        for each, number in zip(wanted, numbers, strict=True):
            slot = each & mask
            while hash_view[slot]:
                slot = (slot + 1) & mask
            hash_view[slot] = each
            offset_view[slot] = number
        self.count += count
        self.last = first + count - 1

    def _insert_most(self, wanted: Hashes, numbers: Offsets) -> tuple[list[int], list[int]]:
        """Some rounds of probing; answers what found no slot yet."""
        mask = np.uint64(self.mask)
        slots = wanted & mask
        rounds = 0
        while rounds < _VECTOR_ROUNDS or len(wanted) >= _VECTOR_MIN:
            free = self.hashes[slots] == 0
            self.hashes[slots[free]] = wanted[free]
            self.offsets[slots[free]] = numbers[free]
            # Two may have aimed at one free slot: the last one has it, the other goes on.
            lost = (~free | (self.offsets[slots] != numbers)).nonzero()[0]
            wanted, numbers = wanted[lost], numbers[lost]
            slots = (slots[lost] + _ONE) & mask
            rounds += 1
        return wanted.tolist(), numbers.tolist()

    def grow(self) -> None:
        """Rehash into a larger table. Who looks up meanwhile finds what was there before."""
        kept = (self.hashes != 0) & (self.offsets != _GONE)
        hashes, offsets = self.hashes[kept], self.offsets[kept]
        larger = Generation(self.first, self.slots * SLOTS_GROWTH)
        few, numbers = larger._insert_most(hashes, offsets)
        for each, number in zip(few, numbers, strict=True):
            slot = each & larger.mask
            while larger.hash_view[slot]:
                slot = (slot + 1) & larger.mask
            larger.hash_view[slot] = each
            larger.offset_view[slot] = number
        self.count = len(hashes)
        self.use(larger.hashes, larger.offsets)

    def rollback(self, above: int) -> None:
        """Forget the numbers above that."""
        start = max(above + 1 - self.first, 0)
        self.offsets[(self.hashes != 0) & (self.offsets >= start)] = _GONE
        self.last = min(self.last, above)


def has_any_of_few(generations: Sequence[Generation], wanted: Sequence[int]) -> bool:
    """Whether any of these hashes is in any of the tables. One loop, because each append passes here."""
    for generation in generations:
        mask, hashes = generation.mask, generation.hash_view
        for each in wanted:
            slot = each & mask
            while found := hashes[slot]:
                if found == each:
                    return True
                slot = (slot + 1) & mask
    return False


def as_list(hashes: IdHashes) -> list[int]:
    """The hashes as numbers of Python."""
    return hashes if isinstance(hashes, list) else hashes.tolist()


def are_distinct(hashes: IdHashes) -> bool:
    """Whether no hash comes twice."""
    if isinstance(hashes, list):
        return len(set(hashes)) == len(hashes)
    ordered = np.sort(hashes)
    return not (ordered[1:] == ordered[:-1]).any()


class IdTable:
    """All generations of a log, oldest first. Changed by the log's committer; maintenance drops the oldest."""

    def __init__(self) -> None:
        self.generations: tuple[Generation, ...] = ()
        self._replacing = threading.Lock()

    def has_any(self, wanted: IdHashes) -> bool:
        """Whether any of these hashes is there (so that most appends need ask no more)."""
        if len(wanted) < _VECTOR_MIN:
            return has_any_of_few(self.generations, as_list(wanted))
        hashes = np.asarray(wanted, np.uint64)
        return any(generation.has_any(hashes) for generation in self.generations)

    def candidates(self, wanted: int) -> Iterator[int]:
        """The numbers under that hash, newest generation first."""
        for generation in reversed(self.generations):
            yield from generation.candidates(wanted)

    def find(self, wanted: IdHashes, low: int, high: int) -> list[tuple[int, int]]:
        """Candidates from `low` to `high`: (index into `wanted`, number), ascending by number. Any thread may ask."""
        hashes = np.asarray(wanted, np.uint64)
        pairs: set[tuple[int, int]] = set()
        for generation in self.generations:
            for indexes, numbers in generation.find(hashes):
                fitting = (numbers >= low) & (numbers <= high)
                pairs.update(zip(indexes[fitting].tolist(), numbers[fitting].tolist(), strict=True))
        return sorted(pairs, key=lambda pair: pair[1])

    def insert(self, hashes: IdHashes, first: int) -> None:
        """Enter hashes for the numbers from `first` on."""
        start = 0
        while start < len(hashes):
            generation = self._newest_for(first + start)
            part = hashes[start : start + generation.room]
            generation.insert(part, first + start)
            start += len(part)

    def rollback(self, above: int) -> None:
        """Forget the numbers above that."""
        with self._replacing:
            self.generations = tuple(each for each in self.generations if each.first <= above + 1)
        for generation in self.generations:
            if generation.last > above:
                generation.rollback(above)

    def drop(self, below: int) -> None:
        """Drop the generations of which every number is below that; the newest stays."""
        if any(generation.last < below for generation in self.generations[:-1]):
            with self._replacing:
                kept = tuple(each for each in self.generations[:-1] if each.last >= below)
                self.generations = (*kept, self.generations[-1])

    def _newest_for(self, number: int) -> Generation:
        newest = self.generations[-1] if self.generations else None
        if newest is not None and number - newest.first <= _OFFSET_MAX - 2**20:
            if newest.room <= 0 and newest.slots < SLOTS_REHASHED_MAX:
                newest.grow()
            if newest.room > 0:
                return newest
        slots = SLOTS_MIN if newest is None else min(newest.slots * SLOTS_GROWTH, SLOTS_MAX)
        return self.append(Generation(number, slots))

    def append(self, generation: Generation) -> Generation:
        """Begin a generation (or take over one from file)."""
        with self._replacing:
            self.generations = (*self.generations, generation)
        return generation


MAGIC = b"HWIDS1\0\0"
_HEADER = struct.Struct("<8sIIQQQQ")
"""magic, crc of the rest, spare, first, last, taken slots, slots"""


def save(generation: Generation, directory: Path) -> Path:
    """Write the taken slots of a generation, durably, under its final name or not at all; an older state of it goes."""
    path = directory / f"{generation.first:020d}-{generation.last:020d}.ids"
    if path.exists():
        return path
    taken = np.flatnonzero(generation.hashes)
    columns = (generation.hashes[taken], taken.astype(np.uint32), generation.offsets[taken])
    body = b"".join(column.tobytes() for column in columns)
    header = _HEADER.pack(MAGIC, 0, 0, generation.first, generation.last, len(taken), generation.slots)
    crc = google_crc32c.extend(google_crc32c.value(header[16:]), body)
    write_whole(path, MAGIC + struct.pack("<II", crc, 0) + header[16:], body)
    for older in directory.glob(f"{generation.first:020d}-*.ids"):
        if older != path:
            older.unlink()
    return path


def load(path: Path) -> Generation:
    """Read a generation back. Raises ValueError or OSError if it is not there, or not whole."""
    content = path.read_bytes()
    if len(content) < _HEADER.size:
        raise ValueError(f"{path}: too short")
    magic, crc, _, first, last, count, slots = _HEADER.unpack_from(content)
    if magic != MAGIC or len(content) != _HEADER.size + 16 * count or crc != google_crc32c.value(content[16:]):
        raise ValueError(f"{path}: an incomplete table of ids")
    hashes = np.frombuffer(content, np.uint64, count, _HEADER.size)
    taken = np.frombuffer(content, np.uint32, count, _HEADER.size + 8 * count)
    offsets = np.frombuffer(content, np.uint32, count, _HEADER.size + 12 * count)
    generation = Generation(first, slots)
    generation.hashes[taken] = hashes
    generation.offsets[taken] = offsets
    generation.last, generation.count = last, count
    return generation
