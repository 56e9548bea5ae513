"""Converts a received message to the stored event. It has no side effects, and is optimized because every message
passes through it.

The stored event is the message as received without its delivery annotations (and without a header of defaults):
`envelope` + `data`, where `data` is the content of the one data section; any other message is whole in `data`, with
`Encoding.AMQP`. So an AMQP reader gets the bare message back, byte for byte.

Event attributes come from the message:

- type: that of its CloudEvent, else its subject, else `amqp.message` (also if the subject is not a valid type);
- group key: the message annotation event-streams-group-key, else the CloudEvent's `partitionkey`;
- attributes: those of its CloudEvent, else `datacontenttype` (content-type) and `time` (creation-time); its trace is
  that of the CloudEvent, else the application property, else the message annotation `traceparent` (with `tracestate`);
- partition: the delivery annotation event-streams-target-partition, which the caller must check (4.6.6).

A structured CloudEvent's document stays in `data`, and `datacontenttype` is that of the document: all readers see the
same bytes, and the renderer of CloudEvents (`formats.cloudevents`) unpacks it. A document that is not a CloudEvent, or
not one that a log accepts, is an ordinary payload: the gate does not read payloads.

The whole message is validated (`core.message.validity`), so that every receiver can decode it; the gate extracts its
event, and may refuse it (`core.message.own_event`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ...core.errors import InvalidInput
from ...core.event import NO_ATTRIBUTES, Encoding, Event
from ...core.limits import ATTRIBUTES_MAX, GROUP_KEY_CHARS_MAX, check_append, check_type, plain_bytes, show
from ...core.message.own_event import (
    CONTENT_TYPE,
    DEFAULT_TYPE,
    NO_BATCHES,
    NO_MEDIA_TYPE,
    WHOLE_MESSAGE_TYPE,
    MediaType,
    binary_event,
    check_structured,
    group_key_of,
    known_media_types,
    new_media_type,
    timestamp_text,
)
from ...core.message.sections import (
    APPLICATION_PROPERTIES,
    DATA_SECTION,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from ...core.message.spans import Spans
from ...core.message.validity import Places, look_through
from ...core.settings import LogSettings
from ...formats.cloudevents import event_from_json
from ...formats.tracing import TRACEPARENT, TRACESTATE, trace_of
from ..errors import MessageFault
from ..protocol.codec import DecodeError, decode
from ..protocol.conditions import DECODE_ERROR, INVALID_FIELD, LINK_MESSAGE_SIZE_EXCEEDED, NOT_IMPLEMENTED
from .headers import kept_header

TRACE = b"traceparent"
TARGET_PARTITION = b"event-streams-target-partition"

_BARE_DATA = b"\x00\x53\x75\xa0"
_SUBJECT, _CREATION_TIME = 3, 9
_NULL = b"\x40"
_TRACED_BYTES_MAX = 16 * 1024
"""Longer sections are not searched for a trace."""
_REMEMBERED_MAX = 4096
_REMEMBERED_BYTES_MAX = 512


class Incoming(NamedTuple):
    """A message as the log sees it."""

    event: Event
    """Within all limits of a log with these settings: it passes `core.limits.check_append`."""
    target_partition: str | None
    """The partition that the producer names for this message (4.6.6), or None."""


_WHOLE_MESSAGE: Mapping[str, str] = MappingProxyType({"datacontenttype": WHOLE_MESSAGE_TYPE})
_ANY = LogSettings()

_types: dict[bytes, str] = {_NULL: DEFAULT_TYPE}
"""Event types by encoded subject, because senders repeat a few."""


def read_message(message: bytes, settings: LogSettings = _ANY) -> Incoming:
    """The event of a received message, for a log with these settings.

    Raises MessageFault, which gives its delivery the outcome `rejected`.
    """
    size = len(message)
    if message.startswith(_BARE_DATA) and size > 4 and message[4] + 5 == size <= settings.event_bytes_max:
        return Incoming(Event(DEFAULT_TYPE, message[5:], (), "", "", NO_ATTRIBUTES, "", message[:5]), None)
    try:
        spans, places = look_through(message, size)
    except DecodeError as error:
        raise MessageFault(DECODE_ERROR, str(error)) from None
    envelope, data, encoding = _split(message, spans)
    if len(envelope) + len(data) > settings.event_bytes_max:
        problem = f"{len(envelope) + len(data)} bytes given, at most {settings.event_bytes_max} are allowed"
        raise MessageFault(LINK_MESSAGE_SIZE_EXCEEDED, f"the message is too large: {problem}")
    target = _target_partition(message, spans) if DELIVERY_ANNOTATIONS in spans else None
    type, media_type, created = DEFAULT_TYPE, NO_MEDIA_TYPE, _NULL
    try:
        group_key = group_key_of(message, spans) if MESSAGE_ANNOTATIONS in spans else ""
        if PROPERTIES in spans:
            type, media_type, created = _properties(message, places)
        if media_type.is_structured:
            check_structured(media_type, encoding)
            event = _structured_event(data, media_type)
        else:
            event = binary_event(message, spans, media_type, encoding, data)
    except InvalidInput as error:
        condition = NOT_IMPLEMENTED if error.problem is NO_BATCHES else INVALID_FIELD
        raise MessageFault(condition, str(error)) from None
    is_traced = encoding or envelope.find(TRACE) >= 0
    if event is not None:
        if is_traced and TRACEPARENT not in event.attributes:
            event = event._replace(attributes=_in_trace(message, spans, event.attributes))
        key = group_key or event.group_key
        event = event._replace(data=data, group_key=key, envelope=envelope, encoding=encoding)
        if (fault := _fault(event, settings)) is None:
            return Incoming(event, target)
        if not media_type.is_structured:
            raise MessageFault(INVALID_FIELD, fault)
    attributes = _WHOLE_MESSAGE if encoding else media_type.attributes
    if created != _NULL:
        attributes = _with_time(attributes, created)
    if is_traced:
        attributes = _in_trace(message, spans, attributes)
    event = Event(type, data, (), "", "", attributes, group_key, envelope, encoding)
    if (len(group_key) > GROUP_KEY_CHARS_MAX or not group_key.isprintable()) and (fault := _fault(event, settings)):
        raise MessageFault(INVALID_FIELD, fault)
    return Incoming(event, target)


def _in_trace(message: bytes, spans: Spans, attributes: Mapping[str, str]) -> Mapping[str, str]:
    """Add the trace from an application property, or from a message annotation, if it is within the limits."""
    if len(attributes) > ATTRIBUTES_MAX - 2:
        return attributes
    for section in (APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS):
        at, stop = spans.get(section, (0, 0))
        if not 0 < stop - at <= _TRACED_BYTES_MAX or message.find(TRACE, at, stop) < 0:
            continue
        try:
            values, _ = decode(message, at, stop)
        except DecodeError:
            continue  # stored unchanged, like sections that are not searched
        if isinstance(values, dict):
            trace = trace_of(_plain(values.get(TRACEPARENT)), _plain(values.get(TRACESTATE)))
            if trace:
                return {**attributes, **trace}
    return attributes


def _plain(value: object) -> str | None:
    """The text of a string or a symbol."""
    return str(value) if isinstance(value, str) else None


def _split(message: bytes, spans: Spans) -> tuple[bytes, bytes, Encoding]:
    """Envelope and data: the message without delivery annotations, and without a header of defaults."""
    header, rest = b"", 0
    if HEADER in spans:
        rest = spans[HEADER][1]
        header = kept_header(message[:rest])
    if DELIVERY_ANNOTATIONS in spans:
        rest = spans[DELIVERY_ANNOTATIONS][1]
    if DATA_SECTION in spans:
        content = spans[DATA_SECTION][0]
        return header + message[rest:content], message[content:], Encoding.DATA
    data = header + message[rest:]
    if not data:
        raise MessageFault(DECODE_ERROR, "the message has neither properties nor a body")
    return b"", data, Encoding.AMQP


def _target_partition(message: bytes, spans: Spans) -> str | None:
    """The delivery annotation event-streams-target-partition: symbol or string, depending on the sender's library."""
    at, stop = spans[DELIVERY_ANNOTATIONS]
    if message.find(TARGET_PARTITION, at, stop) < 0:
        return None
    try:
        annotations, _ = decode(message, at, stop)
    except DecodeError as error:
        raise MessageFault(DECODE_ERROR, f"the annotations cannot be decoded: {error}") from None
    value = annotations.get(TARGET_PARTITION.decode())  # type: ignore[attr-defined]
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    problem = f"{TARGET_PARTITION.decode()}: expected a symbol or a string, got {show(value)}"
    raise MessageFault(INVALID_FIELD, problem)


