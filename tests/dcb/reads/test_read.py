"""Reads: bounds, order, forms of the answer, the head, and a client that takes its time."""

from __future__ import annotations

import asyncio
import json

import pyarrow as pa
import pytest

from headwater.core import Event, OpenGuard, Page, Query
from headwater.dcb import Application
from headwater.dcb.reads.read import accepted_form
from headwater.formats import packed
from headwater.formats.arrow import tables
from headwater.storage import Engine, StoredLog
from tests.builders import numbers as numbers_of

from ..conftest import Client


@pytest.fixture
def five(client, event):
    client.append(*[event("T", f"n:{number}") for number in range(1, 6)])
    return client


def numbers(envelopes):
    return [each["sequence_number"] for each in envelopes]


def test_envelope_is_the_seeds(client, event):
    client.append(event(id="x", data='{"some":"data"}'))
    [envelope] = client.read()
    recorded_at = envelope.pop("recorded_at")
    assert recorded_at > 1_700_000_000_000
    assert envelope == {
        "event": {"id": "x", "type": "CourseDefined", "data": '{"some":"data"}', "tags": ["course:c1"]},
        "sequence_number": 1,
    }


def test_from_is_inclusive_and_after_exclusive_in_both_directions(five):
    assert numbers(five.read(**{"from": 3})) == [3, 4, 5]
    assert numbers(five.read(after=3)) == [4, 5]
    assert numbers(five.read(**{"from": 3}, backwards=True)) == [3, 2, 1]
    assert numbers(five.read(after=3, readBackwards=True)) == [2, 1]
    assert numbers(five.read(read_backwards=True, limit=2)) == [5, 4]
    assert numbers(five.read(limit=0)) == []


def test_a_read_ends_with_the_last_number_that_is_wanted_in_both_directions(five):
    assert numbers(five.read(**{"from": 2}, upto=4)) == [2, 3, 4]
    assert numbers(five.read(**{"from": 4}, upto=2, backwards=True)) == [4, 3, 2]
    assert numbers(five.read(upto=2)) == [1, 2] and numbers(five.read(upto=99)) == [1, 2, 3, 4, 5]
    assert numbers(five.read(**{"from": 4}, upto=3)) == numbers(five.read(upto=0)) == []
    assert five.post("/logs/courses/read", {"query": "all", "upto": 2}).headers["headwater-head"] == "5"


@pytest.mark.parametrize(("body", "path"), [
    ({"upto": -1}, "$.upto"), ({"upto": 10**18}, "$.upto"),
    ({"from": 3, "after": 2}, "$.from"), ({"from": 0}, "$.from"), ({"after": -1}, "$.after"),
    ({"limit": -1}, "$.limit"),
    ({"partition": 1}, "$.partition"), ({"backwards": True, "readBackwards": True}, "$.readBackwards"),
    ({"limit": "5"}, "$.limit"), ({"from": 10**18}, "$.from"),
])  # fmt: skip
def test_bad_bounds_are_refused(five, body, path):
    answer = five.post("/logs/courses/read", {"query": "all", **body})
    assert (answer.status, answer.json["path"]) == (400, path)


def test_every_read_answers_head_and_incarnation(five, store):
    answer = five.post("/logs/courses/read", {"query": {"items": [{"types": ["Nothing"]}]}})
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["headwater-head"] == "5"
    assert answer.headers["headwater-incarnation"] == store.open("courses").info().incarnation
    assert five.get("/logs/courses/head").json == {"head": 5, "incarnation": answer.headers["headwater-incarnation"]}


def test_accept_chooses_between_ndjson_array_and_cloudevents(five):
    def read(accept, **body):
        return five.post("/logs/courses/read", {"query": "all", **body}, headers={"accept": accept})

    assert read("*/*").headers["content-type"] == "application/x-ndjson"
    array = read("application/json")
    assert array.headers["content-type"] == "application/json"
    assert numbers(array.json) == [1, 2, 3, 4, 5]
    assert read("application/json", limit=0).body == b"[]"
    for accept in ("application/cloudevents+json", "application/cloudevents-batch+json"):
        batch = read(accept)
        assert batch.headers["content-type"] == "application/cloudevents-batch+json"
        assert [each["sequence"] for each in batch.json] == [f"{number:018d}" for number in range(1, 6)]


