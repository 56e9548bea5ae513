"""The ids of a log: tables from the hash of (source, id) to the number, in memory for the newest ids only.

Ids go into a generation, an open-addressing table of bounded size. When it is full, another one begins, and maintenance
replaces it with a mapped file (`id_files`). A hit is a candidate, confirmed by reading the event. Tables are numpy
arrays: a group of ids is looked up column-wise. A few ids are looked up one by one over memoryviews, which is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt
import xxhash

from ...core.limits import EventColumns
from ...formats.arrow.columns import ArrowColumns, buffer_of, parts_of
from ...formats.arrow.lazy import pa, pc
from ..frames.frame import ARROW_MIN, Frame

SLOTS_MIN = 1 << 10
SLOTS_MAX = 1 << 18
"""A table grows in place up to this size (3 MiB); then another one begins, so that no append waits for long."""
SLOTS_GROWTH = 4
LOAD_MAX = 0.55
VECTOR_MIN = 200
"""The number of ids from which numpy is faster than a loop."""
_VECTOR_ROUNDS = 3
"""The minimum number of probing rounds; if few ids are left after that, a loop finishes them."""
SIEVED_MIN = 4096
"""If a look-up has at least this many ids, they are filtered before a full table is probed: one bit test instead of two
or three table accesses. Of the ids not in the table, one in fifteen is still probed."""
_SIEVE_BITS = 1 << 21
_SIEVE_SHIFT = np.uint64(64 - 21)
"""Keeps the upper bits of a hash; slots use the lower ones."""
_BYTE, _BIT, _ONE_BIT = np.uint64(3), np.uint64(7), np.uint8(1)
_ONE = np.uint64(1)
_GONE = 0xFFFFFFFF
"""The offset of a rolled-back entry."""
OFFSET_MAX = _GONE - 1

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.uint32]
IdHashes = list[int] | Hashes
"""Hashes of ids: a list of few, or an array of many."""
Hits = Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]]
"""Indexes of some looked-up ids, and a number for each."""


class Generation:
    """One table: hashes (0 = free slot) and numbers relative to `first`."""

    def __init__(self, first: int, slots: int) -> None:
        self.first, self.last = first, first - 1
        self.use(np.zeros(slots, np.uint64), np.zeros(slots, np.uint32), 0)

    def use(self, hashes: Hashes, offsets: Offsets, count: int) -> None:
        """Use these arrays, with that many entries, as the table."""
        self.table = (hashes, offsets)
        """Both are in one attribute, for threads other than the one that changes them."""
        self.hashes, self.offsets = hashes, offsets
        self.slots = len(hashes)
        self.room = int(self.slots * LOAD_MAX) - count
        """The number of entries that still fit."""
        self.mask = self.slots - 1
        self._sieve: npt.NDArray[np.uint8] | None = None
        self.hash_view = memoryview(hashes)  # type: ignore[arg-type]
        self.offset_view = memoryview(offsets)  # type: ignore[arg-type]

    def candidates(self, wanted: int) -> Iterator[int]:
        """The numbers with that hash."""
        mask, hashes, offsets = self.mask, self.hash_view, self.offset_view
        slot = wanted & mask
        while found := hashes[slot]:
            if found == wanted and offsets[slot] != _GONE:
                yield self.first + offsets[slot]
            slot = (slot + 1) & mask

    def has_any(self, wanted: Hashes) -> bool:
        """Whether any of these hashes is in the table."""
        if len(wanted) >= SIEVED_MIN and self.room <= 0:
            wanted = self._sieved(wanted)
        mask = np.uint64(self.mask)
        slots = wanted & mask
        rounds = 0
        while rounds < _VECTOR_ROUNDS or len(wanted) >= VECTOR_MIN:
            found = self.hashes[slots]
            if (found == wanted).any():
                return True
            busy = found.nonzero()[0]
            wanted = wanted[busy]
            slots = (slots[busy] + _ONE) & mask
            rounds += 1
        return has_any_of_few([self], wanted.tolist())

    def _sieved(self, wanted: Hashes) -> Hashes:
        """The hashes that may be in this table, which no longer grows."""
        if self._sieve is None:  # 256 KiB, only for logs with large appends
            bits = np.zeros(_SIEVE_BITS, np.bool_)
            bits[self.hashes[self.hashes != 0] >> _SIEVE_SHIFT] = True
            self._sieve = np.packbits(bits, bitorder="little")
        bit = wanted >> _SIEVE_SHIFT
        may_be: npt.NDArray[np.bool_] = self._sieve[bit >> _BYTE] >> (bit & _BIT).astype(np.uint8) & _ONE_BIT != 0
        return wanted[may_be]

    def find(self, wanted: Hashes) -> Hits:
        """For these hashes, (indexes of some of them, a number for each), until all numbers are given.

        Safe to call from any thread; entries added meanwhile may be missing.
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
        """Enter hashes for the numbers from `first` on; they must fit."""
        start, count = first - self.first, len(hashes)
        if count < VECTOR_MIN and isinstance(hashes, list):
            self._enter(hashes, range(start, start + count))
        else:
            numbers = np.arange(start, start + count, dtype="u4")
            self._enter(*self._insert_most(np.asarray(hashes, np.uint64), numbers))
        self.room -= count
        self.last = first + count - 1

    def _enter(self, hashes: Iterable[int], numbers: Iterable[int]) -> None:
        mask, hash_view, offset_view = self.mask, self.hash_view, self.offset_view
        for each, number in zip(hashes, numbers, strict=True):
            slot = each & mask
            while hash_view[slot]:
                slot = (slot + 1) & mask
            hash_view[slot] = each
            offset_view[slot] = number

    def _insert_most(self, wanted: Hashes, numbers: Offsets) -> tuple[list[int], list[int]]:
        """Do some rounds of probing; returns the entries without a slot yet."""
        mask = np.uint64(self.mask)
        slots = wanted & mask
        rounds = 0
        while rounds < _VECTOR_ROUNDS or len(wanted) >= VECTOR_MIN:
            free = self.hashes[slots] == 0
            self.hashes[slots[free]] = wanted[free]
            self.offsets[slots[free]] = numbers[free]
            # Two may have chosen one free slot: the last one gets it, and the other continues.
            lost = (~free | (self.offsets[slots] != numbers)).nonzero()[0]
            wanted, numbers = wanted[lost], numbers[lost]
            slots = (slots[lost] + _ONE) & mask
            rounds += 1
        return wanted.tolist(), numbers.tolist()

    def grow(self) -> None:
        """Rehash into a larger table. Concurrent look-ups see the old content."""
        hashes, offsets = self.entries()
        larger = Generation.of(self.first, self.last, hashes, offsets, self.slots * SLOTS_GROWTH)
        self.use(larger.hashes, larger.offsets, len(hashes))

    @staticmethod
    def of(first: int, last: int, hashes: Hashes, offsets: Offsets, slots: int = SLOTS_MIN) -> Generation:
        """A table of these entries, with at least `slots` slots."""
        while slots * LOAD_MAX < len(hashes):
            slots *= SLOTS_GROWTH
        made = Generation(first, slots)
        made._enter(*made._insert_most(hashes, offsets))
        made.last = last
        made.room -= len(hashes)
        return made

    def entries(self) -> tuple[Hashes, Offsets]:
        """All hashes, and their numbers relative to `first`, without rolled-back ones."""
        kept = (self.hashes != 0) & (self.offsets != _GONE)
        return self.hashes[kept], self.offsets[kept]

    def rollback(self, above: int) -> None:
        """Forget the numbers above that one."""
        start = max(above + 1 - self.first, 0)
        self.offsets[(self.hashes != 0) & (self.offsets >= start)] = _GONE
        self.last = min(self.last, above)


