"""The JSON of an event and of its envelope, as in `/logs` and in lines of NDJSON files, both ways.

Data that is UTF-8 is a string, other data is base64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..core.errors import InvalidInput
from ..core.event import NO_ATTRIBUTES, Encoding, Event, SequencedEvent
from ..core.limits import show
from . import jsontext
from .foreign import derived_id


def beginning(data: bytes, bytes_max: int) -> tuple[str | UnsetType, bytes | UnsetType]:
    """The first `bytes_max` bytes, as text or else as bytes: exactly one of the two is set.

    They are text if that part is UTF-8: the rest is not checked. A character is never cut.
    """
    cut = data[:bytes_max]
    try:
        return cut.decode(), UNSET
    except UnicodeDecodeError as error:
        if len(cut) < len(data) and error.reason == "unexpected end of data":  # the cut character
            return cut[: error.start].decode(), UNSET
        return UNSET, cut


class EventJson(Struct, omit_defaults=True, gc=False):
    """An event as appended and read."""

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
    """A stored event: the event, and what the log added. `partition` is set if the log has several."""

    event: EventJson
    sequence_number: int
    recorded_at: int
    partition: int = 0


_envelope = msgspec.json.Decoder(EnvelopeJson)


def event_json(
    type: str,
    data: bytes,
    tags: tuple[str, ...],
    id: str,
    source: str,
    attributes: Mapping[str, str],
    group_key: str,
    envelope: bytes,
    encoding: Encoding,
) -> EventJson:
    """An event's fields as JSON values, in the order of `core.Event`."""
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


def encode_event(event: SequencedEvent) -> bytes:
    """The envelope of a stored event, as the server sends it."""
    envelope = EnvelopeJson(event_json(*event[3:]), event.sequence_number, event.recorded_at, event.partition)
    return msgspec.json.encode(envelope)


def decode_event(text: bytes) -> SequencedEvent:
    """The stored event of an envelope."""
    return _sequenced(_envelope.decode(text))


class _FileEvent(EventJson, forbid_unknown_fields=True):
    """An event in a file, whose data may be any JSON: JSON other than a string is the data itself, unchanged."""

    data: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


class _EnvelopedFileEvent(_FileEvent, forbid_unknown_fields=False):
    """The same in an envelope, where unknown members are ignored."""


class _Line(Struct, forbid_unknown_fields=True):
    """A line of a file: an envelope, from which only the event is used, or a bare event."""

    event: _EnvelopedFileEvent | None = None
    sequence_number: int = 0
    recorded_at: int = 0
    partition: int = 0


_line = msgspec.json.Decoder(_Line)
_bare_event = msgspec.json.Decoder(_FileEvent)
_text = msgspec.json.Decoder(str)
_ENCODINGS = {"data": Encoding.DATA, "amqp": Encoding.AMQP}


def ndjson_events(lines: Iterable[bytes], source: str | None = None) -> Iterator[Event]:
    """The events of lines, each an envelope as written by `headwater read --json`, or only the event.

    With a `source`, an event without an id gets one derived from its line, and that source unless it names its own.
    Raises InvalidInput, with the line.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield ndjson_event(line, number, source)
        except InvalidInput as error:
            raise InvalidInput(str(error), f"line {number}") from None


def ndjson_event(line: bytes, number: int, source: str | None = None) -> Event:
    """The event of one line that is not blank, the `number`th; see `ndjson_events`. Raises InvalidInput."""
    try:
        described = _described(line)
        if source is not None and not described.id:
            described.source = described.source or source
            described.id = derived_id(described.source, number, line.decode().strip())
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        half = jsontext.half_pair(str(error), line)
        raise InvalidInput(half.cause if half else str(error)) from None
    except RecursionError:  # outside an envelope, only data may be nested at all
        raise InvalidInput("the JSON is nested too deeply", "" if b'"event"' in line else "data") from None
    return producer_event(described)


def producer_event(event: EventJson) -> Event:
    """The described event. Raises InvalidInput if the description contradicts itself."""
    if event.data is not UNSET and event.data_base64 is not UNSET:
        raise InvalidInput("give `data` or `data_base64`, not both")
    if (encoding := _ENCODINGS.get(event.encoding)) is None:
        raise InvalidInput(f"expected data or amqp, got {show(event.encoding)}", "encoding")
    return _event(event, encoding)


def _described(line: bytes) -> EventJson:
    described = _found(line)
    return EventJson(
        described.type,
        _data(bytes(described.data)),
        described.data_base64,
        described.tags,
        described.id,
        described.source,
        described.attributes,
        described.group_key,
        described.envelope_base64,
        described.encoding,
    )


def _data(given: bytes) -> str | UnsetType:
    """The data of an event in a file. Raises ValidationError for null, which may mean no data or the value null."""
    if not given or given[:1] == b'"' or given == b"null":
        return _text.decode(given) if given else UNSET
    return given.decode()


def _found(line: bytes) -> _FileEvent:
    if b'"event"' in line:
        try:
            if (event := _line.decode(line).event) is not None:
                return event
        except msgspec.ValidationError:
            if b'"sequence_number"' in line:
                raise
    return _bare_event.decode(line)


def _event(given: EventJson, encoding: Encoding) -> Event:
    return Event(
        given.type,
        given.data.encode() if isinstance(given.data, str) else given.data_base64 or b"",
        given.tags,
        given.id,
        given.source,
        given.attributes or NO_ATTRIBUTES,
        given.group_key,
        given.envelope_base64 or b"",
        encoding,
    )


def _sequenced(envelope: EnvelopeJson) -> SequencedEvent:
    encoding = Encoding.DATA if envelope.event.encoding == "data" else Encoding.AMQP
    event = _event(envelope.event, encoding)
    return SequencedEvent(envelope.sequence_number, envelope.recorded_at, envelope.partition, *event)
