"""The corpus of odd events, and how they are said in the forms of other protocols."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.core import Encoding, Event
from headwater.core.limits import EventColumns
from headwater.formats.arrow.columns import batch_of
from headwater.formats.cloudevents import encode_tags

from . import generate

CE = {"specversion": "1.0"}


class Entry(NamedTuple):
    """One odd event, and whether it is taken."""

    name: str
    is_taken: bool
    given: dict[str, Any]
    event: Event


def _entry(line: str) -> Entry:
    found = json.loads(line)
    given = found["event"]
    fields = {name: given[name] for name in ("type", "id", "source", "attributes", "group_key") if name in given}
    data, envelope = (base64.b64decode(given.get(f"{name}_base64", "")) for name in ("data", "envelope"))
    encoding = Encoding(int(given.get("encoding") == "amqp"))
    event = Event(**fields, data=data, envelope=envelope, tags=tuple(given.get("tags", ())), encoding=encoding)
    return Entry(found["name"], found["is_taken"], given, event)


ENTRIES = [_entry(line) for line in generate.FILE.read_text().splitlines()]
TAKEN = [entry for entry in ENTRIES if entry.is_taken]


def rows(given: Sequence[Entry]) -> pa.RecordBatch:
    """The events as rows, not looked at."""
    events = [each.event for each in given]
    columns = [list(column) for column in zip(*events, strict=True)]
    columns[5] = [dict(each) for each in columns[5]]
    columns[8] = [int(each) for each in columns[8]]
    return batch_of(EventColumns.unchecked(*columns, 0))


def members(entry: Entry) -> dict[str, Any]:
    """The event as CloudEvents' JSON has it."""
    event = entry.event
    own = {"id": event.id, "source": event.source, "type": event.type, "data_base64": entry.given["data_base64"]}
    return CE | dict(event.attributes) | own | extensions(event)


def extensions(event: Event) -> dict[str, str]:
    """What CloudEvents has extensions for."""
    key = {"partitionkey": event.group_key} if event.group_key else {}
    return key | ({"tags": encode_tags(event.tags)} if event.tags else {})


def is_message(entry: Entry) -> bool:
    """Whether it is a message of AMQP, which no other protocol can say."""
    return bool(entry.event.envelope or entry.event.encoding)