def has_any_of_few(generations: Sequence[Generation], wanted: Sequence[int]) -> bool:
    """Whether any of these hashes is in any of the tables. A single loop, because each append calls it."""
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
    """The hashes as Python ints."""
    return hashes if isinstance(hashes, list) else hashes.tolist()


def are_distinct(hashes: IdHashes) -> bool:
    """Whether all hashes differ."""
    if isinstance(hashes, list):
        return len(set(hashes)) == len(hashes)
    ordered = np.sort(hashes)
    return not (ordered[1:] == ordered[:-1]).any()


def hashes_of(columns: EventColumns, seed: int) -> IdHashes:
    """Like `hash_ids`, for columns; returns an array for large ones."""
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


def hash_ids(sources: Sequence[str], ids: Sequence[str], seed: int) -> list[int]:
    """The 64-bit hash of each (source, id). `seed` is the log's own, so that clients cannot provoke collisions."""
    digest = xxhash.xxh3_64_intdigest
    if any(sources):
        ids = [f"{source}\n{id}" if source else id for source, id in zip(sources, ids, strict=True)]
    hashes = list(map(digest, map(str.encode, ids), repeat(seed)))
    return [each or 1 for each in hashes] if 0 in hashes else hashes


def _hashes(keys: Iterable[bytes], count: int, seed: int) -> Hashes:
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, keys, repeat(seed)), np.uint64, count)
    hashes[hashes == 0] = 1  # 0 is a free slot
    return hashes
