"""CloudEvents in received messages: the AMQP binding of CloudEvents 1.0.2, in both of its modes.

Binary mode: every attribute but `datacontenttype` is an application property `cloudEvents:NAME` (in later versions of
the binding `cloudEvents_NAME`; both are read), `datacontenttype` is the property content-type, the body is the
payload. Structured mode: the body is the event in the JSON format, and content-type says so.
"""

from __future__ import annotations

import base64
from datetime import datetime, timedelta
from functools import lru_cache

from ...core.errors import InvalidInput
from ...core.event import Event
from ...core.limits import ATTRIBUTE_NAME, show
from ...formats import cloudevents
from ...formats.jsontext import MalformedJson
from ..errors import MessageFault
from ..protocol.codec import DecodeError, decode
from ..protocol.conditions import DECODE_ERROR, INVALID_FIELD
from ..protocol.types import Timestamp

PREFIX = "cloudEvents:"
MARK = b"cloudEvents"
"""What the name of every application property of a CloudEvent begins with, whatever separates it from the rest."""
_PREFIXES = ("cloudEvents:", "cloudEvents_")
_NAMES_MAX = 1024
_NAME_BYTES_MAX = 80
_STR8, _MAP8, _MAP32 = 0xA1, 0xC1, 0xD1
_EPOCH = datetime(1970, 1, 1)

_names: dict[bytes, str] = {}
"""Attribute names by their property's name; empty for a property that is no attribute. Senders use few, always anew."""


def binary_event(message: bytes, at: int, stop: int, media_type: str, data: bytes) -> Event | None:
    """The event whose attributes are in the application properties, the map from `at` to `stop`; None if none are.

    Raises MessageFault.
    """
    try:
        attributes = _attributes(message, at, stop)
    except (DecodeError, IndexError, UnicodeDecodeError) as error:
        raise MessageFault(DECODE_ERROR, f"the application properties cannot be decoded: {error}") from None
    if not attributes:
        return None
    if media_type:
        attributes["datacontenttype"] = media_type
    try:
        return cloudevents.event_from_attributes(attributes, data)
    except InvalidInput as error:
        raise MessageFault(INVALID_FIELD, f"{PREFIX}{error}") from None


def structured_event(text: bytes, media_type: str) -> Event:
    """The event of a JSON format document. Its `data` is the document as it stands, and `datacontenttype` says so.

    Raises MessageFault.
    """
    try:
        event = cloudevents.event_from_json(text)
    except MalformedJson as error:
        raise MessageFault(DECODE_ERROR, f"the structured CloudEvent: {error}") from None
    except InvalidInput as error:
        raise MessageFault(INVALID_FIELD, f"the structured CloudEvent: {error}") from None
    return event._replace(data=text, attributes={**event.attributes, "datacontenttype": media_type})


def timestamp_text(ms: int) -> str | None:
    """A time of AMQP as RFC 3339; None where it lies outside the years 1 to 9999."""
    second, rest = divmod(ms, 1000)
    try:
        return f"{_second_text(second)}.{rest:03}Z"
    except OverflowError:
        return None


@lru_cache(maxsize=64)
def _second_text(second: int) -> str:
    """Messages come in order of time, more or less, and many in a second."""
    return (_EPOCH + timedelta(seconds=second)).isoformat()


def _attributes(message: bytes, at: int, stop: int) -> dict[str, str]:
    """Context attributes by name, in canonical string form; what is usual goes without the general decoder."""
    form = message[at]
    if form == _MAP8:
        left, at = message[at + 2], at + 3
    elif form == _MAP32:
        left, at = int.from_bytes(message[at + 5 : at + 9]), at + 9
    else:
        raise MessageFault(DECODE_ERROR, "the application properties are no map")
    attributes: dict[str, str] = {}
    while left > 1 and at < stop:
        if message[at] == _STR8:
            end = at + 2 + message[at + 1]
            name = _names.get(message[at + 2 : end])
            if name is None:
                name = _name(message[at + 2 : end])
            at = end
        else:
            key, at = decode(message, at, stop)
            name = _name(key.encode()) if isinstance(key, str) else ""
        value: str | None
        if name and message[at] == _STR8:
            end = at + 2 + message[at + 1]
            value = message[at + 2 : end].decode()
            at = end
        else:
            decoded, at = decode(message, at, stop)
            value = _canonical(name, decoded) if name else None
        if value is not None:
            if name in attributes:
                raise MessageFault(INVALID_FIELD, f"{PREFIX}{name}: given twice")
            attributes[name] = value
        left -= 2
    if left or at != stop:
        raise MessageFault(DECODE_ERROR, "the application properties do not end where they should")
    return attributes


def _name(key: bytes) -> str:
    """The attribute behind a property's name, or empty; remembered, where it is short."""
    text = key.decode()
    name = text[len(PREFIX) :] if text.startswith(_PREFIXES) else ""
    if name and not ATTRIBUTE_NAME.fullmatch(name):
        problem = f"an attribute's name fits {ATTRIBUTE_NAME.pattern}, {show(name)} given"
        raise MessageFault(INVALID_FIELD, f"the application property {show(text)}: {problem}")
    if len(key) <= _NAME_BYTES_MAX:
        if len(_names) >= _NAMES_MAX:
            _names.clear()
        _names[key] = name
    return name


def _canonical(name: str, value: object) -> str | None:
    """The canonical string form of an attribute (CloudEvents 1.0.2, Type System); None for null: not there.

    Every width of integer is taken, as the binding allows (3.1.3.2).
    """
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Timestamp):
        if (text := timestamp_text(value)) is not None:
            return text
    elif isinstance(value, int):
        return str(int(value))
    elif isinstance(value, bytes):
        return base64.b64encode(value).decode()
    kind = type(value).__name__.lower()
    problem = f"a string, whole number, boolean, binary or timestamp is expected, {show(value)} ({kind}) given"
    raise MessageFault(INVALID_FIELD, f"{PREFIX}{name}: {problem}")
