"""`data_bytes_max`: the beginning of each event's data, and how much there is; without it an answer is as it was."""

from __future__ import annotations

import base64
import json

import pytest

from headwater.core import Encoding, Event
from headwater.core.limits import APPEND_BYTES_MAX

FLIGHT = "✈ Zürich \u202e 🛫"


ENVELOPE = b"\0Ss\xd0\0\0\3\xdb\0\0\0\1\xb1\0\0\3\xd2" + b"x" * 978 + b"\0Su\xa0\4"


@pytest.fixture
def filled(client, store):
    store.open("courses").append([
        Event("T", b"0123456789", ("a:1",), id="1", attributes={"subject": "s"}, group_key="g"),
        Event("T", FLIGHT.encode(), id="2"),
        Event("T", b"text, and then \xff\xfe", id="3"),
        Event("T", b"\xff\xfe\xfd", id="4", source="/s"),
        Event("T", b"", id="5"),
        Event("T", b"body", id="6", envelope=ENVELOPE, encoding=Encoding.AMQP),
    ])  # fmt: skip
    return client


def read(client, accept="application/json", **body):
    return client.post("/logs/courses/read", {"query": "all", **body}, headers={"accept": accept})


def events(client, bytes_max):
    answer = read(client, data_bytes_max=bytes_max)
    assert answer.status == 200, answer.body
    return [each["event"] for each in answer.json]


def test_only_what_is_not_plain_data_says_its_encoding(filled):
    found = [each["event"].get("encoding") for each in read(filled).json]
    assert found == [None, None, None, None, None, "amqp"]


def test_data_are_cut_and_their_size_is_told(filled):
    first, *_ = events(filled, 4)
    assert first == {
        "id": "1", "type": "T", "data": "0123", "data_bytes": 10, "tags": ["a:1"], "attributes": {"subject": "s"},
        "group_key": "g",
    }  # fmt: skip
    assert [each["data_bytes"] for each in events(filled, 0)] == [10, len(FLIGHT.encode()), 17, 3, 0, 4]
    assert [each.get("data") for each in events(filled, 0)] == [""] * 6


@pytest.mark.parametrize("bytes_max", range(len(FLIGHT.encode()) + 2))
def test_a_character_is_never_cut(filled, bytes_max):
    shown = events(filled, bytes_max)[1]["data"]
    assert FLIGHT.startswith(shown)
    assert len(shown.encode()) <= bytes_max < len(shown.encode()) + 4 or shown == FLIGHT


def test_data_are_text_as_far_as_they_are_shown(filled):
    of_two = events(filled, 15)
    assert (of_two[2]["data"], of_two[2]["data_bytes"]) == ("text, and then ", 17)
    assert base64.b64decode(events(filled, 16)[2]["data_base64"]) == b"text, and then \xff"
    assert base64.b64decode(events(filled, 2)[3]["data_base64"]) == b"\xff\xfe"


def test_data_that_end_within_a_character_are_bytes(client, store):
    store.open("courses").append([Event("T", "é".encode()[:1])])
    assert base64.b64decode(events(client, 100)[0]["data_base64"]) == "é".encode()[:1]


def test_an_envelope_is_but_its_size(filled):
    last = events(filled, 100)[-1]
    assert (last["data"], last["envelope_bytes"], last["encoding"]) == ("body", 1000, "amqp")
    assert "envelope_base64" not in last


def test_all_else_is_as_without(filled):
    """Enough bytes for everything: the same events, with sizes."""
    plain = read(filled).json
    for each in plain:
        data = each["event"].get("data", "").encode() or base64.b64decode(each["event"].get("data_base64", ""))
        each["event"]["data_bytes"] = len(data)
        if "envelope_base64" in each["event"]:
            each["event"]["envelope_bytes"] = len(base64.b64decode(each["event"].pop("envelope_base64")))
    assert read(filled, data_bytes_max=APPEND_BYTES_MAX).json == plain
    lines = read(filled, accept="application/x-ndjson", data_bytes_max=APPEND_BYTES_MAX).lines
    assert lines == plain


def test_partitions_and_ids_of_the_first_draft_are_shown_as_ever(client, store):
    from headwater.core import LogSettings

    store.create("parted", LogSettings(partitions=3)).append([Event("T", b"abc", id="x y")], partition=2)
    query = {"version": "1.0", "criteria": []}
    plain, cut = (
        client.post("/logs/parted/read", {"query": query, **more}).lines for more in ({}, {"data_bytes_max": 1})
    )
    assert cut[0]["partition"] == plain[0]["partition"] == 2
    assert cut[0]["event"]["id"] == plain[0]["event"]["id"] != "x y"


@pytest.mark.parametrize("value", [-1, APPEND_BYTES_MAX + 1, 2**53 + 1, "10", 1.5, True])
def test_other_values_are_refused(filled, value):
    answer = read(filled, data_bytes_max=value)
    assert (answer.status, answer.code, answer.json["path"]) == (400, "invalid_request", "$.data_bytes_max")


@pytest.mark.parametrize(
    "accept", ["application/cloudevents+json", "application/vnd.msgpack", "application/vnd.apache.arrow.stream"]
)
def test_forms_that_say_no_sizes_are_refused(filled, accept):
    answer = read(filled, accept=accept, data_bytes_max=10)
    assert (answer.status, answer.json["path"]) == (400, "$.data_bytes_max")
    assert accept.partition("+")[0] in answer.json["detail"]


def test_subscriptions_take_it_too(filled):
    async def scenario():
        connection = filled.connect(
            "GET", "/logs/courses/subscribe", parameters={"query": "all", "data_bytes_max": "3"}
        )
        await connection.until(lambda each: b"id: 6" in each.body)
        connection.leave()
        return (await connection.end()).body

    blocks = [block for block in filled.run(scenario()).split(b"\n\n") if b"data: " in block]
    shown = [json.loads(block.partition(b"data: ")[2])["event"] for block in blocks]
    assert shown[0]["data"] == "012" and shown[0]["data_bytes"] == 10
    assert shown[-1]["envelope_bytes"] == 1000


@pytest.mark.parametrize("value", ["-1", "x", "67108865", "9" * 30, ""])
def test_subscriptions_refuse_other_values(filled, value):
    answer = filled.get("/logs/courses/subscribe", parameters={"query": "all", "data_bytes_max": value})
    assert (answer.status, answer.json["parameter"]) == (400, "data_bytes_max")
