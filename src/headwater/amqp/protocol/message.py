"""Messages (part 3, section 3.2): finding their sections, decoding them, and building messages."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from .codec import DecodeError, EncodeError, encode_into
from .composite import Composite, layout_of, read_fields, write_composite
from .decoding import read
from .encoding import CODE_UBYTE, write_binary
from .fields import (
    ANNOTATIONS,
    BINARY,
    BOOLEAN,
    LABEL,
    MESSAGE_ID,
    STRING,
    STRING_MAP,
    TIMESTAMP,
    UBYTE,
    UINT,
    Field,
    Kind,
    names,
)
from .sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DATA_SECTION,
    DATAS,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    NONE,
    PROPERTIES,
    SEQUENCE,
    SEQUENCE_SECTION,
    VALUE,
    VALUE_SECTION,
    Sections,
    Span,
    section_code,
    walk,
)

__all__ = [
    "DATA",
    "DATAS",
    "NONE",
    "SEQUENCE",
    "VALUE",
    "Header",
    "Message",
    "Properties",
    "Sections",
    "Span",
    "decode_body",
    "decode_message",
    "decode_section",
    "encode_message",
    "walk",
]

PRIORITY: Final = 4
"""The priority of a message that gives none (3.2.1)."""


class Header(Composite):
    """How a message is to be delivered (3.2.1); `ttl` in milliseconds."""

    NAME = "header"
    CODE = 0x70
    FIELDS = (
        Field("durable", BOOLEAN, False),
        Field("priority", UBYTE, PRIORITY),
        Field("ttl", UINT),
        Field("first_acquirer", BOOLEAN, False),
        Field("delivery_count", UINT, 0),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        durable: bool = False,
        priority: int = PRIORITY,
        ttl: int | None = None,
        first_acquirer: bool = False,
        delivery_count: int = 0,
    ) -> None:
        self.durable = durable
        self.priority = priority
        self.ttl = ttl
        self.first_acquirer = first_acquirer
        self.delivery_count = delivery_count


class Properties(Composite):
    """What a message is (3.2.4). Times are in milliseconds since 1970; ids are str, UUID, ULong or bytes."""

    NAME = "properties"
    CODE = 0x73
    FIELDS = (
        Field("message_id", MESSAGE_ID),
        Field("user_id", BINARY),
        Field("to", STRING),
        Field("subject", STRING),
        Field("reply_to", STRING),
        Field("correlation_id", MESSAGE_ID),
        Field("content_type", LABEL),
        Field("content_encoding", LABEL),
        Field("absolute_expiry_time", TIMESTAMP),
        Field("creation_time", TIMESTAMP),
        Field("group_id", STRING),
        Field("group_sequence", UINT),
        Field("reply_to_group_id", STRING),
    )
    __slots__ = names(FIELDS)

    def __init__(
        self,
        message_id: object = None,
        user_id: bytes | None = None,
        to: str | None = None,
        subject: str | None = None,
        reply_to: str | None = None,
        correlation_id: object = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        absolute_expiry_time: int | None = None,
        creation_time: int | None = None,
        group_id: str | None = None,
        group_sequence: int | None = None,
        reply_to_group_id: str | None = None,
    ) -> None:
        self.message_id = message_id
        self.user_id = user_id
        self.to = to
        self.subject = subject
        self.reply_to = reply_to
        self.correlation_id = correlation_id
        self.content_type = content_type
        self.content_encoding = content_encoding
        self.absolute_expiry_time = absolute_expiry_time
        self.creation_time = creation_time
        self.group_id = group_id
        self.group_sequence = group_sequence
        self.reply_to_group_id = reply_to_group_id


class Message:
    """A message, decoded. A section that is absent is None.

    `body` goes by `body_kind`: DATA and DATAS a list of bytes, SEQUENCE a list of lists, VALUE the value, NONE None.
    Keys of annotations may be given as plain `str`; they are written as symbols.
    """

    __slots__ = (
        "application_properties",
        "body",
        "body_kind",
        "delivery_annotations",
        "footer",
        "header",
        "message_annotations",
        "properties",
    )

    def __init__(
        self,
        body: Any = None,
        body_kind: int = VALUE,
        *,
        header: Header | None = None,
        delivery_annotations: Mapping[Any, Any] | None = None,
        message_annotations: Mapping[Any, Any] | None = None,
        properties: Properties | None = None,
        application_properties: Mapping[str, Any] | None = None,
        footer: Mapping[Any, Any] | None = None,
    ) -> None:
        self.body = body
        self.body_kind = body_kind
        self.header = header
        self.delivery_annotations = delivery_annotations
        self.message_annotations = message_annotations
        self.properties = properties
        self.application_properties = application_properties
        self.footer = footer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _PARTS)

    def __repr__(self) -> str:
        given = [(name, getattr(self, name)) for name in _PARTS]
        return f"Message({', '.join(f'{name}={value!r}' for name, value in given if value is not None)})"


def decode_message(message: bytes) -> Message:
    """The message, decoded in full. Raises DecodeError: as `walk` does, or a section is malformed."""
    sections = walk(message)
    return Message(
        decode_body(message, sections),
        sections.body_kind,
        header=_section(message, sections.header),
        delivery_annotations=_section(message, sections.delivery_annotations),
        message_annotations=_section(message, sections.message_annotations),
        properties=_section(message, sections.properties),
        application_properties=_section(message, sections.application_properties),
        footer=_section(message, sections.footer),
    )


def _section(message: bytes, span: Span | None) -> Any:
    return None if span is None else decode_section(message, span)


def decode_section(message: bytes, span: Span) -> Any:
    """What one section holds: Header, Properties, a dict, bytes, a list, or the value of an amqp-value section.

    `span` is one that `walk` found; of several data or sequence sections it gives the first. Raises DecodeError.
    """
    return _read_section(message, span[0])[0]


def decode_body(message: bytes, sections: Sections) -> Any:
    """The body of a message whose sections `walk` found, as `Message.body` has it. Raises DecodeError."""
    if sections.body is None:
        return None
    at, stop = sections.body
    if sections.body_kind == VALUE:
        return decode_section(message, sections.body)
    bodies = []
    while at < stop:
        body, at = _read_section(message, at)
        bodies.append(body)
    return bodies


def _read_section(message: bytes, start: int) -> tuple[Any, int]:
    try:
        code, at = section_code(message, start)
        if code == HEADER:
            content, at = read_fields(layout_of(Header), message, at)
        elif code == PROPERTIES:
            content, at = read_fields(layout_of(Properties), message, at)
        elif code in _MAPS:
            content, at = _MAPS[code].read(message, at)
        else:
            content, at = read(message, at, 0)
    except (IndexError, struct.error):
        raise DecodeError("the section is cut short", start) from None
    if at > len(message):
        raise DecodeError("the section is cut short", start)
    return content, at


def encode_message(message: Message) -> bytes:
    """The message's bytes. Raises EncodeError: a value has no encoding, or the body is not of its kind."""
    out = bytearray()
    if message.header is not None:
        write_composite(out, message.header)
    _write_map(out, DELIVERY_ANNOTATIONS, message.delivery_annotations)
    _write_map(out, MESSAGE_ANNOTATIONS, message.message_annotations)
    if message.properties is not None:
        write_composite(out, message.properties)
    _write_map(out, APPLICATION_PROPERTIES, message.application_properties)
    _write_body(out, message.body_kind, message.body)
    _write_map(out, FOOTER, message.footer)
    return bytes(out)