@pytest.mark.parametrize(("accept", "form"), [
    (None, "application/x-ndjson"), (b"", "application/x-ndjson"), (b"text/html", "application/x-ndjson"),
    (b"application/json;q=0.5, application/x-ndjson", "application/x-ndjson"),
    (b"application/json, application/x-ndjson;q=0.9", "application/json"),
    (b"application/json;q=0", "application/x-ndjson"), (b"application/json;q=x", "application/x-ndjson"),
    (b"Application/JSON; charset=utf-8", "application/json"),
    (b"application/vnd.msgpack;end=page", "application/vnd.msgpack;end=page"),
    (b'application/vnd.msgpack ; END="page";q=0.5', "application/vnd.msgpack;end=page"),
    (b"application/vnd.msgpack;q=0.4;end=page, application/x-ndjson;q=0.5;end=line", "application/x-ndjson;end=line"),
    (b"application/ndjson; end=line", "application/x-ndjson;end=line"),
    (b"application/vnd.msgpack;end=line", "application/vnd.msgpack"),
    (b"application/json;end=line", "application/json"),
])  # fmt: skip
def test_preferred_form_is_taken(accept, form):
    assert accepted_form(accept) == form


def test_programs_read_messagepack_or_arrow(five, store):
    def read(accept, **body):
        answer = five.post("/logs/courses/read", {"query": "all", **body}, headers={"accept": accept})
        assert answer.headers["content-type"] == accept
        return answer.body

    stored = list(store.open("courses").read())
    assert packed.PageParser().receive_data(read(packed.MEDIA_TYPE)) == stored
    assert read(packed.MEDIA_TYPE, limit=0) == b""
    assert [tables.events_of(batch) for batch in pa.ipc.open_stream(read(tables.STREAM))] == [stored]
    with pa.ipc.open_stream(read(tables.STREAM, limit=0)) as nothing:
        assert nothing.schema.equals(tables.SCHEMA) and list(nothing) == []


@pytest.mark.parametrize("accept", [packed.MEDIA_TYPE, packed.MEDIA_TYPE_WITH_END])
def test_messagepack_of_a_stored_log_goes_out_as_the_storage_packed_it(tmp_path, monkeypatch, accept):
    query = Query.where(tags=["n:1"])
    asked = []
    monkeypatch.setattr(StoredLog, "read_page", recording(StoredLog.read_page, asked))
    with Engine(tmp_path, maintains=False, reserve_bytes=0) as engine:
        log = engine.create("courses")
        log.append([Event("T", b"{}", (f"n:{number % 2}",), f"{number}") for number in range(2500)])
        client = Client(Application(engine, OpenGuard()))
        body = {"query": {"items": [{"tags": ["n:1"]}]}}
        answer = client.post("/logs/courses/read", body, headers={"accept": accept})
        client.close()
        assert [type(page.events) for page in asked] == [packed.PackedEvents] * 2
        events = list(log.read(query))
        pages = packed.encode_page(events[:1000]) + packed.encode_page(events[1000:])
        assert answer.body == pages + (packed.END if accept == packed.MEDIA_TYPE_WITH_END else b"")


def recording(read_page, pages):
    """A method that keeps what it answers."""

    def kept(log, *bounds, **more):
        pages.append(read_page(log, *bounds, **more))
        return pages[-1]

    return kept


def test_whoever_demands_an_end_gets_it_and_is_told_so(five):
    def read(accept, **body):
        answer = five.post("/logs/courses/read", {"query": "all", **body}, headers={"accept": accept})
        assert answer.headers["content-type"] == accept
        return answer

    *events, end = read("application/x-ndjson;end=line", after=3).lines
    assert (numbers(events), end) == ([4, 5], {"end": 5})
    assert read("application/x-ndjson;end=line", limit=0).lines == [{"end": 5}]
    assert read("application/x-ndjson;end=line", data_bytes_max=0).lines[-1] == {"end": 5}
    whole = read(packed.MEDIA_TYPE_WITH_END).body
    assert whole == read(packed.MEDIA_TYPE).body + packed.END
    assert read(packed.MEDIA_TYPE_WITH_END, limit=0).body == packed.END


@pytest.mark.parametrize("accept", ["application/x-ndjson", "application/json"])
def test_long_read_streams_page_by_page(client, store, accept):
    store.open("courses").append([Event("T", b"{}", ("n:1",)) for _ in range(2500)])
    answer = client.post("/logs/courses/read", {"query": "all"}, headers={"accept": accept})
    assert "content-length" not in answer.headers
    found = answer.lines if accept.endswith("ndjson") else answer.json
    assert numbers(found) == list(range(1, 2501))
    answer = client.post("/logs/courses/read", {"query": "all", "limit": 1200, "backwards": True})
    assert numbers(answer.lines) == list(range(2500, 1300, -1))


def test_long_reads_of_programs_stream_page_by_page(client, store):
    store.open("courses").append([Event("T", b"{}", ("n:1",)) for _ in range(2500)])
    answer = client.post("/logs/courses/read", {"query": "all"}, headers={"accept": packed.MEDIA_TYPE})
    assert numbers_of(packed.PageParser().receive_data(answer.body)) == list(range(1, 2501))
    answer = client.post("/logs/courses/read", {"query": "all"}, headers={"accept": tables.STREAM})
    batches = list(pa.ipc.open_stream(answer.body))
    assert len(batches) > 1
    assert [number for batch in batches for number in numbers_of(tables.events_of(batch))] == list(range(1, 2501))


