"""Matching over postings against a plain filter, and the index that puts the pieces together."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import ALL, Query, QueryItem
from headwater.storage.index import index as index_module
from headwater.storage.index import matches as matches_module
from headwater.storage.index.index import Index
from headwater.storage.index.matches import PostingsPiece, first_match, listed, matching
from headwater.storage.index.postings import FilePostings, Postings, write_postings

from .test_postings import Row, active, rows

types = st.lists(st.sampled_from(["A", "B", "Ü", "C"]), max_size=3).map(tuple)
tags = st.lists(st.sampled_from(["x:1", "x:2", "x", "y", "y:1", "z:1"]), max_size=3).map(tuple)
items = st.tuples(types, tags, tags).filter(any).map(lambda each: QueryItem(*each))
queries = st.one_of(st.just(ALL), st.lists(items, min_size=1, max_size=4).map(lambda found: Query.of(*found)))


def plain(content: list[Row], query: Query, partition: int | None, low: int, high: int) -> list[int]:
    return [
        number
        for number, (type, its_tags, its_partition) in enumerate(content, 1)
        if low <= number <= high and partition in (None, its_partition) and query.matches(type, its_tags)
    ]


def index_of(content: list[Row], in_files: int, parts: int, directory: Path) -> Index:
    """The first so many events in files (of so many parts), the rest in memory."""
    files, first = [], 1
    size = max(in_files // parts, 1)
    while first <= in_files:
        part = content[first - 1 : min(first - 1 + size, in_files)]
        run = active(part, first)
        files.append(FilePostings(write_postings(directory, run.first, run.last, run.encoded_terms())))
        first += len(part)
    found = Index(in_files, has_partitions=True, files=files)
    for number, (type, its_tags, partition) in enumerate(content[in_files:], in_files + 1):
        found.apply(number, [type], [its_tags], [partition])
    return found


@settings(max_examples=200, deadline=None)
@given(rows, queries, st.sampled_from([None, None, 0, 1, 7]), st.data())
def test_matching_is_filtering(
    tmp_path_factory: pytest.TempPathFactory,
    content: list[Row],
    query: Query,
    partition: int | None,
    data: st.DataObject,
) -> None:
    in_files = data.draw(st.integers(0, len(content)))
    found = index_of(content, in_files, data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("index"))
    low = data.draw(st.integers(1, len(content)))
    high = data.draw(st.integers(0, len(content)))
    pieces = found.pieces(low, high)
    expected = plain(content, query, partition, low, high)
    assert list(matching(pieces, query, partition)) == expected
    assert list(matching(pieces, query, partition, backwards=True)) == expected[::-1]
    count = data.draw(st.integers(1, 5))
    if (some := listed(pieces, query, partition, count)) is not None:
        assert some == expected[:count]
        assert listed(pieces, query, partition, count, backwards=True) == expected[::-1][:count]
    assert listed(pieces, query, partition, matches_module.LISTED_MAX + 1) is None
    if partition is None:
        assert first_match(pieces, query) == (expected[0] if expected else None)


class Known(Postings):
    """The numbers of some terms."""

    def __init__(self, numbers: list[list[int]], base: int, kept: Callable[[list[int]], Sequence[int]]) -> None:
        self.first, self.last, self.base = max(base, 1), 60, base
        self._values = [kept([number - base for number in each]) for each in numbers]

    def values_of(self, terms: Iterable[tuple[str, str]]) -> list[Sequence[int]]:
        return [self._values[int(term)] for _, term in terms if self._values[int(term)]]


forms = st.sampled_from([list, tuple, lambda each: memoryview(array("I", each))])
numbers_of_terms = st.lists(st.lists(st.integers(1, 60), unique=True).map(sorted), min_size=1, max_size=3)


@given(numbers_of_terms, st.integers(1, 62), st.integers(0, 62), st.integers(1, 9), st.booleans(),
       st.sampled_from([0, 1, 7]), forms)  # fmt: skip
def test_the_first_numbers_of_terms(
    numbers: list[list[int]],
    low: int,
    high: int,
    count: int,
    backwards: bool,
    base: int,
    kept: Callable[[list[int]], Sequence[int]],
) -> None:
    numbers = [[number for number in each if number >= base] for each in numbers]
    query = Query(tuple([QueryItem(types=(str(index),)) for index in range(len(numbers))]))
    piece = PostingsPiece(Known(numbers, base, kept), low, high)
    expected = sorted({number for each in numbers for number in each if low <= number <= high}, reverse=backwards)
    assert listed([piece], query, None, count, backwards=backwards) == expected[:count]


ranges = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)).map(sorted), max_size=6)


@settings(max_examples=300, deadline=None)
@given(ranges, st.integers(1, 34), st.integers(0, 34))
def test_pieces_are_ascending_and_have_every_number_once(files: list[list[int]], low: int, high: int) -> None:
    known = [Known([], 0, list) for _ in files]
    for each, (first, last) in zip(known, files, strict=True):
        each.first, each.last = first, last
    found = Index(30, has_partitions=False, files=known)  # type: ignore[arg-type]
    found.apply(31, ["A", "A"], [(), ()], [0, 0])
    numbers = [number for piece in found.pieces(low, high) for number in range(piece.low, piece.high + 1)]
    held = {number for first, last in [*files, (31, 32)] for number in range(first, last + 1)}
    if low < 31:  # above, the newest part is used as it is: the durable head bounds what is read
        assert numbers == sorted(number for number in held if low <= number <= high)
    assert all(piece.postings.first <= piece.low for piece in found.pieces(low, high))


@settings(max_examples=60, deadline=None)
@given(rows, rows, st.integers(0, 30), queries)
def test_a_rollback_over_the_begin_of_a_run_hides_nothing(
    one: list[Row], two: list[Row], kept: int, query: Query
) -> None:
    kept = min(kept, len(one))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "PART_EVENTS_MAX", 3)
        found = Index(0, has_partitions=True)
        for number, (type, its_tags, partition) in enumerate(one, 1):
            found.apply(number, [type], [its_tags], [partition])
        found.rollback(kept)
        for number, (type, its_tags, partition) in enumerate(two, kept + 1):
            found.apply(number, [type], [its_tags], [partition])
        content = one[:kept] + two
        assert list(matching(found.pieces(1, len(content)), query)) == plain(content, query, None, 1, len(content))


def test_events_above_a_gap_are_in_a_run_of_their_own() -> None:
    found = Index(0, has_partitions=False)
    found.apply(1, ["A"], [("x:1",)], [0])
    found.apply(1000, ["A"], [("x:1",)], [0])
    assert list(matching(found.pieces(1, 1000), Query.where(types=["A"]))) == [1, 1000]
    assert [(piece.low, piece.high) for piece in found.pieces(1, 1000)] == [(1, 1), (1000, 1000)]


def test_whoever_reads_while_a_file_is_replaced_has_one_or_the_other(tmp_path: Path) -> None:
    """What is let go lets others run while it is unmapped: they must not find it."""
    found = index_of([("A", ("x:1",), 0)] * 10, 4, 4, tmp_path)
    path = write_postings(tmp_path, 1, 4, active([("A", ("x:1",), 0)] * 4).encoded_terms())
    ended = threading.Event()

    def read() -> int:
        reads = 0
        while not ended.is_set():
            assert [(piece.low, piece.high) for piece in found.pieces(1, 10)][-1] == (5, 10)
            assert len(listed(found.pieces(1, 10), Query.where(tags=["x:1"]), None, 20) or ()) == 10
            reads += 1
        return reads

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(1000):
                found.replace(FilePostings(path))
                found.drop(1)
        finally:
            ended.set()
        assert all(reader.result() for reader in readers)


def test_a_new_file_takes_the_place_of_what_it_covers(tmp_path: Path) -> None:
    content: list[Row] = [("A", ("x:1",), 0)] * 10
    found = index_of(content, 4, 4, tmp_path)
    run = active(content[:4])
    whole = FilePostings(write_postings(tmp_path, 1, 4, run.encoded_terms()))
    found.replace(whole, found.files)
    assert [(file.first, file.last) for file in found.files] == [(1, 4)]
    assert list(matching(found.pieces(1, 10), Query.where(tags=["x"]))) == list(range(1, 11))
    found.drop(5)
    assert found.files == ()
