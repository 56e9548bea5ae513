"""Merges postings files: in arrays at once if they are small enough, otherwise term by term."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .postings import Columns, Entry, FilePostings, in_order, write_columns, write_entries

NUMBERS_AT_ONCE = 4_000_000
TEXT_BYTES_AT_ONCE = 32 * 1024 * 1024
"""Larger files are merged term by term, in about the memory of the result; merging at once takes four times as much."""

Array = npt.NDArray[Any]


def merge_postings(paths: Sequence[Path], directory: Path) -> Path:
    """Merge postings files of adjacent ranges, oldest first.

    Raises ValueError if one of them is damaged: wrong data must not get a valid checksum.
    """
    runs = [FilePostings(path) for path in paths]
    for run in runs:
        run.verify()
    first, last = runs[0].first, runs[-1].last
    if are_small(runs) and (columns := _merged_at_once(runs)) is not None:
        return write_columns(directory, first, last, columns)
    return write_entries(directory, first, last, _merged([run.entries() for run in runs]))


def are_small(runs: Sequence[FilePostings]) -> bool:
    """Whether the files are merged in arrays at once, unless two terms share a hash."""
    numbers, text_bytes = sum(len(run.values) for run in runs), sum(len(run.texts) for run in runs)
    return 0 < numbers <= NUMBERS_AT_ONCE and text_bytes <= TEXT_BYTES_AT_ONCE


def _merged(streams: Sequence[Iterator[Entry]]) -> Iterator[Entry]:
    for (digest, text), group in groupby(heapq.merge(*streams, key=in_order), key=in_order):
        yield digest, text, [number for _, _, numbers in group for number in numbers]


def _merged_at_once(runs: Sequence[FilePostings]) -> Columns | None:
    """Merge in arrays; None if two terms share a hash."""
    base = runs[0].first
    hashes = np.concatenate([np.frombuffer(run.hashes, np.uint64) for run in runs])
    texts = np.concatenate([np.frombuffer(run.texts, np.uint8) for run in runs])
    values = np.concatenate([np.frombuffer(run.values, np.uint32) + np.uint32(run.first - base) for run in runs])
    return grouped(
        hashes,
        Pieces(texts, *_extents([run.text_offsets for run in runs])),
        Pieces(values, *_extents([run.offsets for run in runs])),
    )


class Pieces(NamedTuple):
    """Pieces of an array, one for each term."""

    content: Array
    starts: Array
    lengths: Array

    def taken(self, indexes: Array) -> Pieces:
        """The pieces at the indexes."""
        return Pieces(self.content, self.starts[indexes], self.lengths[indexes])

    def joined(self) -> Array:
        """The pieces as one array."""
        begins = np.cumsum(self.lengths) - self.lengths
        where = np.repeat(self.starts - begins, self.lengths) + np.arange(int(self.lengths.sum()))
        taken: Array = self.content[where]
        return taken


def grouped(hashes: Array, texts: Pieces, numbers: Pieces) -> Columns | None:
    """The body of a file with these terms; numbers of equal terms are joined in order.

    None if two different terms share a hash; the caller must then write term by term.
    """
    order = np.argsort(hashes, kind="stable")
    hashes, texts, numbers = hashes[order], texts.taken(order), numbers.taken(order)
    is_first = np.ones(len(hashes), bool)
    is_first[1:] = hashes[1:] != hashes[:-1]
    firsts, again = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    same, known = texts.taken(again), texts.taken(firsts[np.cumsum(is_first)[again] - 1])
    if not np.array_equal(same.lengths, known.lengths) or not np.array_equal(same.joined(), known.joined()):
        return None
    texts = texts.taken(firsts)
    return Columns(
        hashes[firsts].tobytes(),
        _offsets(texts.lengths),
        _offsets(np.add.reduceat(numbers.lengths, firsts)),
        numbers.joined().tobytes(),
        texts.joined().tobytes(),
    )


def _extents(offsets: Sequence[memoryview]) -> tuple[Array, Array]:
    """The starts of the pieces of several concatenated runs, and their lengths."""
    starts, lengths, base = [], [], 0
    for each in offsets:
        ends = np.frombuffer(each, np.uint32).astype(np.int64)
        starts.append(ends[:-1] + base)
        lengths.append(np.diff(ends))
        base += int(ends[-1])
    return np.concatenate(starts), np.concatenate(lengths)


def _offsets(lengths: Array) -> bytes:
    ends = np.zeros(len(lengths) + 1, np.uint32)
    np.cumsum(lengths, out=ends[1:])
    return ends.tobytes()
