"""Postings: the events with a type, a tag, a tag key or a partition. Derived from frames, rebuildable.

`ActivePostings` is the part in memory, for the newest segment; `FilePostings` is an immutable file for older ones.
Terms are stored as text, not only as hashes, so that conditions stay exact after the events are trimmed.
"""

from __future__ import annotations

import mmap
import struct
import threading
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import xxhash

from ...core.event import tag_key
from ...core.query import QueryItem
from ...formats.arrow.columns import Coded, distinct, parts_of
from ..disk.checked_file import LEAD_BYTES, check_lead, check_rest, lead_of
from ..disk.system import write_whole
from ..frames.frame import ARROW_MIN, Frame

ASKED_KEYS_MAX = 256
PART_EVENTS = 512
"""The number of events to add before the size of the tag table is checked again."""
TABLE_TAGS_MAX = 128 * 1024
"""A larger table is split into many: growing moves a whole table in one call, which takes about 5 ms at this size."""
TABLES = 64
TYPE, TAG, KEY, PARTITION = "t", "g", "k", "p"
"""Kinds of terms; a file stores a term as its kind and text."""


def tag_terms(item: QueryItem) -> list[tuple[str, str]]:
    """The terms (kind and text) of an event whose tags match the item."""
    terms: list[tuple[str, str]] = []
    for tag in item.tags:
        terms.append((TAG if ":" in tag else KEY, tag))
    for tag in item.exact_tags:
        terms.append((TAG, tag))
    return terms


class Numbers:
    """Ascending sequence numbers of one term: `values[i] + base`."""

    __slots__ = ("base", "values")

    def __init__(self, values: Sequence[int], base: int = 0) -> None:
        self.values, self.base = values, base

    def __len__(self) -> int:
        return len(self.values)

    def reaches(self, number: int) -> bool:
        """Whether any of the numbers is at least that high."""
        return len(self.values) > 0 and self.values[-1] + self.base >= number

    def above(self, number: int) -> int:
        """The index of the first number above that one."""
        return bisect_right(self.values, number - self.base)

    def has(self, number: int) -> bool:
        """Whether the number is one of them."""
        values, wanted = self.values, number - self.base
        index = bisect_left(values, wanted)
        return index < len(values) and values[index] == wanted


class Postings(ABC):
    """The postings of a range of numbers."""

    first: int
    last: int
    """The range is `first` to `last`."""
    base: int
    """Added to a value, it gives the number."""

    @abstractmethod
    def values_of(self, terms: Iterable[tuple[str, str]]) -> list[Sequence[int]]:
        """The ascending values of each of these terms (kind and text) that occurs."""

    def numbers(self, kind: str, term: str) -> Numbers | None:
        """The numbers of a term; None if it does not occur."""
        found = self.values_of(((kind, term),))
        return Numbers(found[0], self.base) if found else None


_TagTable = dict[str, int | list[int]]
"""Tags with their numbers; a bare number if there is only one, the usual case."""


TagsOfKeys = dict[str, str | list[str]]
"""Keys with their tags: usually many, or just one."""


