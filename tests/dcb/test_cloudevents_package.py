"""Events of the CNCF's own `cloudevents` package go in by each mode, and come out equal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from cloudevents.v1 import conversion
from cloudevents.v1 import http as first_interface

STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
ATTRIBUTES = {"id": "A 1/ü", "source": "https://example.com/shöp?a=b%20c", "type": "order.placed"}
TIME = datetime(2026, 2, 3, 4, 5, 6, 789000, UTC)
EVENTS = {
    "json": CloudEvent(
        {**ATTRIBUTES, "time": TIME, "subject": "order 7 €", "datacontenttype": "application/json"},
        {"total": 3, "name": "Zoë 🎉", "list": [1.5, None, True]},
    ),
    "other zone": CloudEvent({**ATTRIBUTES, "time": TIME.astimezone(timezone(timedelta(hours=5, minutes=30)))}, {}),
    "text": CloudEvent({**ATTRIBUTES, "time": TIME, "datacontenttype": "text/plain"}, 'plain "text"\n'),
    "bytes": CloudEvent({**ATTRIBUTES, "time": TIME, "datacontenttype": "application/octet-stream"}, b"\x00\xff\xfe"),
    "extensions": CloudEvent(
        {**ATTRIBUTES, "time": TIME, "datacontenttype": "application/json", "dataschema": "https://example.com/s",
         "partitionkey": "p:7", "traceparent": '00-"quoted" 100%-01'},
        {"a": 1},
    ),
    "no data": CloudEvent({**ATTRIBUTES, "time": TIME}),
}  # fmt: skip


def stored(client) -> CloudEvent:
    """The one event of the log, as the package reads it; `sequence` is the log's own."""
    [found] = client.post("/logs/courses/read", {"query": "all"}, headers={"accept": BATCH}).json
    assert found.pop("sequence") == "000000000000000001"
    return from_http_event(HTTPMessage({"content-type": STRUCTURED}, json.dumps(found).encode()))


def body_of(message: HTTPMessage) -> bytes:
    return message.body.encode() if isinstance(message.body, str) else message.body


@pytest.mark.parametrize("name", EVENTS)
@pytest.mark.parametrize("mode", ["structured", "binary", "batch"])
def test_an_event_of_the_package_comes_back_equal(client, mode, name):
    event = EVENTS[name]
    message = (to_binary_event if mode == "binary" else to_structured_event)(event)
    headers, body = dict(message.headers), body_of(message)
    if mode == "batch":
        headers, body = {"content-type": BATCH}, b"[" + body + b"]"
    for was_stored in (False, True):
        answer = client.post("/logs/courses/events", body, headers=headers)
        assert (answer.status, answer.json.get("was_stored")) == (200, was_stored), answer.body
    found = stored(client)
    assert found.get_attributes() == event.get_attributes()
    if event.get_data() is not None:
        assert found.get_data() == event.get_data()


@pytest.mark.parametrize("name", EVENTS)
def test_one_event_as_a_cloudevent_is_the_object_that_was_written(client, name):
    event = EVENTS[name]
    message = to_structured_event(event)
    assert client.post("/logs/courses/events", body_of(message), headers=dict(message.headers)).status == 200
    answer = client.get("/logs/courses/events/1", parameters={"form": "cloudevent"})
    found = from_http_event(HTTPMessage({"content-type": STRUCTURED}, answer.body))
    attributes = found.get_attributes()
    assert attributes.pop("sequence") == "000000000000000001"
    assert attributes == event.get_attributes()
    if event.get_data() is not None:
        assert found.get_data() == event.get_data()


@pytest.mark.parametrize("mode", ["to_structured", "to_binary"])
def test_the_first_interface_of_the_package_writes_and_reads_the_same(client, mode):
    given = {"id": "B-1", "source": "/shop", "type": "order.placed", "time": "2026-02-03T04:05:06Z"}
    event = first_interface.CloudEvent({**given, "datacontenttype": "application/json"}, {"total": 3})
    headers, body = getattr(conversion, mode)(event)
    assert client.post("/logs/courses/events", body, headers=headers).status == 200
    answer = client.get("/logs/courses/events/1", parameters={"form": "cloudevent"})
    found = first_interface.from_http({"content-type": STRUCTURED}, answer.body)
    assert {name: found[name] for name in given} == given
    assert (found["sequence"], found.data) == ("000000000000000001", {"total": 3})
