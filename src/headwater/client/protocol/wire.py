"""Conversion between the server's `/logs` format and the core's values (shapes: `/openapi.yaml`).

Events travel as MessagePack, everything else as JSON.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct, field

from ...core.condition import AppendCondition
from ...core.consumer import Consumer
from ...core.limits import EventColumns
from ...core.log import AppendResult, LogInfo
from ...core.query import Query
from ...formats import packed
from ...formats.clients.answer import Answer
from .problems import UnexpectedAnswer


class HeldPartition(Struct):
    """A partition that a worker holds."""

    partition: int
    epoch: int
    after: int
    is_leaving: bool


class Holding(Struct):
    """The partitions a worker holds, and the version of that set."""

    version: int
    partitions: list[HeldPartition]


class _Appended(Struct, gc=False):
    sequence_number: int
    first_sequence_number: int
    was_stored: bool


class _Head(Struct, gc=False):
    head: int
    incarnation: str = ""


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
    upto: int | None = None


class BeatBody(Struct, omit_defaults=True):
    """The body of a worker's beat."""

    lease_ms: int
    wait_ms: int = 0
    version: int | None = None
    start: str | None = None


class DoneBody(Struct, omit_defaults=True):
    """The body of a worker's acknowledgement."""

    partition: int
    epoch: int
    sequence_number: int
    gives_up: bool = False


ARROW = "application/vnd.apache.arrow.stream"

encode = msgspec.json.encode
_decode_appended = msgspec.json.Decoder(_Appended).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_trimmed = msgspec.json.Decoder(_Trimmed).decode
_decode_names = msgspec.json.Decoder(_Names).decode
_decode_info = msgspec.json.Decoder(LogInfo).decode
_decode_consumer = msgspec.json.Decoder(Consumer).decode
_decode_holding = msgspec.json.Decoder(Holding).decode
_decode_consumers = msgspec.json.Decoder(_Consumers).decode


def append_body(columns: EventColumns, condition: AppendCondition | None, partition: int | None) -> bytes:
    """The body of an append, as MessagePack."""
    events = packed.event_rows(columns)
    strict = None if condition is None or not condition.requires_match else False
    return packed.encode(_AppendBody(events, _condition_json(condition) if condition else None, partition, strict))


def append_parameters(condition: AppendCondition | None, partition: int | None) -> str:
    """The condition and partition of an append as Arrow, as the end of its path: a stream holds only events."""
    given: dict[str, object] = {}
    if condition is not None:
        given["condition"] = encode(_condition_json(condition)).decode()
    if partition is not None:
        given["partition"] = partition
    return f"?{urlencode(given)}" if given else ""


def append_result(answer: Answer) -> AppendResult:
    """The answer to an append."""
    appended = _decode_appended(answer.body())
    return AppendResult(appended.first_sequence_number, appended.sequence_number, appended.was_stored)


def head(answer: Answer) -> int:
    """The answer to the question for the head."""
    return _decode_head(answer.body()).head


def head_and_incarnation(answer: Answer) -> tuple[int, str]:
    """The same, with the incarnation whose number it is."""
    head = _decode_head(answer.body())
    return head.head, head.incarnation


def trimmed(answer: Answer) -> int:
    """The answer to a trim: the first number that is retained."""
    return _decode_trimmed(answer.body()).first_retained


def names(answer: Answer) -> list[str]:
    """The answer to the question for logs."""
    return _decode_names(answer.body()).logs


def info(answer: Answer) -> LogInfo:
    """The answer to the question for a log."""
    return _decode_info(answer.body())


def consumer(answer: Answer) -> Consumer:
    """The answer to a request about a consumer."""
    return _decode_consumer(answer.body())


def consumers(answer: Answer) -> list[Consumer]:
    """The answer to the question for consumers."""
    return _decode_consumers(answer.body()).consumers


def holding(answer: Answer) -> Holding:
    """The answer to a worker's beat."""
    return _decode_holding(answer.body())


def nothing(answer: Answer) -> None:
    """Ignore the answer: the request succeeded."""


def number_of(answer: Answer, name: bytes) -> int:
    """A header field (its name in lower case) that is a number. Raises UnexpectedAnswer if it is missing."""
    value = answer.fields.get(name, b"")
    if not value.isdigit():
        raise UnexpectedAnswer(answer.status, f"the header {name.decode()} is missing")
    return int(value)


def query_json(query: Query) -> dict[str, Any]:
    """A query as JSON; items without types or tags leave them out."""
    if query.items is None:
        return {"all": True}
    items = []
    for item in query.items:
        terms = {}
        if item.types:
            terms["types"] = item.types
        if item.tags:
            terms["tags"] = item.tags
        if item.exact_tags:
            terms["exact_tags"] = item.exact_tags
        items.append(terms)
    return {"items": items}


def _condition_json(condition: AppendCondition) -> dict[str, Any]:
    query = query_json(condition.fail_if_events_match)
    if condition.requires_match:  # only the first draft's form supports it
        return {"query": query, "expected_highest_sequence_number": condition.after}
    return {"failIfEventsMatch": query, "after": condition.after}
