"""Matches many events at a time against a query: over columns of frames, or over the postings of sealed segments.

Equivalent to `core.Query.matches` event by event, and to `index.matches` number by number.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.query import Query, QueryItem
from ...formats.arrow.columns import array_of, distinct, numbers_of
from ..frames.columns import Bits, Ints
from ..index.builder import postings_ranges
from ..index.postings import KEY, PARTITION, TYPE, FilePostings, Numbers, Postings, postings_name, tag_terms

logger = logging.getLogger("headwater.storage")


def matching_rows(types: pa.Array, tags: pa.Array, query: Query) -> Bits:
    """Whether each event with these types and tags matches."""
    if query.items is None:
        return np.ones(len(types), np.bool_)
    named = _TypesNamed(types) if any(item.types for item in query.items) else None
    tagged = _Tagged(tags, {term for item in query.items for term in tag_terms(item)})
    matches = np.zeros(len(types), np.bool_)
    for item in query.items:
        found = np.ones(len(types), np.bool_) if named is None or not item.types else named.any_of(item.types)
        for term in tag_terms(item):
            found &= tagged.rows(term)
        matches |= found
    return matches


class _TypesNamed:
    """The types of some events, by name; there are few distinct types."""

    def __init__(self, types: pa.Array) -> None:
        encoded = types.dictionary_encode()
        self._codes = {type: code for code, type in enumerate(encoded.dictionary.to_pylist())}
        self._indices = numbers_of(encoded.indices)

    def any_of(self, names: Sequence[str]) -> Bits:
        """Whether the type of each event is one of these."""
        is_named = np.zeros(len(self._codes) + 1, np.bool_)
        is_named[[self._codes[name] for name in names if name in self._codes]] = True
        found: Bits = is_named[self._indices]
        return found


class _Tagged:
    """The events with each requested tag, as kind and text. All tags are scanned once, and again for each key."""

    def __init__(self, tags: pa.Array, asked: set[tuple[str, str]]) -> None:
        self._size = len(tags)
        self._rows: dict[tuple[str, str], Ints] = {}
        if not asked:
            return
        offsets = numbers_of(tags.offsets)
        members = tags.values.slice(offsets[0], offsets[-1] - offsets[0])
        ordered = sorted({tag for _, tag in asked})
        found = pc.index_in(members, value_set=pa.array(ordered, pa.string()))
        hits = numbers_of(pc.indices_nonzero(found.is_valid())).astype(np.int64)
        which = numbers_of(found.take(array_of(hits)))
        codes = {tag: code for code, tag in enumerate(ordered)}
        for kind, tag in asked:
            of_tag = hits[which == codes[tag]]
            if kind == KEY:
                of_key = numbers_of(pc.indices_nonzero(pc.starts_with(members, tag + ":"))).astype(np.int64)
                of_tag = np.concatenate([of_tag, of_key])
            self._rows[kind, tag] = np.searchsorted(offsets - offsets[0], of_tag, "right") - 1

    def rows(self, term: tuple[str, str]) -> Bits:
        """Whether each event has that tag, or a tag with that key."""
        found = np.zeros(self._size, np.bool_)
        found[self._rows[term]] = True
        return found


def matching_numbers(postings: Postings, low: int, high: int, query: Query, partition: int | None) -> Ints:
    """The matching numbers from `low` to `high`, ascending."""
    items = query.items if query.items is not None else (QueryItem(),)
    found = [_numbers_of(postings, low, high, item, partition) for item in items]
    return found[0] if len(found) == 1 else distinct(np.concatenate(found))


def matches_max(postings: Postings, low: int, high: int, query: Query) -> int:
    """An upper bound of the matches from `low` to `high`, from the number of events per term, without a scan."""

    def having(kind: str, term: str) -> int:
        numbers = postings.numbers(kind, term)
        return 0 if numbers is None else numbers.above(high) - numbers.above(low - 1)

    found, every = 0, high - low + 1
    for item in query.items if query.items is not None else (QueryItem(),):
        counts = [having(*term) for term in tag_terms(item)]
        if item.types:
            counts.append(sum([having(TYPE, type) for type in item.types]))
        found += min(counts, default=every)
    return min(found, every)


def _numbers_of(postings: Postings, low: int, high: int, item: QueryItem, partition: int | None) -> Ints:
    """The numbers of the rarest term, filtered by the others in turn."""
    terms = tag_terms(item)
    if partition is not None:
        terms.append((PARTITION, str(partition)))
    required = [_within(postings.numbers(*term), low, high) for term in terms]
    if item.types:
        of_types = [_within(postings.numbers(TYPE, type), low, high) for type in item.types]
        required.append(np.sort(np.concatenate(of_types)) if len(of_types) > 1 else of_types[0])
    if not required:
        return np.arange(low, high + 1)
    required.sort(key=len)
    found = required[0]
    for numbers in required[1:]:
        if not len(found):
            break
        at = np.searchsorted(numbers, found)
        found = found[numbers[np.minimum(at, len(numbers) - 1)] == found]
    return found


def _within(numbers: Numbers | None, low: int, high: int) -> Ints:
    if numbers is None:
        return np.empty(0, np.int64)
    values = np.asarray(numbers.values)
    start, end = (
        np.searchsorted(values, max(low - numbers.base, 0)),
        np.searchsorted(values, high - numbers.base, "right"),
    )
    return values[start:end].astype(np.int64) + numbers.base


class PostingsFiles:
    """The postings files of a log, opened on first use. Safe to call from any thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._ranges: list[tuple[int, int]] = []
        self._stamp = 0
        self._files: dict[tuple[int, int], FilePostings | None] = {}
        """The open files; None: not usable."""

    def list(self) -> None:
        """List the files again."""
        try:
            stamp = os.stat(self._directory).st_mtime_ns
        except FileNotFoundError:
            stamp = 0  # the index may be deleted, because it is derived
        with self._lock:
            if stamp != self._stamp:
                self._ranges, self._stamp = postings_ranges(self._directory), stamp
                self._files = {each: found for each in self._ranges if (found := self._files.get(each)) is not None}

    def covering(self, low: int, high: int) -> Postings | None:
        """The smallest file that covers these numbers; None if there is none."""
        with self._lock:
            found = [each for each in self._ranges if each[0] <= low and high <= each[1]]
            for each in sorted(found, key=lambda each: each[1] - each[0]):
                if each not in self._files:
                    self._files[each] = self._opened(each)
                if (postings := self._files[each]) is not None:
                    return postings
        return None

    def close(self) -> None:
        """Drop the files."""
        with self._lock:
            self._ranges, self._stamp = [], 0
            self._files.clear()

    def _opened(self, each: tuple[int, int]) -> FilePostings | None:
        try:
            postings = FilePostings(self._directory / postings_name(*each))
            postings.verify()
        except (OSError, ValueError) as error:  # unlinked since, or damaged: the frames are searched instead
            logger.debug("unusable postings: %s", error)
            return None
        return postings
