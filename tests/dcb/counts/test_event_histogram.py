"""How many events happened when, by their own times: read once, in steps, and remembered."""

from __future__ import annotations

import asyncio
import tracemalloc
from array import array

import pytest

from headwater.core import ALL, Event, LogSettings, OpenGuard
from headwater.core.event import SequencedEvent
from headwater.core.log import PAGE_BYTES, Page
from headwater.dcb import Application, event_times
from headwater.dcb.event_times import Block, EventTimes, TimeScan, happened_at
from headwater.storage import Engine
from headwater.storage.memory import MemoryStore
from tests.every import every

from ..conftest import Client

HOUR = 3_600_000
DAY = 1_356_998_400_000
"""2013-01-01 in UTC."""


def happened(hour: int) -> dict[str, str]:
    return {"time": f"2013-01-{1 + hour // 24:02d}T{hour % 24:02d}:00:00Z"}


@pytest.fixture(params=["memory", "segments"])
def asked(request, tmp_path):
    """Two days of events, one an hour, appended in no order of theirs; of either kind of store."""
    store = MemoryStore() if request.param == "memory" else Engine(tmp_path)
    client = Client(Application(store, OpenGuard()))
    client.store = store
    log = store.create("courses", LogSettings(partitions=2))
    for number in range(48):
        hour = number * 29 % 48
        log.append([Event("ABC"[hour % 3], b"{}", (f"n:{hour % 10}",), attributes=happened(hour))])
    yield client
    client.close()
    store.close()


def histogram(client, query="all", **more):
    answer = client.post("/logs/courses/event-histogram", {"query": query, **more})
    assert answer.status == 200, answer.body
    assert answer.headers["headwater-head"] == str(answer.json["head"])
    return answer.json


def events(found):
    return [each["events"] for each in found["buckets"]]


def test_large_events_are_counted_without_a_copy_of_their_data(asked):
    size = 4 * PAGE_BYTES
    log = asked.store.create("large", LogSettings(event_bytes_max=size))
    log.append([Event("A", bytes(size), attributes=happened(3))])
    log.read_page(ALL, 0)  # which verifies it
    scan = TimeScan(log.head())
    tracemalloc.start()
    try:
        assert sum(scan.steps(log, ALL, None, log.head())) == 1
        assert tracemalloc.get_traced_memory()[1] < size // 4
    finally:
        tracemalloc.stop()
    assert scan.seen(log, log.head()).range() == (DAY + 3 * HOUR, DAY + 3 * HOUR)


def test_events_are_counted_by_their_own_times(asked):
    found = histogram(asked, buckets=2)
    incarnation = asked.store.open("courses").info().incarnation
    assert {name: value for name, value in found.items() if name != "buckets"} == {
        "event_from": DAY, "event_before": DAY + 47 * HOUR + 1, "events": 48, "first": 1, "upto": 48,
        "is_complete": True, "head": 48, "incarnation": incarnation,
    }  # fmt: skip
    assert sum(events(found)) == 48 and "types" not in found["buckets"][0]
    exact = histogram(asked, event_from=DAY, event_before=DAY + 48 * HOUR, buckets=4, by_type=True)
    assert exact["buckets"] == [
        {"event_from": DAY + 12 * HOUR * n, "events": 12, "types": {"A": 4, "B": 4, "C": 4}} for n in range(4)
    ]
    assert events(histogram(asked, event_from=DAY + HOUR, event_before=DAY + 4 * HOUR, buckets=3)) == [1, 1, 1]


def test_a_query_and_a_partition_narrow_it(asked):
    found = histogram(asked, {"items": [{"types": ["A"], "tags": ["n:3"]}]}, buckets=300)
    expected = [hour for hour in range(48) if hour % 3 == 0 and hour % 10 == 3]
    assert found["events"] == len(expected) == sum(events(found)) and found["event_from"] == DAY + expected[0] * HOUR
    assert sum(histogram(asked, partition=each)["events"] for each in (0, 1)) == 48
    none = histogram(asked, {"items": [{"types": ["D"]}]}, by_type=True)
    assert (none["events"], none["is_complete"]) == (0, True) and sum(events(none)) == 0


def test_types_are_those_with_most_events(asked, monkeypatch):
    asked.store.open("courses").append([Event("A", attributes=happened(50))])
    found = histogram(asked, by_type=True, types_max=1, buckets=2)
    assert {name for each in found["buckets"] for name in each["types"]} == {"A"} and sum(events(found)) == 49
    assert all(each["types"] == {} for each in histogram(asked, by_type=True, types_max=0)["buckets"])
    monkeypatch.setattr(event_times, "TYPES_MAX", 1)
    few = histogram(asked, {"items": [{"tags": ["n"]}]}, by_type=True, buckets=1)["buckets"][0]
    assert few["events"] == 48 and list(few["types"].values()) == [16], "others are counted, and not named"


