"""Traces of requests, on the events that come by them."""

from __future__ import annotations

import json

import msgspec
import pytest

from headwater.dcb.appends import large

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OWN = "00-11111111111111111111111111111111-2222222222222222-00"
TRACED = {"traceparent": PARENT, "tracestate": "vendor=1"}


def attributes(client):
    return [envelope["event"].get("attributes", {}) for envelope in client.read()]


@pytest.mark.parametrize("filling", [0, 300_000], ids=["short", "long"])
def test_events_of_an_append_are_in_the_trace_of_its_request(client, event, filling):
    first = event(data="x" * filling)
    client.post("/logs/courses/append", {"events": [first, event(attributes={"traceparent": OWN})]}, headers=TRACED)
    assert attributes(client) == [TRACED, {"traceparent": OWN}]
    assert filling == 0 or filling > large.LARGE_BYTES


def test_so_are_those_that_come_as_messagepack(client):
    from headwater.formats import packed

    body = msgspec.msgpack.encode({"events": [["A", b"data", [], "", "", {}, "", b"", 0]]})
    headers = {"content-type": packed.MEDIA_TYPE, **TRACED}
    assert client.post("/logs/courses/append", body, headers=headers).status == 200
    assert attributes(client) == [TRACED]


def test_cloudevents_have_the_extension_or_get_that_of_the_request(client):
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    batch = [event, event | {"id": "2", "traceparent": OWN}]
    headers = {"content-type": "application/cloudevents-batch+json", **TRACED}
    assert client.post("/logs/courses/events", json.dumps(batch).encode(), headers=headers).status == 200
    found = client.post("/logs/courses/read", {"query": "all"}, headers={"accept": "application/cloudevents+json"}).json
    assert [(each["traceparent"], each.get("tracestate")) for each in found] == [(PARENT, "vendor=1"), (OWN, None)]


def test_a_trace_that_is_not_well_formed_is_ignored(client, event):
    assert client.post("/logs/courses/append", {"events": [event()]}, headers={"traceparent": "00-x"}).status == 200
    assert attributes(client) == [{}]


@pytest.mark.parametrize("filling", [0, 300_000], ids=["short", "long"])
def test_events_of_the_suites_append_are_in_the_trace_of_its_request(client, filling):
    body = {"events": [{"type": "A", "data": "x" * filling, "tags": []}]}
    assert client.post("/dcb/courses/append", body, headers=TRACED).status == 200
    assert attributes(client) == [TRACED]