def _write_map(out: bytearray, code: int, entries: Mapping[Any, Any] | None) -> None:
    if entries is not None:
        _write_descriptor(out, code)
        try:
            _MAPS[code].write(out, entries)
        except (struct.error, TypeError, AttributeError, OverflowError) as wrong:
            raise EncodeError(f"a key or value of section 0x{code:x} does not fit: {wrong}") from None


def _write_body(out: bytearray, kind: int, body: Any) -> None:
    if kind == VALUE:
        _write_descriptor(out, VALUE_SECTION)
        encode_into(out, body)
    elif kind == SEQUENCE:
        for items in body:
            if not isinstance(items, (list, tuple)):
                raise EncodeError(f"a sequence's body is a list of lists, but has a {type(items).__name__}")
            _write_descriptor(out, SEQUENCE_SECTION)
            encode_into(out, items)
    elif kind in (DATA, DATAS):
        for data in body:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise EncodeError(f"a data body is a list of bytes, but has a {type(data).__name__}")
            _write_descriptor(out, DATA_SECTION)
            write_binary(out, data)
    elif body is not None:
        raise EncodeError(f"a message without a body has a {type(body).__name__} as its body")


def _write_descriptor(out: bytearray, code: int) -> None:
    out.append(0x00)
    out += CODE_UBYTE.pack(0x53, code)


_PARTS: Final = (
    "body",
    "body_kind",
    "header",
    "delivery_annotations",
    "message_annotations",
    "properties",
    "application_properties",
    "footer",
)
_MAPS: Final[dict[int, Kind]] = {
    DELIVERY_ANNOTATIONS: ANNOTATIONS,
    MESSAGE_ANNOTATIONS: ANNOTATIONS,
    APPLICATION_PROPERTIES: STRING_MAP,
    FOOTER: ANNOTATIONS,
}
