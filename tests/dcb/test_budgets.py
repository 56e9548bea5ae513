"""What a body may cost before it is refused, and how long ones are read: counted in CPU per step, and in bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.core import OpenGuard
from headwater.core.event import Event
from headwater.core.limits import APPEND_EVENTS_MAX, ATTRIBUTES_MAX, TAGS_MAX
from headwater.dcb import Application
from headwater.dcb.appends import packed as packed_module
from headwater.formats import packed
from headwater.formats.budget import values
from headwater.storage.engine import Engine
from tests import costly_bodies as bodies

from ..http.cost import STEP_S_MAX, check_growth, cost_of, memory_of
from .conftest import Client

JSON, PACKED, BATCH = "application/json", "application/vnd.msgpack", "application/cloudevents-batch+json"
N = 150_000


def post(client: Any, path: str, body: bytes, media_type: str = JSON) -> Any:
    return client.post(path, body, headers={"content-type": media_type})


@pytest.mark.parametrize("name", bodies.READS)
def test_a_read_costs_no_more_than_its_bytes(client: Any, name: str) -> None:
    body = bodies.READS[name]
    check_growth(body, lambda text: post(client, "/logs/courses/read", text), 50_000)
    assert post(client, "/logs/courses/read", body(50_000)).status == 400
    assert post(client, "/logs/courses/read", body(2_000_000)).status == 413


@pytest.mark.parametrize("path", ["/logs/courses/append", "/dcb/courses/append"])
@pytest.mark.parametrize("name", bodies.APPENDS)
def test_an_append_costs_no_more_than_its_bytes(client: Any, name: str, path: str) -> None:
    body = bodies.APPENDS[name]
    check_growth(body, lambda text: post(client, path, text), N)
    if name != "false ends":
        assert post(client, path, body(N)).status in (400, 413)


@pytest.mark.parametrize("name", bodies.PACKED_APPENDS)
def test_an_append_in_messagepack_costs_no_more_than_its_bytes(client: Any, name: str) -> None:
    body = bodies.PACKED_APPENDS[name]
    check_growth(body, lambda text: post(client, "/logs/courses/append", text, PACKED), N)
    assert post(client, "/logs/courses/append", body(N), PACKED).status == 400


def test_a_batch_of_cloudevents_costs_no_more_than_its_bytes(client: Any) -> None:
    check_growth(bodies.batch_of_cloudevents, lambda text: post(client, "/logs/courses/events", text, BATCH), N)


@pytest.mark.parametrize("name", ["items of a condition", "too many events", "tags of an event"])
def test_what_is_refused_takes_no_more_memory_than_a_few_times_its_body(client: Any, name: str) -> None:
    body = bodies.APPENDS[name](1_000_000)
    assert memory_of(lambda: post(client, "/logs/courses/append", body)) < 4 * len(body) + 40_000_000


def large(count: int) -> list[dict[str, Any]]:
    """Events with all that makes cutting hard: braces and quotes in data, tags as objects, nested attributes."""
    return [
        {
            "type": f"Type{number % 7}",
            "data": json.dumps({"text": '},{"', "back": "\\", "n": number}) * 3,
            "tags": [f"order:{number}", {"key": "customer", "value": str(number % 10)}],
            "id": f"id-{number}",
            "attributes": {"subject": "},{"},
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_long_append_is_stored_as_a_short_one_is(client: Any, indent: int | None) -> None:
    events = large(4_000)
    text = json.dumps({"partition": 0, "events": events, "condition": {"failIfEventsMatch": "all"}}, indent=indent)
    answer = post(client, "/logs/courses/append", text.encode())
    assert (answer.status, answer.json["sequence_number"]) == (200, len(events)), answer.body
    lines = post(client, "/logs/courses/read", b'{"query":"all"}').lines
    assert [line["event"]["data"] for line in lines] == [event["data"] for event in events]
    assert [line["event"]["id"] for line in lines] == [event["id"] for event in events]
    assert lines[-1]["event"]["tags"] == ["customer:9", "order:3999"]
    assert post(client, "/logs/courses/append", text.encode()).status in (200, 412)


def test_a_long_append_in_messagepack_is_stored_as_a_short_one_is(client: Any) -> None:
    events = [["A", b"x" * 100, [f"order:{number}"], f"id-{number}"] for number in range(4_000)]
    body = msgspec.msgpack.encode({"events": events, "condition": {"fail_if_events_match": "all"}})
    assert post(client, "/logs/courses/append", body, PACKED).json["sequence_number"] == 4_000
    lines = post(client, "/logs/courses/read", b'{"query":"all"}').lines
    assert [line["event"]["id"] for line in lines] == [event[3] for event in events]


def test_a_long_batch_of_cloudevents_is_stored_as_a_short_one_is(client: Any) -> None:
    events = [
        {"specversion": "1.0", "id": str(number), "source": "/s", "type": "A", "data": {"a": [{"b": 1}, {"c": "},{"}]}}
        for number in range(3_000)
    ]
    assert post(client, "/logs/courses/events", json.dumps(events).encode(), BATCH).json["sequence_number"] == 3_000
    del events[2_500]["type"]
    answer = post(client, "/logs/courses/events", json.dumps(events).encode(), BATCH)
    assert (answer.status, answer.json["path"]) == (400, "$[2500].type")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda event: event.pop("type"), "$.events[3500]"),
        (lambda event: event.update(type=7), "$.events[3500].type"),
        (lambda event: event.update(type=""), "$.events[3500].type"),
        (lambda event: event.update(data_base64="AA=="), "$.events[3500].data_base64"),
        (lambda event: event["tags"].append("no\ntag"), "$.events[3500].tags[2]"),
    ],
)
def test_what_is_wrong_with_a_long_append_is_told_by_its_place(client: Any, change: Any, path: str) -> None:
    events = large(4_000)
    change(events[3_500])
    answer = post(client, "/logs/courses/append", json.dumps({"events": events}).encode())
    assert (answer.status, answer.json["path"]) == (400, path), answer.body
    assert post(client, "/logs/courses/read", b'{"query":"all"}').lines == []


def test_where_a_long_append_is_no_json_is_told_by_line_and_column(client: Any) -> None:
    text = json.dumps({"events": large(4_000)}, indent=1).encode()
    at = text.index(b'"Type1"', len(text) // 2)
    answer = post(client, "/logs/courses/append", text[:at] + b"\xff" + text[at:])
    assert answer.status == 400
    line, column = text[:at].count(b"\n") + 1, at - text.rindex(b"\n", 0, at)
    assert f"line {line}, column {column}:" in answer.json["detail"]


def test_events_that_are_given_twice_in_a_long_append_are_refused(client: Any) -> None:
    events = json.dumps(large(4_000)).encode()
    answer = post(client, "/logs/courses/append", b'{"events":%b,"events":[{"type":"A"}]}' % events)
    assert answer.status == 400
    assert post(client, "/logs/courses/read", b'{"query":"all"}').lines == []


def test_a_long_append_has_little_beside_its_events_and_condition(client: Any) -> None:
    events, other = json.dumps(large(1_000)).encode(), b"x" * (64 * 1024 + 1)
    answer = post(client, "/logs/courses/append", b'{"events":%b,"other":"%b"}' % (events, other))
    assert answer.status == 400
    assert "expected at most 65536 bytes in addition to `events` and `condition`" in answer.json["detail"]


@pytest.mark.parametrize("path", ["/logs/courses/append", "/dcb/courses/append"])
def test_one_event_that_is_longer_than_any_is_refused_before_it_is_read(client: Any, path: str) -> None:
    small, long = b'{"type":"A","data":"%b"}' % (b"AAAA" * 10_000), b'{"type":"A","data":"%b"}' % (b"AAAA" * 5 * 2**20)
    answer = post(client, path, b'{"events":[%b,%b]}' % (b",".join([small] * 20), long))
    assert answer.status == 413
    assert ".events[" in answer.json["path"] and answer.json["unit"] == "bytes of one event"
    assert post(client, path, b'{"events":[%b]}' % b",".join([small] * 20)).status in (200, 201)


def test_an_append_of_sixteen_mib_is_taken_in_short_steps(tmp_path: Path) -> None:
    event = b'{"type":"OrderPlaced","data":"%b","tags":["order:17","customer:5"]}' % (b"x" * 200)
    body = b'{"events":[%b]}' % b",".join([event] * (16 * 2**20 // (len(event) + 1)))
    with Engine(tmp_path / "data") as store:  # a log in memory would do all of its work on the loop
        log = store.create("courses")
        client = Client(Application(store, OpenGuard()))
        assert cost_of(lambda: post(client, "/logs/courses/append", body)).longest < STEP_S_MAX
        assert log.head() > 50_000
        client.close()


def test_the_rules_of_the_seed_hold_for_long_appends(client: Any) -> None:
    events = large(2_000)
    for event in events:
        event["tags"] = ["a:1"]
    events[1_900]["type"] = "no type"
    answer = post(client, "/logs/courses/append", json.dumps({"events": events, "strict": True}).encode())
    assert (answer.status, answer.json["path"]) == (400, "$.events[1900].type")


def packed_events(count: int) -> bytes:
    return b"\x81\xa6events\xdd" + count.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        (packed_events(70_000) + b"\xc0" * 70_000, 413, "$.events"),
        (packed_events(2**32 - 1) + b"\xc0" * 70_000, 413, "$.events"),
        (packed_events(60_000) + b"\x91\xa1A" * 30_000, 400, "$.events[30000]"),
        (packed_events(1) + b"\xdd\xff\xff\xff\xff" + b"\xc0" * 70_000, 400, "$.events[0]"),
        (packed_events(1) + b"\xdd" + (70_000).to_bytes(4, "big") + b"\xc0" * 70_000, 400, "$.events[0]"),
        (b"\x81\xa6events\xdb" + (70_000).to_bytes(4, "big") + b"x" * 70_000, 400, "$.events"),
        (b"\xdd" + (70_000).to_bytes(4, "big") + b"\x90" * 70_000, 400, "$"),
        (b"\x81\xa6nobody\xdd" + (70_000).to_bytes(4, "big") + b"\x90" * 70_000, 400, "$"),
        (packed_events(30_000) + b"\x91\xa1A" * 30_000 + b"\xc0", 400, "$"),
        (b"\x82" + packed_events(30_000)[1:] + b"\x91\xa1A" * 30_000 + b"\xa6events\x90", 400, "$.events"),
        (b"\x81\xa9partition\xdb" + (70_000).to_bytes(4, "big") + b"x" * 70_000, 413, "$.partition"),
    ],
)
def test_a_long_append_in_messagepack_is_refused_before_anything_is_made_of_it(
    client: Any, monkeypatch: pytest.MonkeyPatch, body: bytes, status: int, path: str
) -> None:
    decoded: list[int] = []
    decode = packed.decode

    def counted(decoder: Any, content: bytes) -> Any:
        decoded.append(len(content))
        return decode(decoder, content)

    monkeypatch.setattr(packed, "decode", counted)
    answer = post(client, "/logs/courses/append", body, PACKED)
    assert (answer.status, answer.json.get("path")) == (status, path), answer.body
    assert sum(decoded) < 100


def test_the_largest_append_in_messagepack_is_within_its_budget() -> None:
    event = [0, [0] * TAGS_MAX, {str(name): 0 for name in range(ATTRIBUTES_MAX)}, *[0] * (len(Event._fields) - 3)]
    walk = values.packed_walk(msgspec.msgpack.encode(event), 0, 10_000)
    assert (walk.values * APPEND_EVENTS_MAX, walk.left) == (packed_module.EVENTS_VALUES_MAX, 0)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda event: event.clear(), "$.events[3500]"),
        (lambda event: event.__setitem__(0, 7), "$.events[3500][0]"),
        (lambda event: event.__setitem__(0, ""), "$.events[3500].type"),
        (lambda event: event[2].append("no\ntag"), "$.events[3500].tags[1]"),
    ],
)
def test_what_is_wrong_with_a_long_append_in_messagepack_is_told_by_its_place(
    client: Any, change: Any, path: str
) -> None:
    events: list[list[Any]] = [["A", b"x" * 100, [f"order:{number}"]] for number in range(4_000)]
    change(events[3_500])
    answer = post(client, "/logs/courses/append", msgspec.msgpack.encode({"events": events}), PACKED)
    assert (answer.status, answer.json["path"]) == (400, path), answer.body
    assert post(client, "/logs/courses/read", b'{"query":"all"}').lines == []