def test_what_was_read_is_not_read_again(asked, monkeypatch):
    log, pages = asked.store.open("courses"), []
    read_page = log.read_page

    def watched(*given, **more) -> Page:
        pages.append(read_page(*given, **more))
        return pages[-1]

    monkeypatch.setattr(log, "read_page", watched)
    assert histogram(asked)["events"] == 48 and pages
    pages.clear()
    assert sum(events(histogram(asked, event_from=DAY, event_before=DAY + HOUR, buckets=7))) == 1 and pages == []
    log.append([Event("A", attributes=happened(50))] * 3)
    assert histogram(asked)["events"] == 51 and sum(len(page.events) for page in pages) == 3


def test_without_budget_it_says_how_far_it_got_and_goes_on_there(asked, monkeypatch):
    monkeypatch.setattr("headwater.dcb.counts.histograms.HISTOGRAM_S_MAX", 1e-12)
    monkeypatch.setattr(event_times, "_PAGE_EVENTS", 10)
    seen = [histogram(asked)]
    while not seen[-1]["is_complete"]:
        seen.append(histogram(asked))
    assert [each["events"] for each in seen] == sorted({each["events"] for each in seen}) and len(seen) > 3
    assert {each["upto"] for each in seen} == {48} and (seen[0]["first"], seen[-1]["first"]) == (39, 1)
    assert all(sum(events(each)) == each["events"] == 49 - each["first"] for each in seen)


def test_only_the_newest_are_kept_where_there_are_too_many(asked, monkeypatch):
    monkeypatch.setattr(event_times, "EVENTS_MAX", 20)
    monkeypatch.setattr(event_times, "BLOCK_EVENTS", 8)
    monkeypatch.setattr(event_times, "_PAGE_EVENTS", 4)
    first = histogram(asked)
    assert 20 <= first["events"] < 28 and not first["is_complete"] and first["first"] == 49 - first["events"]
    assert histogram(asked) == first
    asked.store.open("courses").append([Event("A", attributes=happened(50))] * 30)
    later = histogram(asked)
    assert 20 <= later["events"] < 28 and later["upto"] == 78 and later["first"] == 79 - later["events"]


def test_trimmed_events_count_no_more_and_another_incarnation_begins_anew(asked, monkeypatch):
    monkeypatch.setattr(event_times, "BLOCK_EVENTS", 8)
    monkeypatch.setattr(event_times, "_PAGE_EVENTS", 4)
    histogram(asked)
    asked.store.open("courses").trim(31)
    found = histogram(asked)
    assert (found["events"], found["first"], found["is_complete"]) == (18, 31, True) and sum(events(found)) == 18
    asked.store.open("courses").trim(49)
    gone = histogram(asked)
    assert (gone["events"], gone["first"], gone["upto"], gone["is_complete"]) == (0, 49, 48, True)
    asked.ask("DELETE", "/logs/courses")
    asked.put("/logs/courses")
    anew = histogram(asked)
    assert (anew["events"], anew["is_complete"]) == (0, True) and anew["incarnation"] != found["incarnation"]


def test_who_scans_leaves_the_loop_to_others_and_ends_with_the_client(asked, monkeypatch):
    taken = 0

    def steps(*_):
        nonlocal taken
        while True:
            taken += 1
            yield 0

    monkeypatch.setattr(TimeScan, "steps", steps)
    monkeypatch.setattr("headwater.dcb.counts.histograms.HISTOGRAM_S_MAX", 60.0)

    async def scenario():
        scanning = asked.connect("POST", "/logs/courses/event-histogram", {"query": "all"})
        head = await asked.connect("GET", "/logs/courses/head").end()
        assert head.json["head"] == 48 and not scanning.task.done()
        scanning.leave()
        async with asyncio.timeout(60):
            await scanning.task
        assert scanning.messages == []

    asked.run(scenario())
    assert taken > 1


def test_two_who_ask_at_once_share_one_scan(asked, monkeypatch):
    monkeypatch.setattr(event_times, "_PAGE_EVENTS", 5)

    async def scenario():
        both = [asked.connect("POST", "/logs/courses/event-histogram", {"query": "all"}) for _ in range(2)]
        return [(await each.end()).json for each in both]

    first, second = asked.run(scenario())
    assert first == second and first["events"] == 48