def _properties(message: bytes, places: Places) -> tuple[str, MediaType, bytes]:
    """Event type, media type and encoded creation-time of the properties, whose fields begin at these places."""
    count = len(places) - 1
    subject = message[places[_SUBJECT] : places[_SUBJECT + 1]] if count > _SUBJECT else _NULL
    type = _types.get(subject)
    if type is None:
        type = _type_of(subject)
    content_type = message[places[CONTENT_TYPE] : places[CONTENT_TYPE + 1]] if count > CONTENT_TYPE else _NULL
    return (
        type,
        known_media_types.get(content_type) or new_media_type(content_type),
        message[places[_CREATION_TIME] : places[_CREATION_TIME + 1]] if count > _CREATION_TIME else _NULL,
    )


def _type_of(subject: bytes) -> str:
    """The event type of a subject: the subject itself, if a log accepts it as a type."""
    text = subject[2 if subject[0] < 0xB0 else 5 :].decode()
    type = DEFAULT_TYPE if check_type(text) else text
    if len(subject) <= _REMEMBERED_BYTES_MAX:
        if len(_types) >= _REMEMBERED_MAX:
            _types.clear()
        _types[subject] = type
    return type


def _with_time(attributes: Mapping[str, str], created: bytes) -> Mapping[str, str]:
    """Add the producer's own time: creation-time is when the message was created, not when it was stored (5.1.2)."""
    text = timestamp_text(int.from_bytes(created[1:], signed=True))
    return attributes if text is None else {**attributes, "time": text}


def _structured_event(data: bytes, media_type: MediaType) -> Event | None:
    """The event in a document in the JSON format; None if it is not one, and is therefore an ordinary payload."""
    try:
        event = event_from_json(data)
    except InvalidInput:
        return None
    return event._replace(attributes={**event.attributes, "datacontenttype": media_type.text})


def _fault(event: Event, settings: LogSettings) -> str | None:
    """Why the log would refuse the event, and with it all other events of the same append."""
    if plain_bytes(event, settings.event_bytes_max) is None:
        try:
            check_append((event,), settings.event_bytes_max, are_messages_checked=True)
        except InvalidInput as error:
            return str(error).removeprefix("events[0].")
    return None
