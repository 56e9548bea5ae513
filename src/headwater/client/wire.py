"""What the server's `/logs` speaks, and the core's values, both ways (shapes: `/openapi.yaml`).

Events travel as MessagePack, all else is JSON.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct, field

from ..core.condition import AppendCondition
from ..core.consumer import Consumer
from ..core.limits import EventColumns
from ..core.log import AppendResult, LogInfo
from ..core.query import Query
from ..formats import packed


class _Appended(Struct, gc=False):
    sequence_number: int
    first_sequence_number: int
    was_stored: bool


class _Head(Struct, gc=False):
    head: int


class _Trimmed(Struct, gc=False):
    first_retained: int


class _Names(Struct):
    logs: list[str]


class _Consumers(Struct):
    consumers: list[Consumer]


class _AppendBody(Struct, omit_defaults=True):
    events: list[tuple[object, ...]]
    condition: dict[str, Any] | None = None
    partition: int | None = None
    strict: bool | None = None


class ReadBody(Struct, omit_defaults=True):
    """The body of a read."""

    query: dict[str, Any]
    from_: int | None = field(default=None, name="from")
    after: int | None = None
    backwards: bool = False
    limit: int | None = None
    partition: int | None = None


ARROW = "application/vnd.apache.arrow.stream"

encode = msgspec.json.encode
decode_appended = msgspec.json.Decoder(_Appended).decode
decode_head = msgspec.json.Decoder(_Head).decode
decode_trimmed = msgspec.json.Decoder(_Trimmed).decode
decode_names = msgspec.json.Decoder(_Names).decode
decode_info = msgspec.json.Decoder(LogInfo).decode
decode_consumer = msgspec.json.Decoder(Consumer).decode
decode_consumers = msgspec.json.Decoder(_Consumers).decode


def append_body(columns: EventColumns, condition: AppendCondition | None, partition: int | None) -> bytes:
    """The body of an append, as MessagePack."""
    events = packed.event_rows(columns)
    strict = None if condition is None or not condition.requires_match else False
    return packed.encode(_AppendBody(events, _condition_json(condition) if condition else None, partition, strict))


def append_parameters(condition: AppendCondition | None, partition: int | None) -> str:
    """What an append as Arrow says of itself, as the end of its path: a stream holds nothing but events."""
    given: dict[str, object] = {}
    if condition is not None:
        given["condition"] = encode(_condition_json(condition)).decode()
    if partition is not None:
        given["partition"] = partition
    return f"?{urlencode(given)}" if given else ""


def append_result(body: bytes) -> AppendResult:
    """The answer to an append."""
    appended = decode_appended(body)
    return AppendResult(appended.first_sequence_number, appended.sequence_number, appended.was_stored)


def query_json(query: Query) -> dict[str, Any]:
    """A query as JSON has it; items without types or tags leave them out."""
    if query.items is None:
        return {"all": True}
    items = [{"types": item.types, "tags": item.tags, "exact_tags": item.exact_tags} for item in query.items]
    return {"items": [{name: terms for name, terms in item.items() if terms} for item in items]}


def _condition_json(condition: AppendCondition) -> dict[str, Any]:
    query = query_json(condition.fail_if_events_match)
    if condition.requires_match:  # only the first draft's form can say so
        return {"query": query, "expected_highest_sequence_number": condition.after}
    return {"failIfEventsMatch": query, "after": condition.after}
