"""Writes the corpus: `python -m tests.server.corpus.generate`. A test compares what is in the repository with it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from headwater.amqp.protocol.types import Described, Symbol, Timestamp
from tests.amqp.streams.messages import (
    application_properties,
    cloud_event,
    data,
    delivery_annotations,
    header,
    message_annotations,
    properties,
)
from tests.core.test_attribute_rules import NO_SCHEMAS, NO_TIMES, SCHEMAS, TIMES

from ..poison import BODY, ODD, POISON, forms

FILE = Path(__file__).with_name("events.ndjson")
PAYLOADS = [
    b"", b"\x00", b"\xff\xfe", b"{", b"NaN", b"[1e400]", b"1" * 400, b'"\\ud800"', b'"\\udc00\\ud800"',
    b'{"a":1,"a":2}', b'{"a":1}{', "\ufeff{}".encode(), b"[" * 2000, b"-0", b"0.1e-400", b'"\\u0000"', b"<script>",
    "\u2028\u2029".encode(), "\U0001f600".encode(), b"null", b"\xed\xa0\x80",
]  # fmt: skip
TAGS = ["a", "a:1", "a b", "a:1,b", "%2C", " a", "ä:ö", "\U0001f600", "x" * 1100, ":", "\u00a0", "\ufffe"]
NO_TAGS = ["", "x" * 1101, "é" * 551, "a\n", "a\x00", "a\x7f", "a\x9f"]
LABELS = ["x", "a b", "ä", "\U0001f600", "%", '"', "\u2028"]
NO_LABELS = ["a\n", "a\x00", "a\x7f", "a\x85"]
LENGTHS = {"type": 200, "id": 512, "source": 2048, "group_key": 512}
STRUCTURED = properties(content_type=Symbol("application/cloudevents+json"))
NO_EVENTS = {
    "time that is none": cloud_event(time="now"),
    "time beyond the year 9999": cloud_event(time=Timestamp(253402300800000)),
    "time before the year 1": cloud_event(time=Timestamp(-62135596800001)),
    "time of 64 bits": cloud_event(time=Timestamp(2**63 - 1)),
    "specversion 0.3": cloud_event(specversion="0.3"),
    "no type": application_properties(
        {"cloudEvents:specversion": "1.0", "cloudEvents:id": "i", "cloudEvents_source": "s"}
    ),
    "id that is empty": cloud_event(id=""),
    "id of 513 characters": cloud_event(id="x" * 513),
    "subject that is empty": cloud_event(subject=""),
    "tag that is empty": cloud_event(tags="a,,b"),
    "tag that is not UTF-8 behind its percent signs": cloud_event(tags="%ff"),
    "partitionkey of 513 characters": cloud_event(partitionkey="x" * 513),
    "control character": cloud_event(comment="a\nb"),
    "name with a capital letter": cloud_event(Upper="x"),
    "attribute called data": cloud_event(data="x"),
    "double": cloud_event(ratio=1.5),
    "uuid": cloud_event(uuid=UUID(int=5)),
    "described value": cloud_event(described=Described(Symbol("x:y"), 1)),
    "attribute in both forms of its name": application_properties({f"cloudEvents{mark}id": "i" for mark in ":_"}),
    "65 attributes": cloud_event(**{f"a{number}": "" for number in range(65)}),
    "129 tags, of percent signs": cloud_event(tags=",".join(["%41"] * 129)),
    "datacontenttype that is empty": cloud_event(datacontenttype=""),
    "datacontenttype with a control character": cloud_event(datacontenttype="a\n"),
    "datacontenttype of 4,097 characters": cloud_event(datacontenttype="x" * 4097),
    "batch": properties(content_type=Symbol("Application/CloudEvents-Batch+JSON; charset=utf-8")),
    "group key that is an int": message_annotations(event_streams_group_key=5),
    "group key of 513 characters": message_annotations(event_streams_group_key="x" * 513),
    "group key with a control character": message_annotations(event_streams_group_key="a\nb"),
}
"""What comes before the body of messages that say of themselves that they are an event which no log takes."""
OWN_EVENTS = {
    "sequence": cloud_event(sequence="00"),
    "64 attributes": cloud_event(**{f"a{number}": "" for number in range(64)}),
    "partitionkey of 513 characters and a group key": message_annotations(event_streams_group_key=Symbol("k"))
    + cloud_event(partitionkey="x" * 513),
    "group key that is null": message_annotations(event_streams_group_key=None),
    "subject that is no type": properties(subject="a\0"),
    "creation-time beyond the year 9999": properties(creation_time=Timestamp(2**63 - 1)),
    "properties of no CloudEvent": application_properties({"cloudEventsX": 1.5, "n": 1.5}),
}
DOCUMENTS = [b"", b"{", b"[]", b'{"specversion":"1.0","id":"i","source":"s","type":"t","time":"now"}',
             b'{"specversion":"1.0","id":"i","source":"s","type":"t","datacontenttype":7}']  # fmt: skip


def events() -> Iterator[tuple[str, bool, dict[str, Any]]]:
    """Name, whether it is taken, and the fields of each."""
    for is_taken, values in ((True, TIMES), (False, NO_TIMES)):
        yield from ((f"time {value}", is_taken, {"attributes": {"time": value}}) for value in values)
    for is_taken, values in ((True, SCHEMAS), (False, NO_SCHEMAS)):
        yield from ((f"dataschema {value}", is_taken, {"attributes": {"dataschema": value}}) for value in values)
    for name in ("subject", "datacontenttype"):
        yield f"{name} that is empty", False, {"attributes": {name: ""}}
    for value in ("text/plain", "json, more or less", 'application/x; a="b"', "application/vnd.x+json"):
        yield f"datacontenttype {value}", True, {"attributes": {"datacontenttype": value}}
    yield "extension that is empty", True, {"attributes": {"comment": ""}}
    yield "attribute of 4,096 characters", True, {"attributes": {"comment": "x" * 4096}}
    yield "attribute of 4,097 characters", False, {"attributes": {"comment": "x" * 4097}}
    for given in ("Upper", "a-b", "x" * 65, "specversion", "source", ""):
        yield f"attribute called {given}", False, {"attributes": {given: "x"}}
    for is_taken, values in ((True, TAGS), (False, NO_TAGS)):
        yield from ((f"tag {value[:40]!r}", is_taken, {"tags": [value]}) for value in values)
    yield "128 tags", True, {"tags": [f"t:{number:03}" for number in range(128)]}
    yield "129 tags", False, {"tags": [f"t:{number:03}" for number in range(129)]}
    for field, most in LENGTHS.items():
        for value in (*LABELS, "x" * most):
            yield f"{field} {value[:40]!r}", True, {field: value}
        for value in (*NO_LABELS, "x" * (most + 1)):
            yield f"{field} {value[:40]!r}, too odd", False, {field: value}
    for payload in PAYLOADS:
        yield f"payload {payload[:20]!r}", True, {"data": payload}
    for is_taken, messages in ((True, ODD), (False, POISON)):
        for name, message in messages.items():
            for form in forms(message) if len(message) < 10_000 else ():  # the long ones are in the other tests
                where = "envelope" if form.envelope else "data"
                fields = {"data": form.data, "envelope": form.envelope, "encoding": form.encoding}
                yield f"message: {name}, {where}", is_taken, fields
    for is_taken, starts in ((True, OWN_EVENTS), (False, NO_EVENTS)):
        for name, start in starts.items():
            for form in forms(start + BODY):
                yield f"own event: {name}, {'envelope' if form.envelope else 'data'}", is_taken, form._asdict()
    for document in DOCUMENTS:
        yield f"document {document[-20:]!r}", True, {"envelope": STRUCTURED + data(document)[:5], "data": document}
        yield f"document {document[-20:]!r}, whole", True, {"data": STRUCTURED + data(document), "encoding": "amqp"}
    two = STRUCTURED + data(b"{}") + data(b"{}")
    yield "document in two sections", False, {"data": two, "encoding": "amqp"}
    for start in (delivery_annotations(a=1), header(), message_annotations(a=1) + delivery_annotations(a=1)):
        for form in forms(start + BODY):
            yield "message that is not stored so", False, form._asdict()
    yield "envelope of other data", False, {"data": b"payload!", "envelope": properties(subject="S") + BODY[:-7]}


def lines() -> Iterator[str]:
    """The file, line by line."""
    for number, (name, is_taken, fields) in enumerate(events()):
        given = {"type": "odd", "id": f"{number}", "source": "/odd", "data": b"{}"} | fields
        for field in ("data", "envelope"):
            if (content := given.pop(field, b"")) or field == "data":
                given[f"{field}_base64"] = base64.b64encode(content).decode()
        yield json.dumps({"name": name, "is_taken": is_taken, "event": given}) + "\n"


if __name__ == "__main__":
    FILE.write_text("".join(lines()))