def test_an_answer_is_of_one_moment_while_another_reads_on(asked, monkeypatch):
    monkeypatch.setattr("headwater.dcb.counts.histograms.HISTOGRAM_S_MAX", 1e-12)
    monkeypatch.setattr(event_times, "_PAGE_EVENTS", 10)
    steps, counted, others, read = TimeScan.steps, Block.counted, [], []

    def begun(scan, *given):
        others.append(steps(scan, *given))
        return steps(scan, *given)

    def counted_meanwhile(block, borders):
        while others:
            read.append(sum(others.pop()))
        return counted(block, borders)

    monkeypatch.setattr(TimeScan, "steps", begun)
    monkeypatch.setattr(Block, "counted", counted_meanwhile)
    found = histogram(asked)
    assert (found["events"], found["first"], found["is_complete"]) == (10, 39, False) and sum(events(found)) == 10
    assert read == [38], "another read all that was left"
    assert sum(events(histogram(asked))) == 48


def test_what_is_trimmed_while_it_is_read_counts_no_more(asked, monkeypatch):
    log = asked.store.open("courses")
    read_page = log.read_page

    def trimmed_meanwhile(*given, **more) -> Page:
        page = read_page(*given, **more)
        log.trim(31)
        return page

    monkeypatch.setattr(log, "read_page", trimmed_meanwhile)
    histogram(asked)
    monkeypatch.undo()
    found = histogram(asked)
    assert (found["events"], found["first"], found["is_complete"]) == (18, 31, True) and sum(events(found)) == 18


@pytest.mark.parametrize(("more", "path"), [
    ({"buckets": 0}, "buckets"), ({"buckets": 301}, "buckets"), ({"by_type": True, "types_max": 21}, "types_max"),
    ({"event_from": 5, "event_before": 5}, "event_before"), ({"event_from": -62_135_596_800_001}, "event_from"),
    ({"event_before": 253_402_300_800_001}, "event_before"), ({"partition": 3}, "partition"),
    ({"recorded_from": 5}, "recorded_from"), ({"query": "none"}, "query"), ({"query": {"items": []}}, "query.items"),
])  # fmt: skip
def test_bad_questions_are_refused(asked, more, path):
    answer = asked.post("/logs/courses/event-histogram", {"query": "all", **more})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert path == "recorded_from" or answer.json["path"] == f"$.{path}"


@every(("text", "ms"), [
    ("2013-01-01T00:00:00Z", DAY), ("2013-01-01t01:00:00.25+01:00", DAY + 250), ("2013-01-01T00:00:00z", DAY),
    ("2013-01-01T00:00:00.123456789Z", DAY + 123), ("1969-12-31T23:59:59.999Z", -1), ("2013-01-01", DAY),
    ("0001-01-01T00:00:00+23:59", event_times.TIME_MIN), ("9999-12-31T23:59:59.999-23:59", event_times.TIME_MAX),
    ("2016-12-31T23:59:60Z", 7), ("yesterday", 7), ("", 7), ("2013-13-01T00:00:00Z", 7), ("\ud800", 7), (None, 7),
])  # fmt: skip
def test_the_time_of_an_event_is_its_own_or_that_of_its_recording(text, ms):
    attributes = {} if text is None else {"time": text}
    event = SequencedEvent(1, 7, 0, "T", b"", (), "", "", attributes, "", b"", Event("T").encoding)
    assert happened_at(event) == ms


def test_memory_is_bounded_by_forgetting_who_asked_longest_ago():
    kept = EventTimes(bytes_max=10_000)
    scans = {key: kept.scan(key, 0) for key in "abc"}
    for scan in scans.values():
        block = scan._block(1, 500, backwards=False)
        block.times["T"] = array("q", range(500))
        block.count = 500
    assert kept.scan("a", 0) is scans["a"]
    kept.bound()
    assert kept.scan("a", 0) is scans["a"] and kept.scan("b", 0) is not scans["b"]


def test_memory_is_bounded_though_whoever_scans_leaves_in_the_middle_and_by_questions_too(monkeypatch):
    kept = EventTimes(bytes_max=12_000)
    for key in "abcd":
        block = kept.scan(key, 0)._block(1, 500, backwards=False)
        block.times["T"] = array("q", range(500))
        block.count = 500
    last = kept.scan("d", 0)
    assert list(kept._scans) == ["c", "d"]
    monkeypatch.setattr(event_times, "SCANS_MAX", 1)
    kept.bound()
    assert list(kept._scans.values()) == [last]
