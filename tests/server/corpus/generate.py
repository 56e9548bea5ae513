"""Writes the corpus: `python -m tests.server.corpus.generate`. A test compares what is in the repository with it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.amqp.streams.messages import delivery_annotations, header, message_annotations, properties
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
    for data in PAYLOADS:
        yield f"payload {data[:20]!r}", True, {"data": data}
    for is_taken, messages in ((True, ODD), (False, POISON)):
        for name, message in messages.items():
            for form in forms(message) if len(message) < 10_000 else ():  # the long ones are in the other tests
                where = "envelope" if form.envelope else "data"
                fields = {"data": form.data, "envelope": form.envelope, "encoding": form.encoding}
                yield f"message: {name}, {where}", is_taken, fields
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
