"""Counts the matches of a query from the index alone, in short steps, without reading events.

Mutually exclusive terms, such as types, are counted by the lengths of their postings. Otherwise the numbers are
processed span by span: those with all terms of an item are marked, and the marks are counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.counting import Counted
from ...core.event import tag_key
from ...core.query import Query
from .matches import PostingsPiece
from .postings import KEY, PARTITION, TAG, TYPE, ActivePostings, FilePostings, Numbers, Postings, tag_terms
from .runs import SortedRun

SLOTS_AT_ONCE = 16_384
"""The number of terms of a file whose prefixes are compared in one step."""
TEXTS_AT_ONCE = 1024
"""The number of terms decoded in one step."""
_COMPARED_BYTES = 8
"""The number of bytes of a prefix compared in all terms of a step at once; the rest is compared in the remaining
terms."""


def terms_of(postings: Postings, kind: str, prefix: str) -> Iterator[list[str]]:
    """The terms of that kind (types, tags or tag keys) with that prefix, in short steps; a step may return none.

    The order is undefined; a key may repeat.
    """
    if isinstance(postings, FilePostings):
        return _of_file(postings, kind, prefix)
    assert isinstance(postings, ActivePostings | SortedRun), "there are no others"
    if kind == KEY:
        return _keys(postings.texts(TAG, TEXTS_AT_ONCE), prefix)
    return _beginning(postings.texts(kind, TEXTS_AT_ONCE), prefix)


def _beginning(batches: Iterator[Sequence[str]], prefix: str) -> Iterator[list[str]]:
    for texts in batches:
        yield [text for text in texts if text.startswith(prefix)]


def _keys(batches: Iterator[Sequence[str]], prefix: str) -> Iterator[list[str]]:
    """The keys with that prefix. A prefix with a colon matches no key, because of `tag_key`."""
    for tags in batches:
        yield [key for key in {tag_key(tag) for tag in tags if tag.startswith(prefix)} if key.startswith(prefix)]


def _of_file(postings: FilePostings, kind: str, prefix: str) -> Iterator[list[str]]:
    wanted = (kind + prefix).encode()
    offsets, content = np.asarray(postings.text_offsets), np.asarray(postings.texts)
    for start in range(0, len(postings.hashes), SLOTS_AT_ONCE):
        stop = min(start + SLOTS_AT_ONCE, len(postings.hashes))
        begins, ends = offsets[start:stop].astype(np.int64), offsets[start + 1 : stop + 1].astype(np.int64)
        is_long = ends - begins >= len(wanted)
        begins, ends = begins[is_long], ends[is_long]
        for at, byte in enumerate(wanted[:_COMPARED_BYTES]):
            is_same = content[begins + at] == byte
            begins, ends = begins[is_same], ends[is_same]
        yield []
        for at in range(0, len(begins), TEXTS_AT_ONCE):
            places = zip(begins[at : at + TEXTS_AT_ONCE].tolist(), ends[at : at + TEXTS_AT_ONCE].tolist(), strict=True)
            texts = [bytes(postings.texts[begin:end]) for begin, end in places]
            yield [text[1:].decode() for text in texts if text.startswith(wanted)]


def type_names(postings: Postings, most: int) -> Iterator[list[str] | None]:
    """The types that occur, up to that number. Steps yield None; the last one yields the types."""
    found: list[str] = []
    for batch in terms_of(postings, TYPE, ""):
        found += batch
        if len(found) >= most:
            break
        yield None
    yield found[:most]


if TYPE_CHECKING:  # it needs pyarrow, which nothing here does
    from ..frames.columns import Bits, Ints

SPAN = 32_768
"""The number of sequence numbers marked at once if postings are arrays."""
SPAN_LISTED = 4_096
"""The same limit for lists, whose members are converted one by one."""
LOOKUPS_AT_ONCE = 128
"""The number of terms looked up or sliced in one step."""
_FEW = 8
WORK_AT_ONCE = 8_192
"""The number of postings processed in one step, over all terms."""
_WORK_OF_A_LOOKUP = 100
"""The fixed cost of a term, in numbers."""
TYPES_MAX = 4_096
"""The maximum number of types of one piece to count separately."""
FILES_REMEMBERED = 256


class _Item(NamedTuple):
    """An item of a query in one piece: an event must have all of `required`, and one of `types` (if any)."""

    required: tuple[Numbers, ...]
    types: tuple[Numbers, ...]


class Counting:
    """Counts for one log. Safe to call from any thread."""

    def __init__(self) -> None:
        self._types: OrderedDict[Path, list[str]] = OrderedDict()
        """The types of postings files, which never change: finding them takes a scan of all terms of a file."""

    def steps(
        self,
        pieces: Sequence[PostingsPiece],
        query: Query,
        partition: int | None,
        every: Callable[[int, int], int],
        *,
        by_type: bool,
    ) -> Iterator[Counted]:
        """Count in these pieces. `every` returns the number of events from one number to another.

        A step takes about half a millisecond, except for the first request of a key (see ActivePostings).
        """
        for piece in pieces:
            names: list[str] = []
            if by_type:
                for found in self._names(piece.postings):
                    if found is None:
                        yield Counted(piece.low - 1, 0)
                    else:
                        names = found
            yield from _count_piece(piece, query, partition, every, names if by_type else None)

    def _names(self, postings: Postings) -> Iterator[list[str] | None]:
        if not isinstance(postings, FilePostings):
            yield from type_names(postings, TYPES_MAX)
            return
        known = self._types.get(postings.path)
        if known is None:
            for known in type_names(postings, TYPES_MAX):
                if known is None:
                    yield None
            assert known is not None, "it is the last step"
            self._types[postings.path] = known
            while len(self._types) > FILES_REMEMBERED:
                self._types.popitem(last=False)
        yield known


def events_with(pieces: Sequence[PostingsPiece], kind: str, terms: Sequence[str]) -> Iterator[Mapping[str, int]]:
    """The number of events with each of some terms, piece by piece, in short steps; the caller sums them.

    A key takes memory for each event of a piece, so pass few at a time.
    """
    for piece in pieces:
        if kind == KEY and not isinstance(piece.postings, FilePostings):
            yield from _with_keys(piece, frozenset(terms))
            continue
        for at in range(0, len(terms), LOOKUPS_AT_ONCE):
            some = terms[at : at + LOOKUPS_AT_ONCE]
            yield {term: _between(piece.postings.numbers(kind, term), piece.low, piece.high) for term in some}


def _with_keys(piece: PostingsPiece, keys: Set[str]) -> Iterator[Mapping[str, int]]:
    """Count keys in memory, where only tags are known: mark the events of all tags of a key, and count the marks."""
    postings, low, high = piece
    marks: defaultdict[str, Bits] = defaultdict(lambda: np.zeros(high - low + 1, np.bool_))
    for tags in terms_of(postings, TAG, ""):
        yield {}
        wanted = [(tag, key) for tag in tags if (key := tag_key(tag)) in keys]
        for at in range(0, len(wanted), LOOKUPS_AT_ONCE):
            few: defaultdict[str, list[int]] = defaultdict(list)
            for tag, key in wanted[at : at + LOOKUPS_AT_ONCE]:
                numbers = postings.numbers(TAG, tag)
                if numbers is not None and len(numbers) <= _FEW:  # the usual case: a separate array is slower
                    few[key] += [value + numbers.base for value in numbers.values]
                elif numbers is not None:
                    marks[key][_within(numbers, low, high)] = True
            for key, found in few.items():
                marks[key][_within(Numbers(sorted(found)), low, high)] = True
            yield {}
    yield {key: int(np.count_nonzero(each)) for key, each in marks.items()}


def _count_piece(
    piece: PostingsPiece,
    query: Query,
    partition: int | None,
    every: Callable[[int, int], int],
    names: Sequence[str] | None,
) -> Iterator[Counted]:
    only_types = _types_alone(query, partition)
    if query.items is None and partition is None and names is None:
        yield Counted(piece.high, every(piece.low, piece.high))
    elif query.items is None and partition is None:
        yield from _by_length(piece, names or (), every(piece.low, piece.high))
    elif only_types is not None:
        yield from _by_length(piece, only_types, None)
    elif names is None and (term := _one_term(query, partition)) is not None:
        yield Counted(piece.high, _between(piece.postings.numbers(*term), piece.low, piece.high))
    else:
        yield from _by_marks(piece, query, partition, names)


def _by_length(piece: PostingsPiece, types: Sequence[str], events: int | None) -> Iterator[Counted]:
    """Count by length, because types are mutually exclusive.

    `events`: the total number; None: only events of these types.
    """
    postings, low, high = piece
    left = events
    for at in range(0, len(types), LOOKUPS_AT_ONCE):
        found = {type: _between(postings.numbers(TYPE, type), low, high) for type in types[at : at + LOOKUPS_AT_ONCE]}
        found = {type: count for type, count in found.items() if count}
        count = sum(found.values())
        left = None if left is None else left - count
        yield Counted(low - 1, count, found)
    yield Counted(high, max(left or 0, 0))


def _by_marks(
    piece: PostingsPiece, query: Query, partition: int | None, names: Sequence[str] | None
) -> Iterator[Counted]:
    postings, low, high = piece
    items: list[_Item] = []
    for found in _items_in(postings, query, partition):
        if found is None:
            yield Counted(low - 1, 0)
        else:
            items.append(found)
    types: list[tuple[str, Numbers]] = []
    for at, name in enumerate(names or ()):
        if (numbers := postings.numbers(TYPE, name)) is not None:
            types.append((name, numbers))
        if at % LOOKUPS_AT_ONCE == LOOKUPS_AT_ONCE - 1:
            yield Counted(low - 1, 0)
    span = SPAN_LISTED if isinstance(postings, ActivePostings) else SPAN
    at = low
    while at <= high:
        at = min((_next(item, at) for item in items), default=high + 1)
        if at > high:
            break
        end = min(at + span - 1, high)
        marks = np.zeros(end - at + 1, np.bool_)
        cut = _Span(at, end)
        for item in items:
            _mark(marks, item, cut)
            if cut.work >= WORK_AT_ONCE:
                cut.work = 0
                yield Counted(at - 1, 0)
        yield from _of_marks(marks, types, at, end)
        at = end + 1
    yield Counted(high, 0)


def _of_marks(marks: Bits, types: Sequence[tuple[str, Numbers]], low: int, high: int) -> Iterator[Counted]:
    """Count the marks, by type if there are types."""
    left = int(np.count_nonzero(marks))
    found: dict[str, int] = {}
    for at, (name, numbers) in enumerate(types if left else ()):
        if count := int(np.count_nonzero(marks[_within(numbers, low, high)])):
            found[name] = count
            left -= count
            if not left:
                break
        if at % LOOKUPS_AT_ONCE == LOOKUPS_AT_ONCE - 1:
            yield Counted(low - 1, sum(found.values()), found)
            found = {}
    yield Counted(high, left + sum(found.values()), found)


def _items_in(postings: Postings, query: Query, partition: int | None) -> Iterator[_Item | None]:
    """The items that may match there, occasionally with None between them."""
    of_partition = () if partition is None else ((PARTITION, str(partition)),)
    known: dict[tuple[str, str], Numbers | None] = {}

    def look_up(term: tuple[str, str]) -> Numbers | None:
        if term not in known:
            known[term] = postings.numbers(*term)
        return known[term]

    looked_up = 0
    for item in query.items if query.items is not None else (None,):
        terms = [*of_partition, *(tag_terms(item) if item is not None else ())]
        required = [numbers for term in terms if (numbers := look_up(term)) is not None]
        asked = () if item is None else item.types
        types = [numbers for type in asked if (numbers := look_up((TYPE, type))) is not None]
        if len(required) == len(terms) and (types or not asked):
            if len(types) == 1:
                required.append(types.pop())
            yield _Item(tuple(sorted(required, key=len)), tuple(types))
        looked_up += len(terms) + len(asked)
        if looked_up >= LOOKUPS_AT_ONCE:
            looked_up = 0
            yield None


def _next(item: _Item, number: int) -> int:
    """The first number from there on that may match the item; a number above the whole piece if there is none."""
    if item.required:
        return _first_from(item.required[0], number)
    return min(_first_from(each, number) for each in item.types)


def _first_from(numbers: Numbers, number: int) -> int:
    at = bisect_left(numbers.values, number - numbers.base)
    return numbers.values[at] + numbers.base if at < len(numbers.values) else 10**18


class _Span:
    """A span of numbers, with each term's numbers in it, sliced once for all items."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self._known: dict[int, Ints] = {}
        """Keyed by identity: `_items_in` looks each term up once and keeps it."""
        self.work = 0
        """The approximate count of numbers processed since this was set to 0."""

    def of(self, numbers: Numbers) -> Ints:
        """The numbers in the span, relative to its first number."""
        found = self._known.get(id(numbers))
        if found is None:
            found = self._known[id(numbers)] = _within(numbers, self._low, self._high)
            self.work += len(found)
        self.work += _WORK_OF_A_LOOKUP
        return found


