"""What a log in this process adds: pages, watching, requests, seeking by time, statistics."""

from __future__ import annotations

import threading
import tracemalloc

import pytest

from headwater.core import ALL, AppendRequest, LocalLog, LogSettings, Query
from headwater.core.errors import AppendConditionFailed, Closed, DuplicateEventId
from headwater.core.followers import first_waiting, lag_of
from headwater.core.reading import next_event

from ..builders import event, fill, numbers, refusal, unless
from .conftest import ManualClock
from .kinds import Bench

pytestmark = pytest.mark.on(local=True)


@pytest.fixture
def local(bench: Bench) -> LocalLog:
    return bench.store.create("orders")


def test_a_page_is_bounded_by_its_limit(local: LocalLog) -> None:
    fill(local, 5)
    page = local.read_page(ALL, 0, limit=2)
    assert (numbers(page.events), page.cursor, page.head, page.is_last) == ([1, 2], 2, 5, False)
    page = local.read_page(ALL, 2, limit=3)
    assert (numbers(page.events), page.cursor, page.is_last) == ([3, 4, 5], 5, True)


def test_a_page_is_bounded_by_its_bytes_but_makes_progress(local: LocalLog) -> None:
    local.append([event(data=bytes(1000)) for _ in range(10)])
    sizes, cursor, is_last = [], 0, False
    while not is_last:
        page = local.read_page(ALL, cursor, bytes_max=2500)
        sizes.append(len(page.events))
        cursor, is_last = page.cursor, page.is_last
    assert sum(sizes) == 10 and max(sizes) <= 4 and len(sizes) > 2
    page = local.read_page(ALL, 0, bytes_max=1)
    assert numbers(page.events)[:1] == [1] and not page.is_last


def test_the_next_event_comes_without_its_data(bench: Bench) -> None:
    log = bench.store.create("orders", LogSettings(partitions=2))
    log.append([event("A", data=b"a")], partition=0)
    log.append([event("B", "seat:1", data=bytes(100_000))], partition=1)
    found = [next_event(log, after) for after in range(3)]
    assert [each and (each.sequence_number, each.type, each.data, each.tags) for each in found] == [
        (1, "A", b"", ()),
        (2, "B", b"", ("seat:1",)),
        None,
    ]
    backwards = [next_event(log, before, backwards=True) for before in (3, 2, 1)]
    assert [each and each.sequence_number for each in backwards] == [2, 1, None]
    of_partition = [next_event(log, 0, partition=number) for number in (0, 1)]
    assert [each and each.sequence_number for each in of_partition] == [1, 2]
    assert next_event(log, 1, partition=0) is next_event(log, 2, backwards=True, partition=1) is None


def test_who_waits_and_since_when_is_told_without_a_copy_of_the_event(local: LocalLog) -> None:
    size = 512 * 1024
    local.append([event(data=bytes(size))])
    first_waiting(local, 0)  # which verifies it
    tracemalloc.start()
    try:
        lag = lag_of(local, 0, 10**15)
        assert lag.events == 1 and lag.age_ms > 0
        assert tracemalloc.get_traced_memory()[1] < size // 4
    finally:
        tracemalloc.stop()


def test_pages_follow_each_other_without_gap_both_ways(local: LocalLog) -> None:
    local.append([event("A" if number % 3 else "B", data=bytes(number)) for number in range(200)])
    for query in (ALL, Query.where(types=["B"]), Query.where(types=["None"])):
        expected = numbers(local.read(query))
        for backwards in (False, True):
            for limit in (1, 7, 1000):
                found, cursor = [], 201 if backwards else 0
                for _ in range(1000):
                    page = local.read_page(query, cursor, backwards=backwards, limit=limit, bytes_max=3000)
                    found += numbers(page.events)
                    assert page.cursor <= cursor if backwards else page.cursor >= cursor
                    cursor = page.cursor
                    if page.is_last:
                        break
                assert found == (expected[::-1] if backwards else expected)


def test_the_cursor_of_the_last_page_is_the_bound(local: LocalLog) -> None:
    fill(local, 9)
    nothing = Query.where(types=["None"])
    assert local.read_page(nothing, 0)[1:4] == (9, 9, True)
    assert local.read_page(nothing, 2, upto=6)[1:4] == (6, 9, True)
    assert local.read_page(nothing, 9)[1:4] == (9, 9, True)
    assert local.read_page(nothing, 10, backwards=True)[1:4] == (1, 9, True)
    assert local.read_page(nothing, 8, upto=4, backwards=True)[1:4] == (4, 9, True)


def test_both_bounds_of_a_page_hold(local: LocalLog) -> None:
    fill(local, 9)
    assert numbers(local.read_page(ALL, 2, upto=6).events) == [3, 4, 5, 6]
    assert numbers(local.read_page(ALL, 2, upto=100).events) == [3, 4, 5, 6, 7, 8, 9]
    assert numbers(local.read_page(ALL, 8, upto=4, backwards=True).events) == [7, 6, 5, 4]
    assert numbers(local.read_page(ALL, 100, backwards=True).events) == list(range(9, 0, -1))
    assert numbers(local.read_page(ALL, 6, upto=3).events) == []
    assert numbers(local.read_page(ALL, 3, upto=6, backwards=True).events) == []


def test_a_page_below_what_is_retained_begins_there_silently(local: LocalLog) -> None:
    fill(local, 9)
    local.trim(5)
    assert numbers(local.read_page(ALL, 0).events) == [5, 6, 7, 8, 9]
    assert numbers(local.read_page(ALL, 8, backwards=True).events) == [7, 6, 5]
    page = local.read_page(ALL, 3, backwards=True)
    assert (numbers(page.events), page.cursor <= 3, page.is_last) == ([], True, True)
    assert numbers(local.read_page(ALL, 0, upto=3).events) == []