def test_pages_without_match_do_not_break_the_array(client, store):
    log = store.open("courses")
    log.append([Event("T"), Event("T"), Event("T")])
    first, second, third = log.read()
    pages = iter([Page([], 0, 3, False), Page([first], 1, 3, False), Page([], 1, 3, False),
                  Page([second, third], 3, 3, False), Page([], 3, 3, True)])  # fmt: skip
    log.read_page = lambda *arguments, **keywords: next(pages)
    answer = client.post("/logs/courses/read", {"query": "all"}, headers={"accept": "application/json"})
    assert numbers(answer.json) == [1, 2, 3]


def test_slow_client_holds_one_page(client, store):
    """The next page is not even read from the log before the client has taken the one before."""
    log = store.open("courses")
    log.append([Event("T", b"{}") for _ in range(5000)])
    pages = []
    read_page = log.read_page
    log.read_page = lambda *arguments, **keywords: pages.append(1) or read_page(*arguments, **keywords)

    async def scenario():
        connection = client.connect("POST", "/logs/courses/read", {"query": "all"}, takes=2)
        await connection.until(lambda self: len(self.messages) == 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(pages) <= 2
        connection.take(10)
        answer = await connection.end()
        assert len(answer.lines) == 5000

    client.run(scenario())


def test_read_ends_when_the_client_leaves(client, store):
    store.open("courses").append([Event("T", b"{}") for _ in range(5000)])

    async def scenario():
        connection = client.connect("POST", "/logs/courses/read", {"query": "all"}, takes=2)
        await connection.until(lambda self: len(self.messages) == 2)
        connection.leave()
        await asyncio.sleep(0)
        connection.take(10)
        async with asyncio.timeout(5):
            await connection.task
        return connection.is_complete

    assert client.run(scenario()) is False


def test_answer_that_breaks_off_is_not_ended_as_if_it_were_whole(client, store, caplog):
    log = store.open("courses")
    log.append([Event("T", b"{}") for _ in range(3000)])

    async def scenario():
        connection = client.connect("POST", "/logs/courses/read", {"query": "all"}, takes=2)
        await connection.until(lambda self: len(self.messages) == 2)
        log.read_page = lambda *arguments, **keywords: 1 / 0
        connection.take(10)
        with pytest.raises(RuntimeError, match="was interrupted"):
            await connection.task
        return connection.is_complete

    assert client.run(scenario()) is False


def test_explicit_position_below_the_trim_point_is_410(five):
    assert five.post("/logs/courses/trim", {"below": 3}).json == {"first_retained": 3}
    answer = five.post("/logs/courses/read", {"query": "all", "from": 2})
    assert (answer.status, answer.code, answer.json["first_retained"]) == (410, "position_trimmed", 3)
    assert five.post("/logs/courses/read", {"query": "all", "after": 1}).status == 410
    assert numbers(five.read(**{"from": 3})) == numbers(five.read()) == [3, 4, 5]


def test_position_of_another_incarnation_is_410(five, event):
    five.ask("DELETE", "/logs/courses")
    five.put("/logs/courses")
    answer = five.post("/logs/courses/read", {"query": "all", "from": 4})
    assert (answer.status, answer.code, answer.json["first"]) == (410, "position_of_other_incarnation", 6)
    assert five.append(event()).json["sequence_number"] == 6


def test_unknown_log_is_404(client):
    for answer in (client.post("/logs/nowhere/read", {"query": "all"}), client.get("/logs/nowhere/head")):
        assert (answer.status, answer.code, answer.json["log"]) == (404, "log_not_found", "nowhere")


def test_read_of_a_deeply_nested_query_is_refused(client):
    body = b'{"query":' + b"[" * 100_000
    assert client.post("/logs/courses/read", body).status == 400
    assert json.loads(client.post("/logs/courses/read", body).body)["status"] == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/logs"),
        ("GET", "/logs/courses/head"),
        ("POST", "/logs/courses/read"),
        ("DELETE", "/logs/courses"),
        ("POST", "/dcb/courses/append"),
    ],
)
def test_a_query_parameter_that_the_route_does_not_have_is_refused(client, method, path):
    answer = client.ask(method, path, {"query": "all"}, parameters={"limit": 1})
    assert (answer.status, answer.code, answer.json["parameter"]) == (400, "invalid_request", "limit")
    assert client.get("/logs").json == {"logs": ["courses"]}
