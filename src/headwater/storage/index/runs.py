"""Postings in memory for large appends: a sorted run for each, in the layout of index files, merged as runs accumulate.

A table needs a dictionary entry and a list per tag. A run needs a few arrays for all tags, made in a few calls, at a
fifth of the cost and memory. A look-up finds the hash of a term and then compares its text. Small appends stay in
`ActivePostings`: every look-up would have to search a run for each of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import xxhash

from ...core.event import tag_key
from ...formats.arrow.columns import Coded, array_of, buffer_of, distinct, numbers_of, offsets_of, parts_of, values_of
from ...formats.arrow.lazy import pa
from .backlog import ID_BYTES
from .merge import Pieces, grouped
from .postings import ASKED_KEYS_MAX, KEY, PARTITION, TAG, TYPE, Columns, Postings

MERGED_RUNS = 8
"""The number of runs of the same merge level that are merged into one, so that each number moves only a few times."""

Hashes = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.integer]
Rows = npt.NDArray[np.uint32]
Few = dict[str, Rows]
"""The rows of the kinds of terms with few values, by kind and text."""


class SortedRun(Postings):
    """Immutable postings of one range of numbers: sorted hashes of tags, with their texts and numbers."""

    def __init__(
        self, first: int, last: int, few: Few, tags: pa.StringArray, hashes: Hashes, rows: Rows, ends: Rows
    ) -> None:
        """`few`: the rows of types and partitions.

        `tags` are in the order of their `hashes`; `ends` delimit the `rows` of each.
        """
        self.first, self.last, self.base = first, last, first
        self._few, self._tags, self._hashes, self._rows, self._ends = few, tags, hashes, rows, ends
        self._views = (
            memoryview(self._hashes),  # type: ignore[arg-type]
            memoryview(offsets_of(self._tags)),  # type: ignore[arg-type]
            memoryview(buffer_of(self._tags)).cast("B"),
            memoryview(self._ends),  # type: ignore[arg-type]
            memoryview(self._rows),  # type: ignore[arg-type]
        )
        self._slots_of_keys: dict[str, list[int]] | None = None
        self._asked_keys: dict[str, Sequence[int]] = {}

    @staticmethod
    def ordered(
        first: int, last: int, few: Few, tags: pa.StringArray, hashes: Hashes, codes: Codes, rows: Rows
    ) -> SortedRun:
        """The postings of distinct tags, in any order, with their `hashes`.

        `codes`: the tag of each posting; `rows`: its event, counted from `first`, ascending for each tag.
        """
        by = np.argsort(hashes)
        slots = np.empty(len(by), np.int32)
        slots[by] = np.arange(len(by), dtype=np.int32)
        grouped, ends = _grouped(slots[codes], rows, len(by))
        return SortedRun(first, last, few, tags.take(array_of(by)), np.ascontiguousarray(hashes[by]), grouped, ends)

    @cached_property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        few = sum([rows.nbytes for rows in self._few.values()])
        return int(few + self._rows.nbytes + self._ends.nbytes + self._hashes.nbytes + self._tags.nbytes)

    @staticmethod
    def of(first: int, types: Coded, tags: Coded, partitions: Sequence[int] | None) -> SortedRun:
        """The postings of an append whose first event has that number; `partitions` is None if there is only one."""
        count = len(types.codes)
        every = np.arange(count, dtype=np.uint32)
        assert tags.rows is not None
        few = _few(TYPE, values_of(types.terms), types.codes, every)
        if partitions is not None:
            assigned, codes = np.unique(np.asarray(partitions), return_inverse=True)
            few |= _few(PARTITION, map(str, assigned.tolist()), codes, every)
        rows = tags.rows.astype(np.uint32)
        return SortedRun.ordered(first, first + count - 1, few, tags.terms, _hashes_of(tags.terms), tags.codes, rows)

    def at(self, first: int) -> SortedRun:
        """The same postings, for events numbered from there on."""
        last = first + self.last - self.first
        return SortedRun(first, last, self._few, self._tags, self._hashes, self._rows, self._ends)

    @staticmethod
    def merged(runs: Sequence[SortedRun]) -> SortedRun:
        """Merge adjacent runs, oldest first."""
        first = runs[0].first
        few: dict[str, list[Rows]] = {}
        for run in runs:
            for term, rows in run._few.items():
                few.setdefault(term, []).append(rows + np.uint32(run.first - first))
        texts = pa.concat_arrays([run._tags for run in runs]).dictionary_encode()
        tag_of_slot = numbers_of(texts.indices)
        hashes = np.empty(len(texts.dictionary), np.uint64)
        hashes[tag_of_slot] = np.concatenate([run._hashes for run in runs])
        codes = np.repeat(tag_of_slot, np.concatenate([np.diff(run._ends) for run in runs]))
        rows = np.concatenate([run._rows + np.uint32(run.first - first) for run in runs])
        joined = {term: np.concatenate(parts) for term, parts in few.items()}
        return SortedRun.ordered(first, runs[-1].last, joined, texts.dictionary, hashes, codes, rows)

    def upto(self, last: int) -> SortedRun:
        """The same run without the numbers above that one."""
        top = last - self.first
        few = {term: rows[rows <= top] for term, rows in self._few.items()}
        is_kept = self._rows <= top
        codes = np.repeat(np.arange(len(self._hashes)), np.diff(self._ends))[is_kept]
        return SortedRun.ordered(self.first, last, few, self._tags, self._hashes, codes, self._rows[is_kept])

    def values_of(self, terms: Iterable[tuple[str, str]]) -> list[Sequence[int]]:
        """See Postings."""
        return [values for kind, term in terms if len(values := self._values_of(kind, term))]

    def _values_of(self, kind: str, term: str) -> Sequence[int]:
        if kind == TAG:
            return self._values_of_tag(term)
        if kind == KEY:
            return self._values_of_key(term)
        found = self._few.get(kind + term)
        return () if found is None else memoryview(found)  # type: ignore[arg-type]

    def _values_of_tag(self, tag: str) -> Sequence[int]:
        text, wanted = _hashed(tag)
        hashes, offsets, content, ends, rows = self._views
        slot = bisect_left(hashes, wanted)
        while slot < len(hashes) and hashes[slot] == wanted:
            if content[offsets[slot] : offsets[slot + 1]] == text:
                return rows[ends[slot] : ends[slot + 1]]
            slot += 1
        return ()

    def texts(self, kind: str, at_once: int) -> Iterator[list[str]]:
        """The types, or the tags, in groups of that size; some may no longer have numbers."""
        if kind == TAG:
            yield from parts_of(self._tags, at_once)
            return
        names = [term[len(kind) :] for term in self._few if term.startswith(kind)]
        for at in range(0, len(names), at_once):
            yield names[at : at + at_once]

    def encoded_terms(self) -> Iterator[tuple[bytes, Sequence[int]]]:
        """Every encoded term with its numbers, for the file."""
        first, ends, numbers = self.first, self._ends.tolist(), self._rows.astype(np.int64) + self.first
        for term, rows in self._few.items():
            if len(rows):
                yield term.encode(), (rows.astype(np.int64) + first).tolist()
        for slot, tag in enumerate(chain.from_iterable(parts_of(self._tags))):
            if ends[slot + 1] > ends[slot]:
                yield (TAG + tag).encode(), numbers[ends[slot] : ends[slot + 1]].tolist()
        for key in self._slots():
            if len(found := self._values_of_key(key)):
                yield (KEY + key).encode(), [value + first for value in found]

    def columns(self) -> Columns | None:
        """The body of its file, built in arrays; None if two terms share a hash or there are none."""
        of_tags = np.diff(self._ends).astype(np.int64)
        keys, key_rows, of_keys = self._by_key(of_tags)
        names = [term.encode() for term in (*self._few, *(KEY + key for key in keys))]
        texts = np.concatenate([np.frombuffer(b"".join(names), np.uint8), _with_kind(TAG, self._tags)])
        lengths = np.concatenate(
            [np.array([len(name) for name in names], np.int64), np.diff(offsets_of(self._tags)) + 1]
        )
        counts = np.concatenate([np.array([len(rows) for rows in self._few.values()], np.int64), of_keys, of_tags])
        rows = np.concatenate([*self._few.values(), key_rows, self._rows]).astype(np.uint32)
        there = np.flatnonzero(counts)
        if not len(there):
            return None
        terms = Pieces(texts, np.cumsum(lengths) - lengths, lengths).taken(there)
        view, ends = memoryview(terms.content), (terms.starts + terms.lengths).tolist()  # type: ignore[arg-type]
        pieces = [view[start:end] for start, end in zip(terms.starts.tolist(), ends, strict=True)]
        hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, pieces), np.uint64, len(pieces))
        return grouped(hashes, terms, Pieces(rows, np.cumsum(counts) - counts, counts).taken(there))

    def _by_key(self, counts: npt.NDArray[np.int64]) -> tuple[list[str], Rows, npt.NDArray[np.int64]]:
        """The keys of its tags, the concatenated rows of the keys, and the number of rows of each."""
        known: dict[str, int] = {}
        tags = chain.from_iterable(parts_of(self._tags))
        key_of = np.fromiter((known.setdefault(tag_key(tag), len(known)) for tag in tags), np.int64, len(self._tags))
        pairs = distinct(np.repeat(key_of, counts) << 32 | self._rows.astype(np.int64))
        rows = (pairs & 0xFFFFFFFF).astype(np.uint32)
        return list(known), rows, np.bincount(pairs >> 32, minlength=len(known))

    def _values_of_key(self, key: str) -> Sequence[int]:
        """The values of a key: found on first request, and cached."""
        asked = self._asked_keys
        if (found := asked.get(key)) is None:
            if len(asked) >= ASKED_KEYS_MAX:  # arbitrary keys are being requested
                asked = self._asked_keys = {}
            found = asked[key] = self._merged(self._slots().get(key, []))
        return found

    def _merged(self, slots: Sequence[int]) -> Sequence[int]:
        ends = self._ends
        parts = [self._rows[ends[slot] : ends[slot + 1]] for slot in slots]
        return memoryview(distinct(np.concatenate(parts))) if parts else ()  # type: ignore[arg-type]

    def _slots(self) -> dict[str, list[int]]:
        """The positions of the tags of each key."""
        if self._slots_of_keys is None:
            found: dict[str, list[int]] = {}
            for slot, tag in enumerate(chain.from_iterable(parts_of(self._tags))):
                found.setdefault(tag_key(tag), []).append(slot)
            self._slots_of_keys = found
        return self._slots_of_keys


class RunPostings:
    """Runs of adjacent ranges. One thread changes them; any thread may read."""

    def __init__(self, first: int, *, has_partitions: bool) -> None:
        self.first = first
        self._has_partitions = has_partitions
        self.runs: tuple[SortedRun, ...] = ()
        """The postings, ascending and adjacent."""
        self._merges: list[int] = []
        """The number of times that each run was merged."""

    @property
    def last(self) -> int:
        """The range is `first` to `last`."""
        return self.runs[-1].last if self.runs else self.first - 1

    @property
    def weight(self) -> int:
        """The bytes of its events: see `backlog`."""
        return ID_BYTES * (self.last - self.first + 1) + sum([run.nbytes for run in self.runs])

    def apply_coded(self, first: int, types: Coded, tags: Coded, partitions: Sequence[int]) -> None:
        """Add events numbered from `first` on."""
        self.apply_run(SortedRun.of(first, types, tags, partitions if self._has_partitions else None))

    def apply_run(self, run: SortedRun) -> None:
        """Add the postings of the next events, as from `SortedRun.of`."""
        runs = [*self.runs, run]
        merges = [*self._merges, 0]
        while len(runs) >= MERGED_RUNS and merges[-MERGED_RUNS] == merges[-1]:
            runs[-MERGED_RUNS:] = [SortedRun.merged(runs[-MERGED_RUNS:])]
            merges[-MERGED_RUNS:] = [merges[-1] + 1]
        self.runs, self._merges = tuple(runs), merges

    def rollback(self, above: int) -> None:
        """Forget the events above that number."""
        kept = [run if run.last <= above else run.upto(above) for run in self.runs if run.first <= above]
        self.runs, self._merges = tuple(kept), self._merges[: len(kept)]

    def encoded_terms(self) -> Iterator[tuple[bytes, Sequence[int]]]:
        """Every encoded term with its numbers."""
        return SortedRun.merged(self.runs).encoded_terms() if self.runs else iter(())

    def columns(self) -> Columns | None:
        """See SortedRun."""
        return SortedRun.merged(self.runs).columns() if self.runs else None


def _with_kind(kind: str, terms: pa.StringArray) -> npt.NDArray[np.uint8]:
    """The concatenated texts of terms as in a file: each after its kind."""
    offsets = offsets_of(terms).astype(np.int64)
    starts = offsets[:-1] - offsets[0] + np.arange(len(terms))
    joined = np.empty(int(offsets[-1] - offsets[0]) + len(terms), np.uint8)
    is_text = np.ones(len(joined), bool)
    is_text[starts] = False
    joined[starts] = ord(kind)
    joined[is_text] = np.frombuffer(buffer_of(terms), np.uint8)
    return joined


def _grouped(codes: Codes, rows: Rows, count: int) -> tuple[Rows, Rows]:
    """The concatenated rows of `count` codes, and the start of each code's rows; the last entry is the end."""
    ends = np.zeros(count + 1, np.uint32)
    np.cumsum(np.bincount(codes, minlength=count), out=ends[1:])
    if count <= 0xFFFF:
        codes = codes.astype(np.uint16)  # sorted in linear time
    return np.ascontiguousarray(rows[np.argsort(codes, kind="stable")]), ends


def _few(kind: str, terms: Iterable[str], codes: Codes, rows: Rows) -> Few:
    terms = list(terms)
    grouped, ends = _grouped(codes, rows, len(terms))
    return {kind + term: grouped[start:end] for term, (start, end) in zip(terms, pairwise(ends.tolist()), strict=True)}


@lru_cache(maxsize=4096)
def _hashed(tag: str) -> tuple[bytes, int]:
    """An encoded tag and its hash; the hash is looked up in every run in turn."""
    text = tag.encode()
    return text, xxhash.xxh3_64_intdigest(text)


def _hashes_of(tags: pa.StringArray) -> Hashes:
    texts = chain.from_iterable(parts_of(tags.cast(pa.binary())))
    return np.fromiter(map(xxhash.xxh3_64_intdigest, texts), np.uint64, len(tags))