def _mark(marks: Bits, item: _Item, span: _Span) -> None:
    """Mark the numbers of an item, whose rarest term comes first."""
    if not item.required:
        for numbers in item.types:
            marks[span.of(numbers)] = True
        return
    found = span.of(item.required[0])
    for numbers in item.required[1:]:
        if not len(found):
            return
        others = span.of(numbers)
        if not len(others):
            return
        at = np.minimum(np.searchsorted(others, found), len(others) - 1)
        found = found[others[at] == found]
    if item.types:
        is_of_type = np.zeros(len(marks), np.bool_)
        for numbers in item.types:
            is_of_type[span.of(numbers)] = True
        found = found[is_of_type[found]]
    marks[found] = True


def _within(numbers: Numbers, low: int, high: int) -> Ints:
    """The numbers from `low` to `high`, relative to `low`."""
    values, base = numbers.values, numbers.base
    start = bisect_left(values, low - base)
    end = bisect_right(values, high - base, start)
    return np.asarray(values[start:end], np.int64) + (base - low)


def _between(numbers: Numbers | None, low: int, high: int) -> int:
    return 0 if numbers is None else numbers.above(high) - numbers.above(low - 1)


def _types_alone(query: Query, partition: int | None) -> Sequence[str] | None:
    """The types, if the query requires only one of some types; else None."""
    if query.items is None or partition is not None or len(query.items) > 1:
        return None
    return None if query.items[0].has_tags else query.items[0].types


def _one_term(query: Query, partition: int | None) -> tuple[str, str] | None:
    """The term, if the query requires only a single term; else None."""
    if query.items is None:
        return None if partition is None else (PARTITION, str(partition))
    if partition is not None or len(query.items) > 1 or query.items[0].count > 1:
        return None
    return tag_terms(query.items[0])[0]
