"""Splits: pieces of a log of about so many bytes, that cover what was asked for and overlap nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from headwater.core import LogSettings, Query, QueryItem
from headwater.core.errors import TooLarge
from headwater.core.extent import SplitSize
from headwater.storage import StoredLog
from headwater.storage.read import mapped_log
from headwater.storage.read import splits as splits_module
from headwater.storage.read.mapped_log import MappedLog
from headwater.storage.read.selection import matches_max

from ..builders import engine, event, log_directory


@pytest.fixture
def log(data: Path, small_segments: None) -> Iterator[StoredLog]:
    """Frames of 1 to 40 events of up to 300 bytes, in 3 partitions, of which the last one has no event."""
    random = Random(1)
    with engine(data) as one:
        found = one.create("orders", LogSettings(partitions=3))
        while found.head() < 700:
            found.append([event(data=bytes(random.randint(0, 300))) for _ in range(random.choice([1, 3, 40]))],
                         partition=random.randint(0, 1))  # fmt: skip
            if random.random() < 0.1:
                one.maintain()
        yield found


def opened(log: StoredLog) -> MappedLog:
    mapped = MappedLog(log.directory)
    mapped.refresh(log.head())
    return mapped


def check(log: StoredLog, splits: list[SplitSize], after: int, upto: int, partition: int | None = None) -> None:
    """They cover (after, upto], none is empty but where there is nothing, and their counts are exact."""
    assert splits[0].after == after and splits[-1].upto == upto
    assert all(one.upto == other.after for one, other in pairwise(splits))
    assert all(split.after < split.upto for split in splits)
    numbers = [each.sequence_number for each in log.read() if partition in (None, each.partition)]
    for split in splits:
        assert split.events == sum(split.after < number <= split.upto for number in numbers)
        assert split.bytes >= 0


@pytest.mark.parametrize("partition", [None, 0, 1, 2])
def test_splits_cover_what_was_asked_for(log: StoredLog, partition: int | None) -> None:
    mapped, random = opened(log), Random(2)
    for _ in range(40):
        after = random.randint(0, log.head() - 1)
        upto = random.randint(after + 1, log.head())
        split_bytes, splits_min = random.choice([1, 500, 5000, 10**9]), random.choice([0, 1, 4, 100])
        splits = mapped.splits(after, upto, split_bytes=split_bytes, splits_min=splits_min, partition=partition)
        check(log, splits, after, upto, partition)
        if partition is None:
            assert len(splits) >= min(splits_min, upto - after)
            assert all(split.events for split in splits)


def test_where_few_events_match_there_are_few_splits(data: Path, small_segments: None) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings())
        for number in range(60):
            log.append([event(f"T{at % 4}", f"order:{at}", data=bytes(100)) for at in range(20)])
            if number in (11, 37):
                log.append([event("Rare", "needle:1", data=b"{}")])
        one.maintain()
        mapped, head = opened(log), log.head()

        def pieces(query: Query, splits_min: int = 1) -> int:
            splits = mapped.splits(0, head, split_bytes=2000, splits_min=splits_min, query=query)
            check(log, splits, 0, head)
            return len(splits)

        every = pieces(Query.all())
        rare = [
            Query.of(QueryItem(("Rare",))),
            Query.of(QueryItem((), ("needle:1",))),
            Query.of(QueryItem((), ("needle",))),
        ]
        newest = [pieces(query) for query in rare]  # of what has no postings yet, all is looked at
        assert every > 50 and max(newest) < every // 3 and len(set(newest)) == 1
        assert pieces(rare[0], splits_min=7) == max(7, newest[0])
        assert pieces(Query.of(QueryItem(("T0", "T1", "T2")))) == every
        assert newest[0] <= pieces(Query.of(QueryItem(("T0",), ("order:4",)), QueryItem(("Rare",)))) < every
        indexed = 0
        for part in mapped._pinned(1, head):
            low, high = part.segment.first, part.last
            if (postings := mapped._postings.covering(low, high)) is None:
                continue
            indexed += 1
            for query in (*rare, Query.of(QueryItem(("T0",), ("order:4",))), Query.all()):
                matching = sum(batch.num_rows for batch in mapped.scan(low - 1, high, query=query))
                assert matching <= matches_max(postings, low, high, query) <= high - low + 1
        assert indexed > 3


def test_events_that_match_and_lie_together_are_shared_among_splits(data: Path, small_segments: None) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings())
        for number in range(80):
            kind = "Import" if 20 <= number < 30 else "T"
            log.append([event(kind, data=bytes(100)) for _ in range(20)])
        one.maintain()
        mapped, head = opened(log), log.head()
        query = Query.of(QueryItem(("Import",)))
        splits = mapped.splits(0, head, split_bytes=3000, splits_min=1, query=query)
        check(log, splits, 0, head)
        every = mapped.splits(0, head, split_bytes=3000, splits_min=1)
        matching = [sum(batch.num_rows for batch in mapped.scan(each.after, each.upto, query=query)) for each in splits]
        most = max(sum(b.num_rows for b in mapped.scan(each.after, each.upto, query=query)) for each in every)
        assert len(splits) < len(every) / 2 and sum(matching) == 200
        assert max(matching) <= 3 * most  # no task has all that there is to read


def test_without_time_for_postings_all_is_to_be_read(
    data: Path, small_segments: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(data) as one:
        log = one.create("orders", LogSettings())
        for _ in range(60):
            log.append([event("T", data=bytes(100)) for _ in range(20)])
        one.maintain()
        rare = Query.of(QueryItem(("Rare",)))
        reader, head = opened(log), log.head()
        every = len(reader.splits(0, head, split_bytes=2000, splits_min=1))
        few = reader.splits(0, head, split_bytes=2000, splits_min=1, query=rare)
        check(log, few, 0, head)
        assert len(few) < every / 3
        monkeypatch.setattr(mapped_log, "ESTIMATE_S", -1)
        assert len(reader.splits(0, head, split_bytes=2000, splits_min=1, query=rare)) == every


def test_the_bytes_of_splits_are_about_those_that_were_asked_for(log: StoredLog) -> None:
    mapped = opened(log)
    (whole,) = mapped.splits(0, log.head(), split_bytes=10**9, splits_min=1)
    assert whole.bytes == sum(segment.end - 64 for segment in log.frames.segments)
    splits = mapped.splits(0, log.head(), split_bytes=16_000, splits_min=1)
    assert sum(split.bytes for split in splits) == whole.bytes
    assert len(splits) == -(-whole.bytes // 16_000)
    assert all(split.bytes < 2 * 16_000 for split in splits)


def test_too_many_splits_are_refused_before_they_are_made(log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_log, "SPLITS_MAX", 100)
    whole = opened(log)
    assert len(whole.splits(0, log.head(), split_bytes=10**9, splits_min=100)) == 100
    monkeypatch.setattr(splits_module.Weights, "borders", None)
    with pytest.raises(TooLarge, match="split_bytes"):
        whole.splits(0, log.head(), split_bytes=1, splits_min=1)


def test_splits_end_where_frames_do_unless_these_are_large(log: StoredLog) -> None:
    ends = {frame.last for frame in log.frames.read(0)}
    splits = opened(log).splits(0, log.head(), split_bytes=60_000, splits_min=1)
    assert len(splits) > 2
    assert {split.upto for split in splits} <= ends


def test_one_frame_is_split_between_its_events(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event(data=bytes(100)) for _ in range(10)])
        mapped = opened(log)
        for wanted in range(1, 15):
            splits = mapped.splits(0, 10, split_bytes=10**9, splits_min=wanted)
            check(log, splits, 0, 10)
            assert len(splits) == min(wanted, 10)


def test_more_splits_than_bytes_would_make_are_made_if_there_are_events(data: Path) -> None:
    with engine(data) as one:
        log = one.create("orders")
        log.append([event(data=bytes(100_000)), *[event() for _ in range(20)]])
        splits = opened(log).splits(0, 21, split_bytes=10**9, splits_min=21)
        assert [split.events for split in splits] == [1] * 21


def test_an_empty_range_has_no_split_and_one_without_events_has_one(data: Path, log: StoredLog) -> None:
    mapped, head = opened(log), log.head()
    assert mapped.splits(5, 5, split_bytes=100, splits_min=3) == []
    assert mapped.splits(7, 5, split_bytes=100, splits_min=3) == []
    assert mapped.splits(head, head + 10, split_bytes=100, splits_min=3) == [SplitSize(head, head + 10, 0, 0)]
    log.trim(head + 1)
    mapped.refresh(head)
    assert mapped.splits(0, head, split_bytes=100, splits_min=3) == [SplitSize(0, head, 0, 0)]


def test_an_empty_log_has_nothing_and_one_split_of_it(data: Path) -> None:
    with engine(data) as one:
        one.create("orders")
        mapped = MappedLog(log_directory(data))
        mapped.refresh(0)
        assert mapped.count(0, 10) == 0
        assert list(mapped.scan(0, 10)) == []
        assert mapped.splits(0, 10, split_bytes=1, splits_min=3) == [SplitSize(0, 10, 0, 0)]


def test_splits_of_a_trimmed_log_begin_above_what_is_gone(log: StoredLog) -> None:
    log.trim(301)
    mapped = opened(log)
    splits = mapped.splits(0, log.head(), split_bytes=5000, splits_min=4)
    check(log, splits, 0, log.head())
    assert splits[0].events > 0


def test_a_log_above_another_one_of_its_name_is_split_where_it_has_events(data: Path) -> None:
    with engine(data) as one:
        one.create("orders").append([event() for _ in range(100)])
        one.delete("orders")
        log = one.create("orders")
        mapped = opened(log)
        assert (mapped.count(0, 100), list(mapped.scan(0, 100))) == (0, [])
        log.append([event() for _ in range(10)])
        mapped.refresh(log.head())
        splits = mapped.splits(0, 110, split_bytes=1, splits_min=5)
        check(log, splits, 0, 110)
        assert mapped.count(0, 110) == 10