def test_a_page_of_no_events_is_allowed(local: LocalLog) -> None:
    fill(local, 2)
    for query in (ALL, Query.where(types=["E2"])):
        page = local.read_page(query, 0, limit=0)
        assert (list(page.events), page.cursor, page.is_last) == ([], 0, False)


def test_a_page_of_an_empty_log(local: LocalLog) -> None:
    assert local.read_page(ALL, 0)[1:4] == (0, 0, True)
    assert list(local.read_page(ALL, 1, backwards=True).events) == []


def test_a_watcher_is_woken_after_each_commit_until_it_is_stopped(local: LocalLog) -> None:
    woken = threading.Semaphore(0)
    stop = local.watch(woken.release)
    for _ in range(3):
        local.append([event()])
        assert woken.acquire(timeout=20)
    stop()
    stop()
    while woken.acquire(blocking=False):
        pass
    local.append([event()])
    assert not woken.acquire(blocking=False)


def test_what_a_watcher_is_woken_for_can_be_read(local: LocalLog) -> None:
    heads: list[int] = []
    woken = threading.Semaphore(0)

    def wake() -> None:
        heads.append(local.head())
        woken.release()

    local.watch(wake)
    for number in range(1, 6):
        local.append([event()])
        assert woken.acquire(timeout=20)
        assert heads[-1] >= number


def test_a_watcher_is_woken_at_the_close(bench: Bench, local: LocalLog) -> None:
    woken = threading.Event()
    local.watch(woken.set)
    bench.store.close()
    assert woken.wait(20)
    assert local.is_closed


def test_a_request_is_delivered_with_its_result(local: LocalLog) -> None:
    delivered: list[AppendRequest] = []
    done = threading.Event()

    def deliver(requests: list[AppendRequest]) -> None:
        delivered.extend(requests)
        done.set()

    request = local.request([event(), event()], None, None, deliver, "mine")
    local.submit(request)
    assert done.wait(20)
    assert delivered == [request]
    assert (request.result, request.error, request.context) == ((1, 2, False), None, "mine")


def test_a_request_is_delivered_with_its_error(local: LocalLog) -> None:
    local.append([event("A")])
    done = threading.Event()
    request = local.request([event("A")], unless(types=["A"]), None, lambda requests: done.set())
    local.submit(request)
    assert done.wait(20)
    assert request.result is None
    assert isinstance(request.error, AppendConditionFailed)


def test_every_request_is_delivered_just_once(local: LocalLog) -> None:
    lock, delivered = threading.Lock(), list[object]()
    done = threading.Event()

    def deliver(requests: list[AppendRequest]) -> None:
        with lock:
            delivered.extend(request.context for request in requests)
            if len(delivered) == 400:
                done.set()

    def submit(writer: int) -> None:
        for call in range(100):
            events = [event("A", id=f"{call}")] if call % 5 == 0 else [event("A")]
            condition = unless(types=["A"], after=1) if call % 7 == 0 else None
            local.submit(local.request(events, condition, None, deliver, (writer, call)))

    threads = [threading.Thread(target=submit, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done.wait(30)
    assert sorted(delivered) == [(writer, call) for writer in range(4) for call in range(100)]  # type: ignore[type-var]


def test_a_closed_log_takes_no_request(bench: Bench, local: LocalLog) -> None:
    request = local.request([event()], None, None, lambda requests: None)
    bench.store.close()
    with refusal(Closed("orders")):
        local.submit(request)


def test_a_time_is_found(local: LocalLog, clock: ManualClock) -> None:
    start = clock.now
    for step in (0, 10, 0, 10, -5):
        clock.now += step
        local.append([event(), event()])
    # recorded at: 1, 2: start - 3 to 6: start + 10 - 7 to 10: start + 20
    for at, expected in ((0, 1), (start, 1), (start + 1, 3), (start + 10, 3), (start + 11, 7), (start + 20, 7)):
        assert local.sequence_number_at(at) == expected
    assert local.sequence_number_at(start + 21) == 11
    local.trim(5)
    assert local.sequence_number_at(0) == 5
    local.trim(11)
    assert local.sequence_number_at(0) == 11


def test_in_an_empty_log_any_time_is_the_first_number(local: LocalLog) -> None:
    assert local.sequence_number_at(0) == local.sequence_number_at(10**15) == 1


def test_statistics_count_what_happened(local: LocalLog, clock: ManualClock) -> None:
    local.append([event("A", id="1"), event("A")])
    local.append([event("B")])
    with pytest.raises(AppendConditionFailed):
        local.append([event("B")], unless(types=["B"]))
    with pytest.raises(DuplicateEventId):
        local.append([event("B", id="1")])
    assert local.append([event("A", id="1")]).was_stored
    clock.now -= 5000
    local.append([event("C")])
    list(local.read())
    counted = local.statistics
    assert (counted.appends, counted.events_appended, counted.commits) == (4, 4, 3)
    assert (counted.conditions_failed, counted.duplicates, counted.refused) == (1, 1, 0)
    assert (counted.clock_steps, counted.events_read) == (1, 4)
    assert counted.bytes_appended > 0
    assert (counted.queued_requests, counted.queued_bytes) == (0, 0)


def test_creation_is_dated_by_the_clock(bench: Bench, clock: ManualClock) -> None:
    made = clock.now
    log = bench.store.create("dated", LogSettings())
    clock.now += 1000
    assert log.info().created_at == made
