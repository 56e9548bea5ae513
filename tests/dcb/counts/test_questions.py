"""What a console asks of a log: counts, terms, times, segments, and what a trim would do."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from headwater.core import Event, LogSettings, OpenGuard
from headwater.core.counting import Counted
from headwater.dcb import Application
from headwater.dcb.counts import count as count_module
from headwater.dcb.counts.work_budget import Work
from headwater.storage import Engine
from headwater.storage.append.clock import TrustedClock
from headwater.storage.memory import MemoryStore
from headwater.storage.segments import segment_log

from ..conftest import Client

NAMES = ['it\'s "quoted"', "'; rm -rf ~", "<script>", "\u202etfel", "🛫", "a&b=c", "%2F", "order:\u2028"]


class Clock:
    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture(params=["memory", "segments"])
def kept(request, tmp_path):
    """A store of either kind, its clock, and a client."""
    clock = Clock()
    trusted = TrustedClock(clock, patience_ms=0)
    made = MemoryStore(trusted) if request.param == "memory" else Engine(tmp_path, clock=trusted)
    client = Client(Application(made, OpenGuard()))
    client.clock, client.store = clock, made
    yield client
    client.close()
    made.close()


@pytest.fixture
def asked(kept):
    """A minute of events, one a second."""
    log = kept.store.create("courses")
    for number in range(60):
        kept.clock.now += 1000
        log.append([Event("ABC"[number % 3], b"\xff" * 10, (f"n:{number % 10}", NAMES[number % len(NAMES)]))])
    return kept


def count(client, query="all", **more):
    answer = client.post("/logs/courses/count", {"query": query, **more})
    assert answer.status == 200, answer.body
    assert answer.headers["headwater-head"] == str(answer.json["head"])
    return answer.json


def test_a_count_is_that_of_a_read(asked):
    incarnation = asked.store.open("courses").info().incarnation
    assert count(asked) == {
        "events": 60, "upto": 60, "is_complete": True, "head": 60, "incarnation": incarnation,
    }  # fmt: skip
    assert count(asked, {"items": [{"tags": ["n"]}]})["events"] == 60
    assert count(asked, {"items": [{"types": ["A"], "tags": ["n:3"]}]}, by_type=True)["types"] == {"A": 2}
    for name in NAMES:
        found = count(asked, {"items": [{"exact_tags": [name]}]})["events"]
        assert found == len(asked.read({"items": [{"exact_tags": [name]}]})) > 0
    assert count(asked, after=10, upto=20)["events"] == 10
    assert count(asked, **{"from": 10}, upto=10**17)["events"] == 51
    assert count(asked, upto=0)["events"] == 0
    assert count(asked, upto=5, after=50) | {"incarnation": ""} == {
        "events": 0, "upto": 5, "is_complete": True, "head": 60, "incarnation": "",
    }  # fmt: skip


def test_types_are_those_with_most_events(asked, monkeypatch):
    asked.store.open("courses").append([Event("D", b"")])
    found = count(asked, by_type=True)
    assert (found["types"], found["other_types"]) == ({"A": 20, "B": 20, "C": 20, "D": 1}, 0)
    monkeypatch.setattr(count_module, "TYPES_SHOWN", 3)
    found = count(asked, by_type=True)
    assert (found["types"], found["other_types"]) == ({"A": 20, "B": 20, "C": 20}, 1)
    monkeypatch.setattr(count_module, "TYPES_KEPT", 0)
    tally = count_module.Tally(by_type=True, types_max=1)
    tally._add_types([("A", 1), ("B", 5), ("A", 1)])
    assert tally.types == {"A": 2}


def test_a_count_without_budget_says_how_far_it_got(asked, monkeypatch):
    def steps(*_, **__):
        for upto in range(10, 61, 10):
            yield Counted(upto, 10, {"A": 10})

    monkeypatch.setattr(asked.store.open("courses"), "count_steps", steps)
    monkeypatch.setattr(Work.__init__, "__defaults__", (1e-12,))
    found = count(asked, by_type=True)
    assert (found["events"], found["upto"], found["is_complete"]) == (10, 10, False)
    assert found["types"] == {"A": 10}


def test_who_counts_leaves_the_loop_to_others_and_ends_with_the_client(asked, monkeypatch):
    taken = 0

    def steps(*_, **__):
        nonlocal taken
        while True:
            taken += 1
            yield Counted(0, 0)

    monkeypatch.setattr(asked.store.open("courses"), "count_steps", steps)
    monkeypatch.setattr(Work.__init__, "__defaults__", (5.0,))

    async def scenario():
        counting = asked.connect("POST", "/logs/courses/count", {"query": "all"})
        head = await asked.connect("GET", "/logs/courses/head").end()
        assert head.json["head"] == 60 and not counting.task.done()
        counting.leave()
        async with asyncio.timeout(10):
            await counting.task
        assert counting.messages == []

    asked.run(scenario())
    assert taken > 1


@pytest.mark.parametrize(("body", "path"), [
    ({"query": "none"}, "$.query"), ({}, None), ({"query": "all", "upto": -1}, "$.upto"),
    ({"query": "all", "from": 1, "after": 1}, "$.from"), ({"query": "all", "partition": 1}, "$.partition"),
    ({"query": "all", "upto": 10**18}, "$.upto"), ({"query": "all", "by_type": "yes"}, "$.by_type"),
    ({"query": {"items": []}}, "$.query.items"), ({"query": "all", "limit": 1}, None),
])  # fmt: skip
def test_bad_counts_are_refused(asked, body, path):
    answer = asked.post("/logs/courses/count", body)
    assert answer.status == 400 and answer.code == "invalid_request"
    assert path is None or answer.json["path"] == path


def test_a_trimmed_position_is_gone_and_another_incarnation_says_so(asked):
    asked.store.open("courses").trim(31)
    assert count(asked)["events"] == 30
    assert asked.post("/logs/courses/count", {"query": "all", "after": 5}).code == "position_trimmed"
    asked.ask("DELETE", "/logs/courses")
    asked.put("/logs/courses")
    assert asked.post("/logs/courses/count", {"query": "all", "after": 5}).code == "position_of_other_incarnation"
    assert count(asked)["events"] == 0
    assert asked.post("/logs/none/count", {"query": "all"}).code == "log_not_found"


# Terms


def terms(client, **parameters):
    answer = client.get("/logs/courses/terms", parameters=parameters)
    assert answer.status == 200, answer.body
    return answer.json


def test_terms_are_in_order_with_their_counts(asked):
    found = terms(asked, kind="type")
    assert found["terms"] == [{"term": each, "events": 20} for each in "ABC"]
    assert found["is_complete"] and found["head"] == 60 and "after" not in found
    assert [each["term"] for each in terms(asked, kind="tag")["terms"]] == sorted(
        [*NAMES, *(f"n:{number}" for number in range(10))]
    )
    keys = terms(asked, kind="tag_key")["terms"]
    assert {"term": "n", "events": 60} in keys and {"term": "order", "events": 7} in keys


@pytest.mark.parametrize("name", NAMES)
def test_a_prefix_is_any_text(asked, name):
    found = terms(asked, kind="tag", prefix=name[:2])["terms"]
    assert name in [each["term"] for each in found]
    assert all(each["term"].startswith(name[:2]) for each in found)


def test_terms_page_by_page_are_all_terms(asked):
    every, page = [], {}
    while True:
        page = terms(asked, kind="tag", limit=3, **({"after": page["after"]} if page else {}))
        every += page["terms"]
        if "after" not in page:
            break
        assert len(page["terms"]) == 3
    assert every == terms(asked, kind="tag")["terms"]


def test_terms_of_trimmed_events_are_none(asked):
    asked.store.open("courses").trim(60)
    assert terms(asked, kind="type")["terms"] == [{"term": "C", "events": 1}]
    assert [each["term"] for each in terms(asked, kind="tag", limit=1, prefix="n:")["terms"]] in ([], ["n:9"])


def test_terms_without_budget_say_that_some_may_be_missing(asked, monkeypatch):
    monkeypatch.setattr(asked.store.open("courses"), "terms", lambda kind, prefix: iter([["A"], ["B"], ["C"]]))
    monkeypatch.setattr(Work.__init__, "__defaults__", (1e-12,))
    found = terms(asked, kind="type")
    assert (found["is_complete"], found["terms"]) == (False, [{"term": "A", "events": 20}])


@pytest.mark.parametrize(("parameters", "name"), [
    ({}, "kind"), ({"kind": "tags"}, "kind"), ({"kind": "tag", "limit": "0"}, "limit"),
    ({"kind": "tag", "limit": "1001"}, "limit"), ({"kind": "tag", "prefix": "é" * 551}, "prefix"),
    ({"kind": "tag", "after": "x" * 1101}, "after"), ({"kind": "tag", "from": "1"}, "from"),
])  # fmt: skip
def test_bad_questions_for_terms_are_refused(asked, parameters, name):
    answer = asked.get("/logs/courses/terms", parameters=parameters)
    assert (answer.status, answer.json["parameter"]) == (400, name)


# Times


def test_a_time_has_a_number(asked):
    start = 1_700_000_000_000
    incarnation = asked.store.open("courses").info().incarnation
    for at, number in ((0, 1), (start + 1000, 1), (start + 1001, 2), (start + 60_000, 60), (start + 60_001, 61)):
        found = asked.get("/logs/courses/position", parameters={"at": at}).json
        assert found == {"sequence_number": number, "head": 60, "incarnation": incarnation}
    asked.store.open("courses").trim(31)
    assert asked.get("/logs/courses/position", parameters={"at": 0}).json["sequence_number"] == 31


@pytest.mark.parametrize("at", ["", "-1", "x", "1e3", "9" * 19])
def test_bad_times_are_refused(asked, at):
    answer = asked.get("/logs/courses/position", parameters={"at": at})
    assert (answer.status, answer.json["parameter"]) == (400, "at")
    assert asked.get("/logs/courses/position").json["parameter"] == "at"


def histogram(client, query="all", **more):
    answer = client.post("/logs/courses/histogram", {"query": query, **more})
    assert answer.status == 200, answer.body
    return answer.json


def test_a_histogram_counts_by_time(asked):
    start = 1_700_000_000_000
    found = histogram(asked, buckets=6)
    assert (found["recorded_from"], found["recorded_before"]) == (start + 1000, start + 60_001)
    assert sum(each["events"] for each in found["buckets"]) == 60 and len(found["buckets"]) == 6
    assert found["is_complete"] and "types" not in found["buckets"][0]
    exact = histogram(asked, recorded_from=start + 1000, recorded_before=start + 61_000, buckets=6, by_type=True)
    assert [each["recorded_from"] for each in exact["buckets"]] == [start + 1000 + 10_000 * n for n in range(6)]
    assert [each["first"] for each in exact["buckets"]] == [1, 11, 21, 31, 41, 51]
    assert exact["buckets"][0] == {
        "recorded_from": start + 1000, "first": 1, "events": 10, "types": {"A": 4, "B": 3, "C": 3},
    }  # fmt: skip
    one = histogram(asked, {"items": [{"tags": ["n:3"]}]}, buckets=60)
    assert sum(each["events"] for each in one["buckets"]) == 6
    assert max(each["events"] for each in one["buckets"]) == 1


def test_types_of_a_histogram_are_those_with_most_events(asked):
    asked.store.open("courses").append([Event("A", b"")])
    found = histogram(asked, by_type=True, types_max=1, buckets=3)
    assert {name for each in found["buckets"] for name in each["types"]} == {"A"}
    assert sum(each["events"] for each in found["buckets"]) == 61
    assert all(each["types"] == {} for each in histogram(asked, by_type=True, types_max=0)["buckets"])


def test_a_histogram_of_a_time_without_events(asked):
    found = histogram(asked, recorded_from=0, recorded_before=2, buckets=300)
    assert [(each["events"], each["first"]) for each in found["buckets"]] == [(0, 1), (0, 1)]
    later = histogram(asked, recorded_from=2**53 + 1, recorded_before=2**53 + 3)
    assert [(each["events"], each["first"]) for each in later["buckets"]] == [(0, 61), (0, 61)]
    asked.store.open("courses").trim(61)
    assert sum(each["events"] for each in histogram(asked)["buckets"]) == 0


@pytest.mark.parametrize(("more", "path"), [
    ({"buckets": 0}, "buckets"), ({"buckets": 301}, "buckets"), ({"recorded_from": -1}, "recorded_from"),
    ({"recorded_from": 5, "recorded_before": 5}, "recorded_before"), ({"by_type": True, "types_max": 21}, "types_max"),
    ({"recorded_before": 10**18}, "recorded_before"), ({"partition": 3}, "partition"),
])  # fmt: skip
def test_bad_histograms_are_refused(asked, more, path):
    answer = asked.post("/logs/courses/histogram", {"query": "all", **more})
    assert (answer.status, answer.json["path"]) == (400, f"$.{path}")


# Segments, and what a trim would do


def test_segments_of_a_log(asked):
    start = 1_700_000_000_000
    found = asked.get("/logs/courses/segments").json
    [segment] = found["segments"]
    assert (segment["first"], segment["last"], segment["events"], segment["is_written"]) == (1, 60, 60, True)
    assert (segment["first_recorded_at"], segment["last_recorded_at"]) == (start + 1000, start + 60_000)
    assert 600 <= segment["bytes"] <= segment["allocated_bytes"]
    assert (found["first_retained"], found["head"]) == (1, 60) and "after" not in found
    assert asked.get("/logs/courses/segments", parameters={"after": 1}).json["segments"] == []


def test_a_new_log_has_no_times(kept):
    kept.put("/logs/empty")
    found = kept.get("/logs/empty/segments").json
    assert all(each["events"] == 0 and each["first_recorded_at"] is None for each in found["segments"])


@pytest.mark.parametrize(("parameters", "name"), [
    ({"limit": "0"}, "limit"), ({"limit": "1001"}, "limit"), ({"after": "-1"}, "after"), ({"first": "1"}, "first"),
])  # fmt: skip
def test_bad_questions_for_segments_are_refused(asked, parameters, name):
    answer = asked.get("/logs/courses/segments", parameters=parameters)
    assert (answer.status, answer.json["parameter"]) == (400, name)


def test_many_segments_are_shown_page_by_page(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES_MIN", 64 * 1024)
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES_MAX", 64 * 1024)
    store = Engine(tmp_path)
    log = store.create("courses", LogSettings())
    for _ in range(6):
        log.append([Event("T", b"x" * 50_000), Event("T", b"y" * 10_000)])
    client = Client(Application(store, OpenGuard()))
    every = client.get("/logs/courses/segments").json["segments"]
    assert len(every) > 2 and [each["is_written"] for each in every] == [False] * (len(every) - 1) + [True]
    assert sum(each["events"] for each in every) == 12
    assert all(after["first"] == before["last"] + 1 for before, after in itertools.pairwise(every))
    first = client.get("/logs/courses/segments", parameters={"limit": 2}).json
    rest = client.get("/logs/courses/segments", parameters={"after": first["after"]}).json
    assert first["segments"] + rest["segments"] == every
    foreseen = client.post("/logs/courses/trim", {"below": 8, "dry_run": True}).json
    gone = [each for each in every[:-1] if each["last"] < 8]
    assert foreseen["freed_segments"] == len(gone) > 0
    assert foreseen["freed_bytes"] == sum(each["allocated_bytes"] for each in gone)
    assert foreseen["bytes"] >= 3 * 60_000
    client.close()
    store.close()


def test_a_dry_run_changes_nothing_and_says_what_a_trim_does(asked):
    log = asked.store.open("courses")
    foreseen = asked.post("/logs/courses/trim", {"below": 31, "dry_run": True}).json
    assert foreseen | {"bytes": 0} == {
        "first_retained": 31, "events": 30, "bytes": 0, "freed_segments": 0, "freed_bytes": 0, "held_back_by": 0,
        "held_back": [],
    }  # fmt: skip
    assert foreseen["bytes"] >= 300
    assert log.first_retained == 1
    assert asked.post("/logs/courses/trim", {"below": 31, "dry_run": False}).json == {"first_retained": 31}
    again = asked.post("/logs/courses/trim", {"below": 31, "dry_run": True}).json
    assert (again["first_retained"], again["events"], again["bytes"]) == (31, 0, 0)
    assert asked.post("/logs/courses/trim", {"below": 5, "dry_run": True}).json["first_retained"] == 31


def test_a_dry_run_names_who_holds_it_back(asked):
    log = asked.store.open("courses")
    log.register_consumer("it's", "\u202e'; rm -rf ~".replace("\u202e", "🛫"), after=10)
    log.register_consumer("ahead", "of it", after=59)
    log.register_consumer("behind", "it", after=20)
    foreseen = asked.post("/logs/courses/trim", {"below": 41, "dry_run": True}).json
    assert (foreseen["first_retained"], foreseen["events"], foreseen["held_back_by"]) == (11, 10, 2)
    assert [(each["owner"], each["acknowledged"], each["events"]) for each in foreseen["held_back"]] == [
        ("it's", 10, 30), ("behind", 20, 20),
    ]  # fmt: skip
    assert all(each["bytes"] > 0 for each in foreseen["held_back"])
    assert asked.post("/logs/courses/trim", {"below": 41}).json == {"first_retained": 11}


@pytest.mark.parametrize("below", [-1, 62, "1", 2**53 + 1])
def test_a_dry_run_is_refused_as_a_trim_is(asked, below):
    one, other = (asked.post("/logs/courses/trim", {"below": below, **more}) for more in ({}, {"dry_run": True}))
    assert one.status == other.status == 400
    assert one.json == other.json
