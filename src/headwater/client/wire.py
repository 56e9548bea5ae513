"""The JSON that the server's `/logs` speaks, and the core's values, both ways (shapes: `/openapi.yaml`)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from ..core.condition import AppendCondition
from ..core.consumer import Consumer
from ..core.event import NO_ATTRIBUTES, Encoding, Event, SequencedEvent
from ..core.limits import EventColumns
from ..core.log import AppendResult, LogInfo
from ..core.query import Query


class EventJson(Struct, omit_defaults=True, gc=False):
    """An event, as it is appended and read. Data that is UTF-8 is a string, other data is base64."""

    type: str
    data: str | UnsetType = UNSET
    data_base64: bytes | UnsetType = UNSET
    tags: tuple[str, ...] = ()
    id: str = ""
    source: str = ""
    attributes: dict[str, str] | UnsetType = UNSET
    group_key: str = ""
    envelope_base64: bytes | UnsetType = UNSET
    encoding: str = "data"


class EnvelopeJson(Struct, omit_defaults=True, gc=False):
    """A stored event: the event, and what the log added. `partition` is there where the log has several."""

    event: EventJson
    sequence_number: int
    recorded_at: int
    partition: int = 0


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
    events: list[EventJson]
    condition: dict[str, Any] | None = None
    partition: int | None = None
    strict: bool | None = None


class _ReadBody(Struct, omit_defaults=True):
    query: dict[str, Any]
    from_: int | None = field(default=None, name="from")
    after: int | None = None
    backwards: bool = False
    limit: int | None = None
    partition: int | None = None


encode = msgspec.json.encode
decode_appended = msgspec.json.Decoder(_Appended).decode
decode_head = msgspec.json.Decoder(_Head).decode
decode_trimmed = msgspec.json.Decoder(_Trimmed).decode
decode_names = msgspec.json.Decoder(_Names).decode
decode_info = msgspec.json.Decoder(LogInfo).decode
decode_consumer = msgspec.json.Decoder(Consumer).decode
decode_consumers = msgspec.json.Decoder(_Consumers).decode
_envelope = msgspec.json.Decoder(EnvelopeJson)
_query = msgspec.json.Decoder(dict[str, Any])


def append_body(columns: EventColumns, condition: AppendCondition | None, partition: int | None) -> bytes:
    """The body of an append."""
    events = list(
        map(
            event_json,
            columns.types,
            columns.data,
            columns.tags,
            columns.ids,
            columns.sources,
            columns.attributes,
            columns.group_keys,
            columns.envelopes,
            columns.encodings,
        )
    )
    strict = None if condition is None or not condition.requires_match else False
    return encode(_AppendBody(events, _condition_json(condition) if condition else None, partition, strict))


def event_json(
    type: str,
    data: bytes,
    tags: tuple[str, ...],
    id: str,
    source: str,
    attributes: Any,
    group_key: str,
    envelope: bytes,
    encoding: Encoding,
) -> EventJson:
    """An event's fields, in the order of `core.Event`, as JSON has them."""
    event = EventJson(type, UNSET, UNSET, tags, id, source, UNSET, group_key)
    try:
        event.data = data.decode()
    except UnicodeDecodeError:
        event.data_base64 = data
    if attributes:
        event.attributes = dict(attributes)
    if envelope:
        event.envelope_base64 = envelope
    if encoding:
        event.encoding = encoding.name.lower()
    return event


def append_result(body: bytes) -> AppendResult:
    """The answer to an append."""
    appended = decode_appended(body)
    return AppendResult(appended.first_sequence_number, appended.sequence_number, appended.was_stored)


def read_body(
    query: Query,
    from_: int | None,
    after: int | None,
    backwards: bool,
    limit: int | None,
    partition: int | None,
) -> bytes:
    """The body of a read."""
    return encode(_ReadBody(query_json(query), from_, after, backwards, limit, partition))


def query_json(query: Query) -> dict[str, Any]:
    """A query as JSON has it; items without types or tags leave them out."""
    if query.items is None:
        return {"all": True}
    items = [{"types": item.types, "tags": item.tags} for item in query.items]
    return {"items": [{name: terms for name, terms in item.items() if terms} for item in items]}


def _condition_json(condition: AppendCondition) -> dict[str, Any]:
    query = query_json(condition.fail_if_events_match)
    if condition.requires_match:  # only the first draft's form can say so
        return {"query": query, "expected_highest_sequence_number": condition.after}
    return {"failIfEventsMatch": query, "after": condition.after}


def decode_events(lines: bytes) -> list[SequencedEvent]:
    """The events of whole NDJSON lines."""
    return [_sequenced(envelope) for envelope in _envelope.decode_lines(lines)]


def decode_event(text: bytes) -> SequencedEvent:
    """The event of one envelope."""
    return _sequenced(_envelope.decode(text))


def encode_event(event: SequencedEvent) -> bytes:
    """The envelope of a stored event, as the server gives it."""
    return encode(EnvelopeJson(event_json(*event[3:]), event.sequence_number, event.recorded_at, event.partition))


def producer_event(event: EventJson) -> Event:
    """The event that was described so."""
    data = event.data_base64 if isinstance(event.data_base64, bytes) else (event.data or "").encode()
    return Event(
        event.type,
        data,
        tuple(event.tags),
        event.id,
        event.source,
        event.attributes or NO_ATTRIBUTES,
        event.group_key,
        event.envelope_base64 or b"",
        Encoding[event.encoding.upper()],
    )


def _sequenced(envelope: EnvelopeJson) -> SequencedEvent:
    event = envelope.event
    data = event.data
    return SequencedEvent(
        envelope.sequence_number,
        envelope.recorded_at,
        envelope.partition,
        event.type,
        data.encode() if isinstance(data, str) else event.data_base64 or b"",
        event.tags,
        event.id,
        event.source,
        event.attributes or NO_ATTRIBUTES,
        event.group_key,
        event.envelope_base64 or b"",
        Encoding.DATA if event.encoding == "data" else Encoding.AMQP,
    )
