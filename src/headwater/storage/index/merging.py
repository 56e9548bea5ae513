"""Merging files of postings: at once in arrays where they are small enough, else term by term."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .postings import Columns, Entry, FilePostings, in_order, write_columns, write_entries

NUMBERS_AT_ONCE = 4_000_000
TEXT_BYTES_AT_ONCE = 32 * 1024 * 1024
"""Files with more are merged term by term, in about the memory of the result; at once it takes four times as much."""

Array = npt.NDArray[Any]


def merge_postings(paths: Sequence[Path], directory: Path) -> Path:
    """One file of postings for adjacent ranges, oldest first.

    Raises ValueError if one of them is damaged: a checksum must not bless what is wrong in it.
    """
    runs = [FilePostings(path) for path in paths]
    for run in runs:
        run.verify()
    first, last = runs[0].first, runs[-1].last
    numbers, text_bytes = sum(len(run.values) for run in runs), sum(len(run.texts) for run in runs)
    is_small = 0 < numbers <= NUMBERS_AT_ONCE and text_bytes <= TEXT_BYTES_AT_ONCE
    if is_small and (columns := _merged_at_once(runs)) is not None:
        return write_columns(directory, first, last, columns)
    return write_entries(directory, first, last, _merged([run.entries() for run in runs]))


def _merged(streams: Sequence[Iterator[Entry]]) -> Iterator[Entry]:
    for (digest, text), group in groupby(heapq.merge(*streams, key=in_order), key=in_order):
        yield digest, text, [number for _, _, numbers in group for number in numbers]


def _merged_at_once(runs: Sequence[FilePostings]) -> Columns | None:
    """None if two terms share a hash, which is as good as never so."""
    hashes = np.concatenate([np.frombuffer(run.hashes, np.uint64) for run in runs])
    order = np.argsort(hashes, kind="stable")  # of one term, the numbers of older runs come first
    hashes = hashes[order]
    is_first = np.ones(len(hashes), bool)
    is_first[1:] = hashes[1:] != hashes[:-1]
    firsts = np.flatnonzero(is_first)
    texts = np.concatenate([np.frombuffer(run.texts, np.uint8) for run in runs])
    starts, lengths = _extents([run.text_offsets for run in runs])
    starts, lengths = starts[order], lengths[order]
    again = np.flatnonzero(~is_first)
    known = firsts[np.cumsum(is_first)[again] - 1]
    if not np.array_equal(lengths[again], lengths[known]) or not np.array_equal(
        _gathered(texts, starts[again], lengths[again]), _gathered(texts, starts[known], lengths[known])
    ):
        return None
    base = runs[0].first
    values = np.concatenate([np.frombuffer(run.values, np.uint32) + np.uint32(run.first - base) for run in runs])
    value_starts, counts = _extents([run.offsets for run in runs])
    value_starts, counts = value_starts[order], counts[order]
    return Columns(
        hashes[firsts].tobytes(),
        _offsets(lengths[firsts]),
        _offsets(np.add.reduceat(counts, firsts)),
        _gathered(values, value_starts, counts).tobytes(),
        _gathered(texts, starts[firsts], lengths[firsts]).tobytes(),
    )


def _extents(offsets: Sequence[memoryview]) -> tuple[Array, Array]:
    """Where the pieces of several runs begin when these follow each other, and their lengths."""
    starts, lengths, base = [], [], 0
    for each in offsets:
        ends = np.frombuffer(each, np.uint32).astype(np.int64)
        starts.append(ends[:-1] + base)
        lengths.append(np.diff(ends))
        base += int(ends[-1])
    return np.concatenate(starts), np.concatenate(lengths)


def _gathered(content: Array, starts: Array, lengths: Array) -> Array:
    """Pieces of an array, one after the other."""
    begins = np.cumsum(lengths) - lengths
    return content[np.repeat(starts - begins, lengths) + np.arange(int(lengths.sum()))]


def _offsets(lengths: Array) -> bytes:
    ends = np.zeros(len(lengths) + 1, np.uint32)
    np.cumsum(lengths, out=ends[1:])
    return ends.tobytes()
