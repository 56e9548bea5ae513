"""The event that a message declares: a CloudEvent in binary mode (AMQP binding of CloudEvents 1.0.2), its group key.

Binary mode: every attribute except `datacontenttype` is an application property `cloudEvents:NAME` (`cloudEvents_NAME`
in later versions of the binding; both are read), `datacontenttype` is the property content-type, the body is the
payload. Structured mode, where the body is the event and content-type says so, is not parsed: payloads are bytes.

AMQP ingress stores the event found here. All other front ends only check it, so all give the same verdict. The message
was already checked (`validity`): its bounds and AMQP types are not checked again.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from ..attribute_rules import ATTRIBUTE_CHARS_MAX, ATTRIBUTE_NAME
from ..cloudevent import BATCH, STRUCTURED, event_from_attributes
from ..errors import InvalidEvent
from ..event import NO_ATTRIBUTES, Encoding, Event
from ..quoting import show
from .sections import APPLICATION_PROPERTIES, DATA_SECTION, MESSAGE_ANNOTATIONS
from .spans import Spans
from .validity import Places
from .values import SYMBOLS, check_values, key_of, map_bounds, type_name

DEFAULT_TYPE = "amqp.message"
WHOLE_MESSAGE_TYPE = "application/amqp"
"""The `datacontenttype` if `data` is a whole message, whose own content-type describes the payload inside."""
PREFIX = "cloudEvents:"
GROUP_KEY = b"event-streams-group-key"
CONTENT_TYPE = 6
"""Its index among the fields of the properties."""
NO_BATCHES = f"{BATCH} is not supported: CloudEvents over AMQP has no batches; send each event in its own message"
"""The problem reported for a message that is a batch."""

_MARK = b"cloudEvents"
"""Prefix of every application property of a CloudEvent, whatever separates it from the rest of the name."""
_PREFIXES = (PREFIX, "cloudEvents_")
_NULL = b"\x40"
_STR8, _SYM8, _MAP8 = 0xA1, 0xA3, 0xC1
_TEXTS: Final = frozenset((0x73, _STR8, 0xB1, *SYMBOLS))
_UNSIGNED: Final = frozenset((0x43, 0x44, 0x50, 0x52, 0x53, 0x60, 0x70, 0x80))
_SIGNED: Final = frozenset((0x51, 0x54, 0x55, 0x61, 0x71, 0x81))
_BOOLEANS: Final = {0x41: "true", 0x42: "false"}
_EPOCH = datetime(1970, 1, 1)
_NAMES_MAX = 1024
_NAME_BYTES_MAX = 80
_REMEMBERED_MAX = 4096
_REMEMBERED_BYTES_MAX = 512


class MediaType(NamedTuple):
    """A parsed content-type."""

    text: str
    attributes: Mapping[str, str]
    """The attributes of an event that has no others."""
    is_structured: bool


NO_MEDIA_TYPE = MediaType("", NO_ATTRIBUTES, False)
_names: dict[bytes, str] = {}
"""Attribute names by their property's name; empty for a property that is not an attribute. Senders use few."""
known_media_types: dict[bytes, MediaType] = {_NULL: NO_MEDIA_TYPE}
"""By encoded content-type."""


def own_event(message: bytes, spans: Spans, places: Places) -> Event:
    """Everything in the event that can break a rule. This excludes its data and plain properties. Raises InvalidEvent.

    A message whose body is one data section is judged as such, even if the whole message is given as the event's data.
    """
    encoding = Encoding.DATA if DATA_SECTION in spans else Encoding.AMQP
    content_type = message[places[CONTENT_TYPE] : places[CONTENT_TYPE + 1]] if len(places) > CONTENT_TYPE + 1 else _NULL
    media_type = known_media_types.get(content_type) or new_media_type(content_type)
    event = None
    if media_type.is_structured:
        check_structured(media_type, encoding)
    else:
        event = binary_event(message, spans, media_type, encoding, b"")
    event = event or Event(DEFAULT_TYPE)
    key = group_key_of(message, spans)
    return event._replace(group_key=key) if key else event


def new_media_type(content_type: bytes) -> MediaType:
    """The media type of an encoded content-type, if it could be the attribute of an event.

    Raises InvalidEvent, with the problem NO_BATCHES.
    """
    text = content_type[2 if content_type[0] < 0xB0 else 5 :].decode()
    media_type = NO_MEDIA_TYPE
    if text and len(text) <= ATTRIBUTE_CHARS_MAX and text.isprintable():
        essence = text.partition(";")[0].strip().lower()
        if essence == BATCH:
            raise InvalidEvent(NO_BATCHES, "content-type")
        media_type = MediaType(text, MappingProxyType({"datacontenttype": text}), essence == STRUCTURED)
    if len(content_type) <= _REMEMBERED_BYTES_MAX:
        if len(known_media_types) >= _REMEMBERED_MAX:
            known_media_types.clear()
        known_media_types[content_type] = media_type
    return media_type


