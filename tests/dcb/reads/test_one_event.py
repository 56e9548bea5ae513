"""One event in its forms: each is what its protocol gives, and none is a page of the server."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import pytest

from headwater.amqp.messages.inbound import read_message
from headwater.amqp.messages.readable import SECTION_BYTES_MAX, as_json, readable
from headwater.amqp.protocol.message import SEQUENCE, VALUE, Message, Properties, encode_message
from headwater.amqp.protocol.types import (
    Array,
    Char,
    Decimal64,
    Described,
    Float,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)
from headwater.core import Event, LogSettings, OpenGuard
from headwater.core.event import Encoding, SequencedEvent
from headwater.dcb import Application
from headwater.futoin.settings import Settings
from headwater.server.startup.event_forms import event_forms
from headwater.storage.memory import MemoryStore
from tests.every import every

from ..conftest import Client


@pytest.fixture
def client():
    store = MemoryStore()
    client = Client(Application(store, OpenGuard(), forms=event_forms(Settings())))
    client.store = store
    yield client
    client.close()
    store.close()


@pytest.fixture
def log(client):
    log = client.store.create("orders", LogSettings(partitions=2))
    attributes = {"datacontenttype": "application/json", "time": "2026-01-31T12:00:00Z"}
    log.append([Event("OrderPlaced", b'{"n": 9007199254740993}', ("order:1",), "id-1", "/shop", attributes)])
    log.append([Event("ORDER_NEW", b"\xff\x00<script>", ("a",), attributes={"datacontenttype": "text/html"})])
    return log


def form(client: Client, number: int, name: str | None = None, **more: Any) -> Any:
    return client.get(f"/logs/orders/events/{number}", parameters={**({"form": name} if name else {}), **more})


def test_the_envelope_is_that_of_a_read(client, log):
    read = client.post("/logs/orders/read", {"query": "all"}).lines
    for number in (1, 2):
        for name in (None, "envelope"):
            answer = form(client, number, name)
            assert (answer.status, answer.json) == (200, read[number - 1])
    assert answer.headers["headwater-head"] == "2" and answer.headers["headwater-incarnation"] == log.info().incarnation
    preview = form(client, 1, data_bytes_max="4").json["event"]
    assert (preview["data"], preview["data_bytes"]) == ('{"n"', 23)


def test_data_comes_as_it_is_and_as_no_page_of_the_server(client, log):
    answer = form(client, 2, "data")
    assert answer.body == b"\xff\x00<script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment"
    assert (
        answer.headers["x-content-type-options"] == "nosniff" and "sandbox" in answer.headers["content-security-policy"]
    )
    assert form(client, 2, "data", data_bytes_max="2").body == b"\xff\x00"
    assert form(client, 2, "data", data_bytes_max="0").body == b""


def test_a_cloudevent_is_that_of_a_batch(client, log):
    batch = client.post(
        "/logs/orders/read", {"query": "all"}, headers={"accept": "application/cloudevents-batch+json"}
    ).json
    answer = form(client, 1, "cloudevent")
    assert answer.headers["content-type"] == "application/cloudevents+json"
    assert answer.json == batch[0] and answer.json["data"] == {"n": 9007199254740993}


def test_a_futoin_event_is_that_of_a_poll(client, log):
    first, second = (form(client, number, "futoin").json for number in (1, 2))
    assert (first["id"], first["type"], first["data"]["type"]) == ("1", "OTHER", "OrderPlaced")
    assert (second["type"], second["data"]) == (
        "ORDER_NEW",
        {"data_base64": base64.b64encode(b"\xff\x00<script>").decode()},
    )


def test_an_amqp_message_is_taken_apart_and_its_bytes_are_where_it_says(client, log):
    told, answer = form(client, 1, "amqp").json, form(client, 1, "amqp_bytes")
    message = answer.body
    assert answer.headers["content-disposition"] == "attachment"
    assert (told["bytes"], told["body"]) == (len(message), "data")
    sections = {each["section"]: each for each in told["sections"]}
    assert sections["delivery-annotations"]["value"]["event-streams-offset"] == {"symbol": f"{1:020d}"}
    assert sections["properties"]["value"]["content-type"] == {"symbol": "application/json"}
    assert sections["application-properties"]["value"]["cloudEvents:id"] == "id-1"
    payload = sections["body"]["payload"]
    assert message[payload["at"] : payload["at"] + payload["bytes"]] == b'{"n": 9007199254740993}'
    assert sum(each["bytes"] for each in told["sections"]) == len(message)


def test_a_message_with_a_body_of_its_own_is_shown_as_it_came(client, log):
    body = {"a": [1, None, True], Symbol("b"): UInt(7)}
    event, _ = read_message(
        encode_message(Message(body, VALUE, properties=Properties(subject="S", message_id=ULong(5))))
    )
    log.append([event])
    told = form(client, 3, "amqp").json
    sections = {each["section"]: each for each in told["sections"]}
    assert told["body"] == "amqp-value" and sections["body"]["value"] == {"a": [1, None, True], "b": {"uint": 7}}
    assert sections["properties"]["value"]["message-id"] == {"ulong": 5}


def test_what_is_not_there_says_what_is(client, log):
    answer = form(client, 3)
    assert (answer.status, answer.code) == (404, "event_not_found")
    assert (answer.json["sequence_number"], answer.json["first_retained"], answer.json["head"]) == (3, 1, 2)
    log.trim(2)
    answer = form(client, 1)
    assert (answer.status, answer.code, answer.json["first_retained"]) == (410, "position_trimmed", 2)
    log.trim(3)
    assert form(client, 3).status == 404 and "it is empty" in form(client, 3).json["detail"]
    assert client.get("/logs/nothing/events/1").code == "log_not_found"


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.0", "01", "\u0661", "9" * 19, "9" * 4000, "%00", "1e3", " 1"])
def test_a_number_is_a_number(client, log, number):
    answer = client.get(f"/logs/orders/events/{number}")
    assert answer.status in (400, 404) and answer.code in ("invalid_request", "route_not_found", "event_not_found")


@pytest.mark.parametrize(
    "given",
    [
        {"form": "html"},
        {"form": ""},
        {"data_bytes_max": "-1"},
        {"data_bytes_max": "x"},
        {"form": "amqp", "data_bytes_max": "5"},
        {"other": "1"},
        {"data_bytes_max": "9" * 30},
    ],
    ids=str,
)
def test_parameters_are_checked(client, log, given):
    answer = client.get("/logs/orders/events/1", parameters=given)
    assert (answer.status, answer.code) == (400, "invalid_request")


VALUES: list[tuple[Any, Any]] = [
    (1.5, 1.5),
    (float("inf"), {"double": "inf"}),
    (Float(0.5), {"float": 0.5}),
    (Float(float("nan")), {"float": "nan"}),
    (UByte(3), {"ubyte": 3}),
    (Timestamp(0), {"timestamp": 0}),
    (b"hi", {"binary": "aGk="}),
    (Char("x"), {"char": "x"}),
    (Decimal64(b"12345678"), {"decimal64": "MTIzNDU2Nzg="}),
    (uuid.UUID(int=5), {"uuid": str(uuid.UUID(int=5))}),
    (Described(ULong(1), ["x"]), {"descriptor": {"ulong": 1}, "described": ["x"]}),
    (Array([UInt(1), UInt(2)], 0x70), {"array": [{"uint": 1}, {"uint": 2}]}),
    ({}, {}),
    ({"symbol": "x"}, {"map": [["symbol", "x"]]}),
    ({"symbol": "x", "other": 1}, {"symbol": "x", "other": 1}),
    ({UInt(1): "x"}, {"map": [[{"uint": 1}, "x"]]}),
    (2**63 - 1, 2**63 - 1),
]


@every(("value", "shown"), VALUES, ids=repr)
def test_values_keep_their_types(value, shown):
    assert as_json(value) == shown
    json.dumps(as_json(value), allow_nan=False)


def test_what_cannot_be_shown_says_why():
    assert readable(b"")["body"] == "none"
    assert "problem" in readable(b"\x00\x53\x75\xa0\x05abc")
    large = encode_message(Message("x" * SECTION_BYTES_MAX, VALUE))
    assert "not decoded" in readable(large)["sections"][0]["problem"]
    assert "several sections" in readable(encode_message(Message([[1], [2]], SEQUENCE)))["sections"][0]["problem"]


@pytest.mark.parametrize("depth", [20, 4000])
def test_a_value_of_any_depth_is_shown_or_said_to_be_too_deep(client, depth):
    value = b"\x45"
    for _ in range(depth):
        value = b"\xd0" + (len(value) + 4).to_bytes(4) + (1).to_bytes(4) + value
    told = event_forms(Settings())["amqp"](stored(b"\x00\x53\x77" + value), "orders", 1)
    (body,) = [each for each in json.loads(told.body)["sections"] if each["section"] == "body"]
    assert ("value" in body) is (depth == 20) and ("problem" in body) is (depth != 20)


def stored(message: bytes) -> SequencedEvent:
    """An event that is that message."""
    return SequencedEvent(1, 1, 0, "T", message, (), "1", "", {}, "", b"", Encoding.AMQP)
