"""Which ids are in the log: generations of open-addressing tables from the hash of (source, id) to the number.

A hit is a candidate, to be confirmed by reading the event. Tables are numpy arrays: a group of ids is looked up
column-wise, a few of them one by one over memoryviews, which is faster for few.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt

from .disk import sync_directory

SLOTS_MIN = 1 << 10
SLOTS_MAX = 1 << 24
SLOTS_GROWTH = 8
LOAD_MAX = 0.6
_VECTOR_MIN = 24
"""From so many ids on, numpy is faster than a loop."""
_ONE = np.uint64(1)
_GONE = 0xFFFFFFFF
"""Offset of an entry that was rolled back."""
_OFFSET_MAX = _GONE - 1

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.uint32]


class Generation:
    """One table: hashes (0 = free slot) and numbers relative to `first`."""

    def __init__(self, first: int, slots: int) -> None:
        self._use(first, first - 1, 0, np.zeros(slots, np.uint64), np.zeros(slots, np.uint32))

    def _use(self, first: int, last: int, count: int, hashes: Hashes, offsets: Offsets) -> None:
        self.first, self.last, self.count = first, last, count
        self.hashes, self.offsets = hashes, offsets
        self.slots = len(hashes)
        self._mask = self.slots - 1
        self._hash_view = memoryview(hashes.view(np.uint64))  # type: ignore[arg-type]
        self._offset_view = memoryview(offsets.view(np.uint32))  # type: ignore[arg-type]

    @property
    def room(self) -> int:
        """How many more entries it takes."""
        return int(self.slots * LOAD_MAX) - self.count

    def candidates(self, wanted: int) -> Iterator[int]:
        """The numbers under that hash."""
        mask, hashes, offsets = self._mask, self._hash_view, self._offset_view
        slot = wanted & mask
        while found := hashes[slot]:
            if found == wanted and offsets[slot] != _GONE:
                yield self.first + offsets[slot]
            slot = (slot + 1) & mask

    def has_any(self, wanted: Hashes) -> bool:
        """Whether any of these hashes is in the table."""
        mask = np.uint64(self._mask)
        slots = wanted & mask
        while len(wanted) >= _VECTOR_MIN:
            found = self.hashes[slots]
            if (found == wanted).any():
                return True
            busy = found.nonzero()[0]
            wanted = wanted[busy]
            slots = (slots[busy] + _ONE) & mask
        return any(True for each in wanted.tolist() for _ in self.candidates(each))

    def insert(self, wanted: Hashes, first: int) -> None:
        """Enter hashes for the numbers from `first` on; there must be room."""
        start, count = first - self.first, len(wanted)
        numbers = np.arange(start, start + count, dtype=np.uint32)
        mask = np.uint64(self._mask)
        slots = wanted & mask
        while len(wanted) >= _VECTOR_MIN:
            free = self.hashes[slots] == 0
            self.hashes[slots[free]] = wanted[free]
            self.offsets[slots[free]] = numbers[free]
            lost = ~free | (self.offsets[slots] != numbers)  # two may have aimed at one free slot: the last one has it
            wanted, numbers = wanted[lost], numbers[lost]
            slots = (slots[lost] + _ONE) & mask
        self._insert_few(wanted.tolist(), numbers.tolist())
        self.count += count
        self.last = first + count - 1

    def _insert_few(self, wanted: list[int], numbers: list[int]) -> None:
        mask, hashes, offsets = self._mask, self._hash_view, self._offset_view
        for each, number in zip(wanted, numbers, strict=True):
            slot = each & mask
            while hashes[slot]:
                slot = (slot + 1) & mask
            hashes[slot] = each
            offsets[slot] = number

    def rollback(self, above: int) -> None:
        """Forget the numbers above that."""
        start = max(above + 1 - self.first, 0)
        self.offsets[(self.hashes != 0) & (self.offsets >= start)] = _GONE
        self.last = min(self.last, above)


class IdTable:
    """All generations of a log, oldest first. Used by the log's committer only."""

    def __init__(self) -> None:
        self.generations: list[Generation] = []

    def has_any(self, wanted: Hashes) -> bool:
        """Whether any of these hashes is there (so that most appends need ask no more)."""
        return any(generation.has_any(wanted) for generation in self.generations)

    def candidates(self, wanted: int) -> Iterator[int]:
        """The numbers under that hash, newest generation first."""
        for generation in reversed(self.generations):
            yield from generation.candidates(wanted)

    def insert(self, hashes: Hashes, first: int) -> None:
        """Enter hashes for the numbers from `first` on."""
        start = 0
        while start < len(hashes):
            generation = self._newest_for(first + start)
            part = hashes[start : start + generation.room]
            generation.insert(part, first + start)
            start += len(part)

    def rollback(self, above: int) -> None:
        """Forget the numbers above that."""
        for generation in self.generations:
            if generation.last > above:
                generation.rollback(above)

    def drop(self, below: int) -> None:
        """Drop the generations of which every number is below that; the newest stays."""
        self.generations = [g for g in self.generations[:-1] if g.last >= below] + self.generations[-1:]

    def _newest_for(self, number: int) -> Generation:
        newest = self.generations[-1] if self.generations else None
        if newest is not None and newest.room > 0 and number - newest.first <= _OFFSET_MAX - 2**20:
            return newest
        slots = SLOTS_MIN if newest is None else min(newest.slots * SLOTS_GROWTH, SLOTS_MAX)
        self.generations.append(Generation(number, slots))
        return self.generations[-1]


MAGIC = b"HWIDS1\0\0"
_HEADER = struct.Struct("<8sIIQQQQ")
"""magic, crc of the rest, spare, first, last, count, slots"""


def save(generation: Generation, directory: Path) -> Path:
    """Write a generation to file, durably, under its final name or not at all; an older state of it goes."""
    path = directory / f"{generation.first:020d}-{generation.last:020d}.ids"
    if path.exists():
        return path
    header = _HEADER.pack(MAGIC, 0, 0, generation.first, generation.last, generation.count, generation.slots)
    hashes, offsets = generation.hashes.tobytes(), generation.offsets.tobytes()
    crc = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(header[16:]), hashes), offsets)
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        file.write(MAGIC + struct.pack("<II", crc, 0) + header[16:])
        file.write(hashes)
        file.write(offsets)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    for older in directory.glob(f"{generation.first:020d}-*.ids"):
        if older != path:
            older.unlink()
    sync_directory(directory)
    return path


def load(path: Path) -> Generation:
    """Read a generation back. Raises ValueError or OSError if it is not there, or not whole."""
    content = path.read_bytes()
    if len(content) < _HEADER.size:
        raise ValueError(f"{path}: too short")
    magic, crc, _, first, last, count, slots = _HEADER.unpack_from(content)
    if magic != MAGIC or len(content) != _HEADER.size + 12 * slots or crc != google_crc32c.value(content[16:]):
        raise ValueError(f"{path}: not a whole table of ids")
    generation = Generation(first, 0)
    split = _HEADER.size + 8 * slots
    hashes = np.frombuffer(content[_HEADER.size : split], np.uint64).copy()
    generation._use(first, last, count, hashes, np.frombuffer(content[split:], np.uint32).copy())
    return generation
