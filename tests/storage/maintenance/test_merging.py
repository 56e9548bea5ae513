"""Postings of sealed segments are merged early, into few files, and no number is written many times."""

from __future__ import annotations

from itertools import pairwise
from math import log2
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import Query
from headwater.storage.disk import system
from headwater.storage.index import index, merge, postings
from headwater.storage.maintenance import tasks
from headwater.storage.segments import segment_log

from ..builders import engine, fill, numbers

PER_EVENT = 5
"""The postings of an event with a type and two tags: its type, its tags and their keys."""


class Sealed(NamedTuple):
    """A postings file, for the rule that chooses which files to merge."""

    first: int
    last: int
    values: range
    texts: bytes = b""


class Merges(NamedTuple):
    files: list[Sealed]
    written: int
    """The numbers written by all merges."""
    most: int
    """The largest number of files at any time."""


def merged(sizes: list[int]) -> Merges:
    """Seal segments with so many numbers, and merge after each one until the rule chooses nothing."""
    files: list[Sealed] = []
    written, most, number = 0, 0, 1
    for size in sizes:
        files.append(Sealed(number, number, range(size)))
        number += 1
        while chosen := tasks._small_to_merge(files):  # type: ignore[arg-type]
            at, size = files.index(chosen[0]), sum(len(file.values) for file in chosen)  # type: ignore[arg-type]
            files[at : at + len(chosen)] = [Sealed(chosen[0].first, chosen[-1].last, range(size))]
            written += size
        most = max(most, len(files))
    return Merges(files, written, most)


def segments_of(events: int) -> list[int]:
    """The numbers in each sealed segment of a log with that many events of 400 bytes: its segments grow with it."""
    sizes, size = [], segment_log.SEGMENT_BYTES_FIRST
    while events > 0:
        within = min(size // 400, segment_log.SEGMENT_EVENTS_MAX, events)
        sizes.append(within * PER_EVENT)
        events -= within
        growth = segment_log.SEGMENT_GROWTH if size < segment_log.SEGMENT_BYTES_MIN else 2
        size = min(size * growth, segment_log.SEGMENT_BYTES_MAX)
    return sizes


@pytest.mark.parametrize(
    ("events", "files_max", "writes_max"), [(200_000, 2, 1.5), (800_000, 2, 1.8), (8_000_000, 17, 1.8)]
)
def test_a_log_that_grows_has_few_files_and_writes_each_number_about_twice_more(
    events: int, files_max: int, writes_max: float
) -> None:
    sizes = segments_of(events)
    done = merged(sizes)
    assert done.most <= files_max
    assert done.written <= writes_max * sum(sizes)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=60))
def test_whatever_the_sizes_a_number_is_written_at_most_once_more_than_the_files_double(sizes: list[int]) -> None:
    done = merged(sizes)
    assert sum(len(file.values) for file in done.files) == sum(sizes)
    doublings = log2(min(sum(sizes), merge.NUMBERS_AT_ONCE) / min(sizes))
    assert done.written <= (2 + doublings) * sum(sizes)
    for at, file in enumerate(done.files[:-1]):
        later = [len(each.values) for each in done.files[at + 1 :]]
        assert len(file.values) > sum(later) or len(file.values) + sum(later) > merge.NUMBERS_AT_ONCE


def test_files_apart_or_too_large_for_arrays_are_not_merged() -> None:
    small, large = range(10), range(merge.NUMBERS_AT_ONCE)
    assert tasks._small_to_merge([Sealed(1, 4, small), Sealed(6, 9, small)]) == ()  # type: ignore[list-item]
    assert tasks._small_to_merge([Sealed(1, 4, small), Sealed(5, 9, large)]) == ()  # type: ignore[list-item]
    long = b"x" * (merge.TEXT_BYTES_AT_ONCE + 1)
    assert tasks._small_to_merge([Sealed(1, 4, small), Sealed(5, 9, small, long)]) == ()  # type: ignore[list-item]


@pytest.mark.usefixtures("small_segments", "in_line")
def test_bytes_written_for_a_log_of_equal_segments_are_bounded(data: Path) -> None:
    """Segments that do not grow are the worst case: each byte may be written as often as the files double."""
    written: dict[bool, int] = {False: 0, True: 0}
    write_whole = system.write_whole

    def counted(path: Path, *parts: bytes) -> Path:
        written[is_merging] += sum(map(len, parts))
        return write_whole(path, *parts)

    is_merging = False
    merge_postings = tasks.merge_postings

    def merging(*arguments: object) -> None:
        nonlocal is_merging
        is_merging = True
        merge_postings(*arguments)  # type: ignore[arg-type]
        is_merging = False

    with (
        patch.object(postings, "write_whole", counted),
        patch.object(tasks, "merge_postings", merging),
        engine(data) as one,
    ):
        log = one.create("orders")
        while len(log.frames.segments) <= 20:
            fill(log, 10, data=b"d" * 60, tags=lambda number: (f"n:{number}", "all:1"))
            one.maintain()
            one.maintain()
        newest = log.frames.segments[-1].first
        assert len([file for file in log.index.files if file.last < newest]) <= 4
        assert 0 < written[True] <= 2 * written[False]
        assert numbers(log.read(Query.where(tags=["all:1"]))) == list(range(1, log.head() + 1))


@pytest.mark.usefixtures("small_segments", "in_line")
def test_parts_of_a_segment_that_is_full_and_not_indexed_as_a_whole_are_merged_with_no_other(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sealing uses only parts that begin within the segment. Its file and one that overlaps it are never merged."""
    monkeypatch.setattr(index, "PART_EVENTS_MAX", 20)
    merge_postings = tasks.merge_postings
    with engine(data) as one:
        log = one.create("orders")

        def merging(*arguments: object) -> None:
            segments = len(log.frames.segments)
            while len(log.frames.segments) == segments:  # appends go on after the round has sealed
                fill(log, 1, data=b"d" * 60, tags=lambda number: (f"n:{number}", "all:1"))
            merge_postings(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(tasks, "merge_postings", merging)
        for _ in range(12):
            fill(log, 15, data=b"d" * 60, tags=lambda number: (f"n:{number}", "all:1"))
            one.maintain()
            files = sorted((file.first, file.last) for file in log.index.files)
            assert all(last < first for (_, last), (first, _) in pairwise(files)), files
        assert numbers(log.read(Query.where(tags=["all:1"]))) == list(range(1, log.head() + 1))
