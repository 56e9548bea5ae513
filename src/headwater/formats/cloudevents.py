"""Conversion between CloudEvents 1.0 and the log's events.

`core.cloudevent` and `attributes_from_event` are the mapping itself, for every binding: attribute names to canonical
strings. The JSON format, its batch, and the HTTP binding's binary mode build on it. Two extensions carry what
CloudEvents does not define: `tags` (joined with commas, see `encode_tags`) and `partitionkey` (the group key). In
outgoing events, `sequence` is the sequence number: see `format_sequence`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote

import msgspec

from ..core.attribute_rules import RULES
from ..core.cloudevent import BATCH as BATCH
from ..core.cloudevent import SPECVERSION as SPECVERSION
from ..core.cloudevent import STRUCTURED as STRUCTURED
from ..core.cloudevent import decode_tags as decode_tags
from ..core.cloudevent import event_from_attributes, percent_decoded
from ..core.errors import InvalidEvent, InvalidInput
from ..core.event import NO_ATTRIBUTES, Encoding, Event, SequencedEvent
from ..core.limits import SEQUENCE_NUMBER_MAX, check_attribute_value, show
from ..core.log import LargeEvent
from . import jsontext
from .embedding import is_embeddable
from .slices import TEXT_BYTES_MAX, PieceBytes, base64_slices, is_text, raw_slices, text_slices

SEQUENCE_DIGITS = len(str(SEQUENCE_NUMBER_MAX))
"""Digits of the attribute `sequence`: those of the largest number."""

_SEQUENCE = f"%0{SEQUENCE_DIGITS}d"
_JSON_MEDIA_TYPE = re.compile(r"\s*[^/;\s]+/([^/;\s]+\+)?json\s*(;.*)?", re.IGNORECASE)
_CANONICAL = "a string, a whole number, true or false"
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(f"{chr(last - 1)}{chr(last)}" for last in range(0xFFFF, 0x110000, 0x10000))
_ESCAPED = re.compile(f"[%,{_NONCHARACTERS}]|^ ")
"""In a tag: the tag separator, the escape character, Unicode noncharacters, a leading space."""
_TEXTS = frozenset(("specversion", "id", "source", "type", *RULES))
"""The attributes that CloudEvents defines: in the JSON format each is a string (2.2)."""
_Members = dict[str, msgspec.Raw]
_object_decoder = msgspec.json.Decoder(_Members)
_array_decoder = msgspec.json.Decoder(list[_Members])
_value_decoder = msgspec.json.Decoder()


def attributes_from_event(event: SequencedEvent, default_source: str) -> dict[str, str]:
    """The context attributes of a stored event.

    `default_source` (a URI reference) is used if the producer gave no source; `time` is the producer's, or when the
    event was recorded.
    """
    found = {
        "specversion": SPECVERSION,
        "id": event.id,
        "source": event.source or default_source,
        "type": event.type,
        "time": format_time(event.recorded_at),
        **event.attributes,
        "sequence": format_sequence(event.sequence_number),
    }
    if event.tags:
        found["tags"] = encode_tags(event.tags)
    if event.group_key:
        found["partitionkey"] = event.group_key
    return found


def encode_tags(tags: Sequence[str]) -> str:
    """The value of the extension attribute `tags`: joined with commas, percent-encoded where necessary.

    That is `,`, `%`, a leading space of a tag, and characters that the CloudEvents type String excludes (3.1).
    """
    text = ",".join(tags)
    if text.isascii() and "%" not in text and text.count(",") < len(tags) and ", " not in text and text[:1] != " ":
        return text  # much faster, and nearly always the case
    return ",".join([_ESCAPED.sub(_escaped, tag) for tag in tags])


def _escaped(found: re.Match[str]) -> str:
    return quote(found[0])


def format_sequence(number: int) -> str:
    """A sequence number as the extension attribute `sequence`: zero-padded to a fixed length.

    The extension is compared as text (CloudEvents, "Sequence"): without padding, "9" would come after "10".
    """
    return _SEQUENCE % number


def format_time(ms: int) -> str:
    """ms since 1970 UTC as RFC 3339."""
    seconds, rest = divmod(ms, 1000)
    return f"{_format_seconds(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=256)  # neighbouring events in a log often have the same second
def _format_seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")


def event_from_json(text: bytes) -> Event:
    """The event of a structured-mode message. Raises InvalidInput, InvalidEvent with the member's path."""
    jsontext.check_utf8(text)
    return _event_from_members(jsontext.decode(_object_decoder, text))