def group_key_of(message: bytes, spans: Spans) -> str:
    """The message annotation event-streams-group-key, a string or a symbol; empty if absent.

    Raises InvalidEvent.
    """
    if MESSAGE_ANNOTATIONS not in spans or message.find(GROUP_KEY, *spans[MESSAGE_ANNOTATIONS]) < 0:
        return ""
    at, count, _ = map_bounds(message, spans[MESSAGE_ANNOTATIONS][0])
    for _ in range(count >> 1):
        if message[at] == _SYM8:
            begin, value = at + 2, at + 2 + message[at + 1]
        else:
            begin, value = at + 5, check_values(message, at, 1, 1)
        if message[begin:value] == GROUP_KEY:
            return _group_key(message, value)
        at = check_values(message, value, 1, 1)
    return ""


def _group_key(message: bytes, at: int) -> str:
    code = message[at]
    if code == _STR8:
        return message[at + 2 : at + 2 + message[at + 1]].decode()
    if code in _TEXTS:
        return str(key_of(message, at, check_values(message, at, 1, 1)))
    if code != _NULL[0]:
        raise InvalidEvent(f"expected a symbol or a string, got {type_name(code)}", GROUP_KEY.decode())
    return ""


def check_structured(media_type: MediaType, encoding: Encoding) -> None:
    """Raises InvalidEvent if the body of a structured-mode message is not one data section."""
    if encoding:
        raise InvalidEvent(f"the body of a {media_type.text} message must be one data section", "content-type")


def binary_event(message: bytes, spans: Spans, media_type: MediaType, encoding: Encoding, data: bytes) -> Event | None:
    """The CloudEvent in the application properties; None if they contain no attributes of a CloudEvent.

    Raises InvalidEvent.
    """
    if APPLICATION_PROPERTIES not in spans:
        return None
    at, stop = spans[APPLICATION_PROPERTIES]
    if message.find(_MARK, at, stop) < 0:
        return None
    attributes = _attributes(message, at)
    if not attributes:
        return None
    if encoding:
        attributes["datacontenttype"] = WHOLE_MESSAGE_TYPE
    elif media_type.text:
        attributes["datacontenttype"] = media_type.text
    try:
        return event_from_attributes(attributes, data)
    except InvalidEvent as error:
        error.move(f"{PREFIX}{error.where}")
        raise


def timestamp_text(ms: int) -> str | None:
    """An AMQP timestamp as RFC 3339; None if it lies outside the years 1 to 9999."""
    second, rest = divmod(ms, 1000)
    try:
        return f"{_second_text(second)}.{rest:03}Z"
    except OverflowError:
        return None


@lru_cache(maxsize=64)
def _second_text(second: int) -> str:
    """Cached, because messages arrive roughly in order of time, many of them in the same second."""
    return (_EPOCH + timedelta(seconds=second)).isoformat()


def _attributes(message: bytes, at: int) -> dict[str, str]:
    """Context attributes by name, in canonical string form, from the map at `at`."""
    if message[at] == _MAP8:
        left, at = message[at + 2], at + 3
    else:
        left, at = int.from_bytes(message[at + 5 : at + 9]), at + 9
    attributes: dict[str, str] = {}
    for _ in range(left >> 1):
        if message[at] == _STR8:
            after = at + 2 + message[at + 1]
            key = message[at + 2 : after]
        else:
            after = check_values(message, at, 1, 1)
            key = message[at + 5 : after]
        name = _names.get(key)
        if name is None:
            name = _name(key)
        value: str | None = None
        at = after
        if name and message[at] == _STR8:
            after = at + 2 + message[at + 1]
            value = message[at + 2 : after].decode()
        else:
            after = check_values(message, at, 1, 1)
            if name:
                value = _canonical(name, message, at, after)
        if value is not None:
            if name in attributes:
                raise InvalidEvent("given twice", f"{PREFIX}{name}")
            attributes[name] = value
        at = after
    return attributes


def _name(key: bytes) -> str:
    """The attribute name of a property, or empty; cached if it is short."""
    text = key.decode()
    name = text[len(PREFIX) :] if text.startswith(_PREFIXES) else ""
    if name and not ATTRIBUTE_NAME.fullmatch(name):
        problem = f"an attribute's name must match {ATTRIBUTE_NAME.pattern}, got {show(name)}"
        raise InvalidEvent(problem, f"the application property {show(text)}")
    if len(key) <= _NAME_BYTES_MAX:
        if len(_names) >= _NAMES_MAX:
            _names.clear()
        _names[key] = name
    return name


def _canonical(name: str, message: bytes, at: int, after: int) -> str | None:
    """The canonical string form of an attribute (CloudEvents 1.0.2, Type System); None for null: absent.

    Accepts integers of every width, as the binding allows (3.1.3.2).
    """
    code = message[at]
    if code == _NULL[0]:
        return None
    if code in _TEXTS:
        return str(key_of(message, at, after))
    if code in _SIGNED or code in _UNSIGNED:
        return str(int.from_bytes(message[at + 1 : after], signed=code in _SIGNED))
    if code in _BOOLEANS or code == 0x56:
        return _BOOLEANS.get(code) or _BOOLEANS[0x42 - message[at + 1]]
    if code in (0xA0, 0xB0):
        return base64.b64encode(message[at + (2 if code == 0xA0 else 5) : after]).decode()
    if code == 0x83:
        text = timestamp_text(int.from_bytes(message[at + 1 : after], signed=True))
        if text is not None:
            return text
    problem = f"expected a string, whole number, boolean, binary or timestamp, got {type_name(code)}"
    raise InvalidEvent(problem, f"{PREFIX}{name}")