class ActivePostings(Postings):
    """Postings in memory. One thread changes them; any thread may read (and sees more than is durable)."""

    base = 0

    def __init__(self, first: int, *, has_partitions: bool) -> None:
        self.first = first
        self.weight = 0
        """The bytes of its events, added by `Index`: see `backlog`."""
        self.last = first - 1
        self._has_partitions = has_partitions
        self._tags: list[_TagTable] = [{}]
        """One table, or TABLES of them, chosen by the hash of the tag."""
        self._types: defaultdict[str, list[int]] = defaultdict(list)
        self._partitions: defaultdict[str, list[int]] = defaultdict(list)
        self._tags_of_keys: TagsOfKeys | None = None
        """The tags of each key: built when a key is first requested, and maintained from then on."""
        self._asked_keys: dict[str, list[int]] = {}
        """The postings of keys with several tags: built when a key is first requested, and maintained from then on."""
        self._lock = threading.Lock()

    def apply(
        self,
        first: int,
        types: Sequence[str],
        tags: Sequence[tuple[str, ...]],
        partitions: Sequence[int],
    ) -> None:
        """Add events numbered from `first` on."""
        with self._lock:
            if len(types) <= PART_EVENTS and len(self._tags) == 1:
                self._enter(first, types, tags)
            else:
                self._enter_parts(first, types, tags)
            if self._has_partitions:
                for number, partition in enumerate(partitions, first):
                    self._partitions[str(partition)].append(number)
            if self._asked_keys:
                self._apply_keys(first, tags)
            self.last = first + len(types) - 1

    def _enter(self, number: int, types: Sequence[str], tags: Sequence[tuple[str, ...]]) -> None:
        """Add to a single table. This is nearly always the case, so the loop is short."""
        type_postings, table, tags_of_keys = self._types, self._tags[0], self._tags_of_keys
        get = table.get
        for type, tags_of_event in zip(types, tags, strict=True):
            type_postings[type].append(number)
            for tag in tags_of_event:
                found = get(tag)
                if found is None:
                    table[tag] = number
                    if tags_of_keys is not None:
                        _add_tag(tags_of_keys, tag)
                elif isinstance(found, int):
                    table[tag] = [found, number]
                else:
                    found.append(number)
            number += 1
        if len(table) > TABLE_TAGS_MAX:
            self._tags = _split(table)

    def _enter_parts(self, first: int, types: Sequence[str], tags: Sequence[tuple[str, ...]]) -> None:
        for start in range(0, len(types), PART_EVENTS):
            enter = self._enter if len(self._tags) == 1 else self._enter_by_hash
            enter(first + start, types[start : start + PART_EVENTS], tags[start : start + PART_EVENTS])

    def _enter_by_hash(self, number: int, types: Sequence[str], tags: Sequence[tuple[str, ...]]) -> None:
        type_postings, tables, tags_of_keys = self._types, self._tags, self._tags_of_keys
        for type, tags_of_event in zip(types, tags, strict=True):
            type_postings[type].append(number)
            for tag in tags_of_event:
                table = tables[hash(tag) & TABLES - 1]
                found = table.get(tag)
                if found is None:
                    table[tag] = number
                    if tags_of_keys is not None:
                        _add_tag(tags_of_keys, tag)
                elif isinstance(found, int):
                    table[tag] = [found, number]
                else:
                    found.append(number)
            number += 1

    def apply_frame(self, frame: Frame) -> None:
        """Add the events of a frame."""
        if frame.count < ARROW_MIN:
            self.apply(frame.first, frame.types(), frame.tags(), frame.partitions())
        else:
            self.apply_coded(frame.first, frame.coded_types(), frame.coded_tags(), frame.partitions())

    def apply_coded(self, first: int, types: Coded, tags: Coded, partitions: Sequence[int]) -> None:
        """Like `apply`, for many events with coded types and tags."""
        with self._lock:
            count = len(types.codes)
            for type, numbers in _numbers_of_terms(types, first):
                self._types[type] += numbers
            tags_of_keys = self._tags_of_keys
            for tag, numbers in _numbers_of_terms(tags, first):
                table = self._table_of(tag)
                found = table.get(tag)
                if found is None:
                    table[tag] = numbers if len(numbers) > 1 else numbers[0]
                    if tags_of_keys is not None:
                        _add_tag(tags_of_keys, tag)
                    if len(table) > TABLE_TAGS_MAX and len(self._tags) == 1:
                        self._tags = _split(table)
                elif isinstance(found, int):
                    table[tag] = [found, *numbers]
                else:
                    found += numbers
            if self._has_partitions:
                assigned = np.asarray(partitions)
                for partition in distinct(assigned).tolist():
                    self._partitions[str(partition)] += (np.flatnonzero(assigned == partition) + first).tolist()
            for key, numbers in self._asked_keys.items():
                numbers += _numbers_of_key(key, tags, first)
            self.last = first + count - 1

    def rollback(self, above: int) -> None:
        """Forget the events above that number (rare; linear in the terms)."""
        with self._lock:
            for postings in (self._types, self._partitions, self._asked_keys):
                for term, numbers in list(postings.items()):
                    del numbers[bisect_right(numbers, above) :]
                    if not numbers:
                        del postings[term]
            for table in self._tags:
                for tag, found in list(table.items()):
                    kept = [n for n in ([found] if isinstance(found, int) else found) if n <= above]
                    if kept:
                        table[tag] = kept
                    else:
                        del table[tag]
                        self._tags_of_keys = None
            self.last = min(self.last, above)

    def values_of(self, terms: Iterable[tuple[str, str]]) -> list[Sequence[int]]:
        """See Postings."""
        found: list[Sequence[int]] = []
        tables = self._tags
        for kind, term in terms:
            if kind == TAG:
                numbers = tables[hash(term) & len(tables) - 1].get(term)
            elif kind == KEY:
                numbers = self._numbers_of_key(term)
            else:
                numbers = (self._types if kind == TYPE else self._partitions).get(term)
            if numbers:
                found.append((numbers,) if isinstance(numbers, int) else numbers)
        return found

    def terms(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Every term (kind and text) with its numbers, for the file."""
        for type, numbers in self._types.items():
            yield TYPE + type, numbers
        for partition, numbers in self._partitions.items():
            yield PARTITION + partition, numbers
        for tag, found in self._tagged():
            yield TAG + tag, (found,) if isinstance(found, int) else found
        for key, tags in self._grouped().items():
            yield KEY + key, self._merged(tags)

    def texts(self, kind: str, at_once: int) -> Iterator[list[str]]:
        """The types, or the tags, at the time of the call, in groups of that size."""
        for names in [list(self._types)] if kind == TYPE else map(list, list(self._tags)):
            for at in range(0, len(names), at_once):
                yield names[at : at + at_once]

    def encoded_terms(self) -> Iterator[tuple[bytes, Sequence[int]]]:
        """Like `terms`, encoded."""
        for term, numbers in self.terms():
            yield term.encode(), numbers

    def _table_of(self, tag: str) -> _TagTable:
        tables = self._tags
        return tables[hash(tag) & len(tables) - 1]

    def _tagged(self) -> Iterator[tuple[str, int | list[int]]]:
        """Every tag with its numbers."""
        return chain.from_iterable([table.items() for table in self._tags])

    def _numbers_of_key(self, key: str) -> int | list[int] | None:
        with self._lock:
            if self._tags_of_keys is None:
                self._tags_of_keys = self._grouped()
            tags = self._tags_of_keys.get(key)
            if tags is None:
                return None
            if isinstance(tags, str):  # like every tag without a colon: nothing to merge or maintain
                return self._table_of(tags).get(tags)
            if (numbers := self._asked_keys.get(key)) is None:
                if len(self._asked_keys) >= ASKED_KEYS_MAX:  # arbitrary keys are being requested
                    self._asked_keys.clear()
                numbers = self._asked_keys[key] = self._merged(tags)
            return numbers

    def _merged(self, tags: str | list[str]) -> list[int]:
        """The numbers of all these tags, ascending and distinct."""
        found: set[int] = set()
        for tag in (tags,) if isinstance(tags, str) else tags:
            numbers = self._table_of(tag)[tag]
            found.update((numbers,) if isinstance(numbers, int) else numbers)
        return sorted(found)

    def _grouped(self) -> TagsOfKeys:
        """All tags by key."""
        found: TagsOfKeys = {}
        for table in self._tags:
            for tag in table:
                _add_tag(found, tag)
        return found

    def _apply_keys(self, first: int, tags: Sequence[tuple[str, ...]]) -> None:
        for number, tags_of_event in enumerate(tags, first):
            for key in {tag_key(tag) for tag in tags_of_event}:
                if (numbers := self._asked_keys.get(key)) is not None:
                    numbers.append(number)


def _split(table: _TagTable) -> list[_TagTable]:
    """Split it into many tables. Nothing else changes it meanwhile; readers see it before or after."""
    tables: list[_TagTable] = [{} for _ in range(TABLES)]
    for tag, numbers in table.items():
        tables[hash(tag) & TABLES - 1][tag] = numbers
    return tables


def _add_tag(tags_of_keys: TagsOfKeys, tag: str) -> None:
    key = tag_key(tag)
    tags = tags_of_keys.get(key)
    if tags is None:
        tags_of_keys[key] = tag
    elif isinstance(tags, str):
        tags_of_keys[key] = [tags, tag]
    else:
        tags.append(tag)


def _numbers_of_terms(coded: Coded, first: int) -> Iterator[tuple[str, list[int]]]:
    """Each term with the numbers of its events, ascending; event `i` has number `first` + i."""
    terms, codes, rows = coded
    if len(terms) <= 0xFFFF:
        codes = codes.astype(np.uint16)  # sorted in linear time
    order = np.argsort(codes, kind="stable")
    numbers = (order if rows is None else rows[order]) + first
    counts = np.bincount(codes, minlength=len(terms))
    ends = np.cumsum(counts)
    at = 0
    for part in parts_of(terms):
        its_counts = counts[at : at + len(part)].tolist()
        end = int(ends[at + len(part) - 1])
        its_numbers = numbers[end - sum(its_counts) : end].tolist()
        at, end = at + len(part), 0
        for term, count in zip(part, its_counts, strict=True):
            start, end = end, end + count
            if count:
                yield term, its_numbers[start:end]


def _numbers_of_key(key: str, tags: Coded, first: int) -> list[int]:
    terms, codes, rows = tags
    assert rows is not None
    wanted = np.fromiter((tag_key(term) == key for part in parts_of(terms) for term in part), bool, len(terms))
    numbers: list[int] = (distinct(rows[wanted[codes]]) + first).tolist()
    return numbers


MAGIC = b"HWPOST1\0"
_HEADER = struct.Struct("<QQQQ8s")
"""After the lead: first, last, terms, numbers, spare"""


class FilePostings(Postings):
    """Postings in an immutable file: sorted hashes of terms, the offsets of their texts and numbers, the numbers."""

    def __init__(self, path: Path) -> None:
        """Map the file. Raises ValueError if it is incomplete (then rebuild it)."""
        self.path = path
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        check_lead(self._map, MAGIC, _HEADER.size, path)
        buffer = memoryview(self._map)
        self.first, self.last, terms, numbers, _ = _HEADER.unpack_from(buffer, LEAD_BYTES)
        self.base = self.first
        widths = (8 * terms, 4 * (terms + 1), 4 * (terms + 1), 4 * numbers)
        if len(buffer) < LEAD_BYTES + _HEADER.size + sum(widths):
            raise ValueError(f"{path}: incomplete postings file")
        parts, at = [], LEAD_BYTES + _HEADER.size
        for width in widths:
            parts.append(buffer[at : at + width])
            at += width
        self._count = terms
        self.hashes = parts[0].cast("Q")
        self.text_offsets = parts[1].cast("I")
        self.offsets = parts[2].cast("I")
        self.values = parts[3].cast("I")
        self.texts = buffer[at:]
        self._texts_at = at

    def verify(self) -> None:
        """Raises ValueError if the checksum does not match."""
        check_rest(self._map, self.path)

    def values_of(self, terms: Iterable[tuple[str, str]]) -> list[Sequence[int]]:
        """See Postings."""
        hashes, text_offsets, texts = self.hashes, self.text_offsets, self._texts_at
        found: list[Sequence[int]] = []
        for kind, term in terms:
            text, wanted = _hashed(kind, term)
            slot = bisect_left(hashes, wanted)
            while slot < self._count and hashes[slot] == wanted:
                if self._map[texts + text_offsets[slot] : texts + text_offsets[slot + 1]] == text:
                    found.append(self.values[self.offsets[slot] : self.offsets[slot + 1]])
                    break
                slot += 1
        return found

    def entries(self) -> Iterator[Entry]:
        """All entries of the file, in order."""
        for slot, digest in enumerate(self.hashes):
            text = bytes(self.texts[self.text_offsets[slot] : self.text_offsets[slot + 1]])
            yield digest, text, [n + self.first for n in self.values[self.offsets[slot] : self.offsets[slot + 1]]]


@lru_cache(maxsize=4096)
def _hashed(kind: str, term: str) -> tuple[bytes, int]:
    """A term as stored in files, and its hash; the hash is looked up in every file in turn."""
    text = (kind + term).encode()
    return text, xxhash.xxh3_64_intdigest(text)


def postings_name(first: int, last: int) -> str:
    """The name of the postings file of that range."""
    return f"{first:020d}-{last:020d}.postings"


Entry = tuple[int, bytes, Sequence[int]]
"""(hash of the term, the term, its numbers): the entries of a file, in this order."""


def write_postings(directory: Path, first: int, last: int, terms: Iterable[tuple[bytes, Sequence[int]]]) -> Path:
    """Durably write a postings file, under its final name or not at all."""
    entries = sorted(((xxhash.xxh3_64_intdigest(text), text, numbers) for text, numbers in terms), key=in_order)
    return write_entries(directory, first, last, entries)


def in_order(entry: Entry) -> tuple[int, bytes]:
    """The sort key of terms in a file."""
    return entry[:2]


def write_entries(directory: Path, first: int, last: int, entries: Iterable[Entry]) -> Path:
    """Like `write_postings`, for entries already in file order."""
    hashes, values, texts = array("Q"), array("I"), bytearray()
    text_offsets, offsets = array("I", [0]), array("I", [0])
    for digest, text, numbers in entries:
        hashes.append(digest)
        texts += text
        values.extend([number - first for number in numbers])
        text_offsets.append(len(texts))  # raises OverflowError rather than wrapping
        offsets.append(len(values))
    return write_columns(directory, first, last, Columns(hashes, text_offsets, offsets, values, texts))


Column: TypeAlias = "bytes | bytearray | array[int]"


class Columns(NamedTuple):
    """The body of a postings file."""

    hashes: Column
    """The hash of each term, 8 bytes, ascending."""
    text_offsets: Column
    """The start of the text of each term and the end of the last one, 4 bytes each; `offsets` has the same for its
    numbers."""
    offsets: Column
    values: Column
    """The numbers of all terms, relative to the first of the range, 4 bytes each."""
    texts: Column


def write_columns(directory: Path, first: int, last: int, columns: Columns) -> Path:
    """Durably write a postings file, under its final name or not at all."""
    body = b"".join(columns)
    terms, numbers = memoryview(columns.hashes).nbytes // 8, memoryview(columns.values).nbytes // 4
    header = _HEADER.pack(first, last, terms, numbers, b"")
    return write_whole(directory / postings_name(first, last), lead_of(MAGIC, header, body), header, body)