def events_from_json_batch(text: bytes) -> list[Event]:
    """The events of a batch-mode message. Raises InvalidInput, InvalidEvent with the path (`[3].time`)."""
    jsontext.check_utf8(text)
    batch = jsontext.decode(_array_decoder, text)
    events = []
    for index, members in enumerate(batch):
        try:
            events.append(_event_from_members(members))
        except InvalidInput as error:
            raise InvalidEvent(error.problem, f"[{index}].{error.where}".removesuffix(".")) from None
    return events


def event_from_headers(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Event:
    """The event of a binary-mode HTTP message: `ce-` header fields (names in lower case) and the payload.

    Raises InvalidEvent with the attribute's name.
    """
    attributes = {}
    for name, value in headers:
        if name == b"content-type":
            attributes["datacontenttype"] = value.decode("latin-1").strip()
        elif name.startswith(b"ce-"):
            attribute = name[3:].decode("latin-1")
            attributes[attribute] = _header_value(attribute, value)
    return event_from_attributes(attributes, body)


def event_to_json(
    event: SequencedEvent, default_source: str, more: Mapping[str, str] = NO_ATTRIBUTES, *, is_line: bool = False
) -> bytes:
    """The stored event in the JSON format, with optional additional attributes.

    An event that was received as a structured-mode AMQP message has that document as its data: here it is unpacked.
    `is_line`: for a file of lines, whose reader gets the data back byte for byte.
    """
    members: dict[str, object] = attributes_from_event(event, default_source)  # type: ignore[assignment]
    if more:
        members |= more
    if event.envelope and is_structured(event.attributes):
        del members["datacontenttype"]
        members |= _structured_payload(event, is_line)
    elif event.data:
        members |= _data_members(event.data, event.attributes.get("datacontenttype"), event.encoding, is_line)
    return msgspec.json.encode(members)


def large_to_json(large: LargeEvent, default_source: str, piece_bytes: PieceBytes) -> Iterator[bytes]:
    """`event_to_json` of an event that is too large for a page, in slices. Data above TEXT_BYTES_MAX is base64."""
    event, data = large
    media_type = event.attributes.get("datacontenttype")
    may_be_shown = len(data) <= TEXT_BYTES_MAX
    if event.envelope and is_structured(event.attributes) and may_be_shown:
        whole = event_to_json(event._replace(data=bytes(data)), default_source)
        yield from raw_slices(memoryview(whole), piece_bytes)
        return
    head = msgspec.json.encode(attributes_from_event(event, default_source))[:-1]
    is_data = may_be_shown and event.encoding == Encoding.DATA
    if is_data and (media_type is None or _is_json(media_type)) and is_embeddable(bytes(data)):
        yield head + b',"data":'
        yield from raw_slices(data, piece_bytes)
        yield b"}"
    elif is_data and media_type is not None and not _is_json(media_type) and is_text(data):
        yield head + b',"data":"'
        yield from text_slices(data, piece_bytes)
        yield b'"}'
    else:
        yield head + b',"data_base64":"'
        yield from base64_slices(data, piece_bytes)
        yield b'"}'


def is_structured(attributes: Mapping[str, str]) -> bool:
    """Whether the data is declared as a CloudEvent in the JSON format."""
    return attributes.get("datacontenttype", "").partition(";")[0].strip().lower() == STRUCTURED


def _structured_payload(event: SequencedEvent, is_line: bool) -> Mapping[str, object]:
    """Media type and data of the document in `data`; the document itself, if it is not a CloudEvent."""
    try:
        jsontext.check_utf8(event.data)
        members = jsontext.decode(_object_decoder, event.data)
        payload = {name: members[name] for name in ("data", "data_base64") if name in members}
        inner = _event_from_members(members)
    except InvalidInput:
        return {"datacontenttype": event.attributes["datacontenttype"], "data_base64": event.data}
    media_type = inner.attributes.get("datacontenttype")
    named: dict[str, object] = {} if media_type is None else {"datacontenttype": media_type}
    texts = list(map(bytes, payload.values()))
    if all(map(is_embeddable, texts)) and (not is_line or all(map(_is_in_line, texts))):
        return named | payload
    return named | {"data_base64": inner.data}


def _is_in_line(data: bytes) -> bool:
    """Whether JSON can be written unchanged to a file of lines, and read back completely."""
    return not (b"\n" in data or b"\r" in data or data != data.strip())


def _event_from_members(members: _Members) -> Event:
    payload, encoded = members.pop("data", None), members.pop("data_base64", None)
    if payload is not None and encoded is not None:
        raise InvalidEvent("give `data` or `data_base64`, not both", "data_base64")
    attributes = {}
    for name, raw in members.items():
        try:
            value = jsontext.decode(_value_decoder, bytes(raw))
        except jsontext.MalformedJson:
            raise
        except InvalidInput as error:
            given = show(bytes(raw).decode())
            raise InvalidEvent(f"expected {_CANONICAL}, got {given}: {error.problem}", name) from None
        if value is not None:  # a null attribute is an absent attribute (JSON format, 2.2)
            attributes[name] = _canonical(name, value)
    media_type = attributes.get("datacontenttype")
    if media_type is not None and (fault := check_attribute_value("datacontenttype", media_type)):
        raise InvalidEvent(fault, "datacontenttype")
    if encoded is not None:
        data = _from_base64(jsontext.decode(_value_decoder, bytes(encoded)))
    elif payload is not None:
        data = _from_json_value(bytes(payload), media_type)
    else:
        data = b""
    return event_from_attributes(attributes, data)


def _canonical(name: str, value: object) -> str:
    """The canonical string form of an attribute (CloudEvents 1.0, 3.1 Type System)."""
    if isinstance(value, str):
        return value
    if name in _TEXTS:
        raise InvalidEvent(f"expected a string, got {show(value)}", name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise InvalidEvent(f"expected {_CANONICAL}, got {show(value)}", name)


def _from_base64(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError, binascii.Error):
        raise InvalidEvent(f"expected base64 text, got {show(value)}", "data_base64") from None


def _from_json_value(text: bytes, media_type: str | None) -> bytes:
    """The payload of `data`: JSON as it is, or the text in a JSON string (JSON format, 3.1)."""
    if media_type is None or _is_json(media_type):
        return text
    value = jsontext.decode(_value_decoder, text)
    return value.encode() if isinstance(value, str) else text


def _data_members(data: bytes, media_type: str | None, encoding: Encoding, is_line: bool) -> dict[str, object]:
    if encoding == Encoding.DATA:
        if media_type is None or _is_json(media_type):
            if is_embeddable(data) and (not is_line or _is_in_line(data)):
                return {"data": msgspec.Raw(data)}
        else:
            try:
                return {"data": data.decode()}
            except UnicodeDecodeError:
                pass  # so it is bytes
    return {"data_base64": data}


@lru_cache(maxsize=256)
def _is_json(media_type: str) -> bool:
    return _JSON_MEDIA_TYPE.fullmatch(media_type) is not None


def _header_value(name: str, value: bytes) -> str:
    """A header's value: optionally a quoted string, then percent-decoded once (HTTP binding, 3.1.3.2)."""
    text = value.decode("latin-1").strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = re.sub(r"\\(.)", r"\1", text[1:-1])
    return percent_decoded(text, name)
