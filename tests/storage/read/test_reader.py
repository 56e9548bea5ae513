"""Pages: bounded, resumable in both directions, and the same for every reader at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.core import ALL, Event, LogSettings, Query, QueryItem, read_pages
from headwater.formats import packed
from headwater.storage import Engine, StoredLog
from headwater.storage.index.postings import Numbers
from headwater.storage.read import frame_cache
from headwater.storage.read.reader import LOOKS_MAX

from ..builders import engine, event, numbers

QUERIES = [
    ALL,
    Query.where(tags=["even"]),
    Query.where(types=["A"]),
    Query.where(tags=["n:17"]),
    Query.where(tags=["no"]),
]


@pytest.fixture
def log(data: Path, small_segments: None) -> Iterator[StoredLog]:
    with engine(data) as one:
        found = one.create("orders", LogSettings(partitions=2))
        for first in range(1, 301, 3):
            batch = range(first, first + 3)
            found.append([
                Event("A" if n % 3 else "B", bytes(n % 60), (f"n:{n}", "even" if n % 2 == 0 else "odd"), id=str(n))
                for n in batch
            ])  # fmt: skip
        yield found


def paged(
    log: StoredLog, query: Query, *, backwards: bool, limit: int, bytes_max: int, partition: int | None
) -> list[int]:
    """All matching numbers, page by page."""
    found: list[int] = []
    cursor = log.head() + 1 if backwards else 0
    for _ in range(2000):
        page = log.read_page(query, cursor, backwards=backwards, limit=limit, bytes_max=bytes_max, partition=partition)
        assert len(page.events) <= limit
        found += numbers(page.events)
        if page.is_last:
            return found
        assert page.events
        assert page.cursor == page.events[-1].sequence_number
        cursor = page.cursor
    raise AssertionError("the pages never end")


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("partition", [None, 0, 1])
def test_pages_of_any_size_make_the_same_read(log: StoredLog, query: Query, partition: int | None) -> None:
    expected = [
        each.sequence_number
        for each in log.read()
        if query.matches(each.type, each.tags) and partition in (None, each.partition)
    ]
    for backwards in (False, True):
        for limit, bytes_max in ((1, 10_000), (7, 10_000), (1000, 1), (1000, 100), (1000, 10**6)):
            found = paged(log, query, backwards=backwards, limit=limit, bytes_max=bytes_max, partition=partition)
            assert found == (expected[::-1] if backwards else expected)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_page_that_is_packed_has_the_same_bytes(log: StoredLog, query: Query, backwards: bool) -> None:
    start = 301 if backwards else 0
    for bounds in ({}, {"limit": 7}, {"bytes_max": 100}, {"partition": 1}):
        page = log.read_page(query, start, backwards=backwards, packs=True, **bounds)
        objects = log.read_page(query, start, backwards=backwards, **bounds)
        assert packed.encode_page(page.events) == packed.encode_page(objects.events)
        assert page._replace(events=list(page.events)) == objects._replace(events=list(objects.events))


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_page_of_nothing_has_nothing_and_does_not_fail(log: StoredLog, query: Query, backwards: bool) -> None:
    page = log.read_page(query, 301 if backwards else 0, backwards=backwards, limit=0)
    assert list(page.events) == []
    above = log.read_page(query, 10**18 - 1)
    assert (list(above.events), above.is_last) == ([], True)


def test_every_bound_is_kept(log: StoredLog) -> None:
    for low in range(0, 301, 37):
        for high in range(0, 301, 41):
            page = log.read_page(ALL, low, upto=high, limit=1000, bytes_max=10**9)
            assert numbers(page.events) == list(range(low + 1, high + 1))
            page = log.read_page(ALL, high, upto=low, backwards=True, limit=1000, bytes_max=10**9)
            assert numbers(page.events) == list(range(high - 1, max(low, 1) - 1, -1))


def test_one_partition_of_one_is_everything(data: Path) -> None:
    with engine(data) as one:
        log = one.create("single")
        log.append([event("A", "x:1"), event("B")])
        assert numbers(log.read(partition=0)) == [1, 2]
        assert numbers(log.read(Query.where(tags=["x"]), partition=0)) == [1]
        assert numbers(log.read(partition=0, backwards=True)) == [2, 1]


def test_many_readers_share_the_cache_and_it_stays_bounded(log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_cache, "DECODED_BYTES_MAX", 20_000)
    problems: list[BaseException] = []
    expected = numbers(log.read())

    def read() -> None:
        try:
            for _ in range(15):
                assert numbers(log.read()) == expected
                assert numbers(log.read(backwards=True)) == expected[::-1]
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    kept = log._decoded
    assert 0 < kept.bytes == sum(length for length, _ in kept._frames.values()) <= 20_000


def test_logs_keep_no_more_decoded_frames_together_than_one_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_cache, "DECODED_BYTES_MAX", 20_000)
    with engine(tmp_path) as one:
        logs = [one.create(name) for name in ("a", "b", "c")]
        for log in logs:
            for _ in range(8):
                log.append([event(data=bytes(1000))])
                assert [each.data for each in log.read()][-1] == bytes(1000)
        kept = logs[0]._decoded
        assert all(log._decoded is kept for log in logs)
        assert 0 < kept.bytes == sum(length for length, _ in kept._frames.values()) <= 20_000
        logs[2].close()
        assert kept.get(logs[2].frames, logs[2].head()) is None
    assert kept.bytes == 0, "what is closed keeps nothing"


def test_a_page_looks_no_further_than_so_many_numbers_that_do_not_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    has = Numbers.has
    monkeypatch.setattr(Numbers, "has", lambda numbers, number: bool(looks.append(number)) or has(numbers, number))
    with Engine(tmp_path) as engine:
        log = engine.create("orders")
        tags = ("half:0",), ("half:1",)
        for _ in range(10):
            log.append([Event("AB"[number % 2], b"", tags[number % 2]) for number in range(1000)])
        odd_one = log.append([Event("A", b"", tags[1])]).first
        crossed = (
            QueryItem(frozenset({"A"}), frozenset({"half:1"})),
            QueryItem(frozenset({"B"}), frozenset({"half:0"})),
        )
        for backwards in (False, True):
            for items in (crossed[:1], crossed):
                found, pages = list[int](), 0
                selection = log.selection(None, None, backwards, None, None)
                for page in read_pages(log, Query(items), selection):
                    assert len(looks) <= LOOKS_MAX + 2
                    looks.clear()
                    pages += 1
                    found += [event.sequence_number for event in page.events]
                assert (found, pages > 2) == ([odd_one], True)
