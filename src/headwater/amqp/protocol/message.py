"""Messages (part 3, section 3.2): finds their sections, decodes them, and builds messages."""

import struct
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Annotated, Any, Final

from ...core.message.sections import (
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
from .codec import DecodeError, EncodeError, encode_into
from .composite import Composite, composite, read_fields, write_composite
from .decoding import read
from .encoding import CODE_UBYTE, write_binary
from .fields import ANNOTATIONS, BINARY, BOOLEAN, LABEL, MESSAGE_ID, STRING, STRING_MAP, TIMESTAMP, UBYTE, UINT, Kind

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
"""The priority of a message that specifies none (3.2.1)."""


@composite("header", 0x70)
class Header(Composite):
    """How to deliver a message (3.2.1); `ttl` is in milliseconds."""

    durable: Annotated[bool, BOOLEAN] = False
    priority: Annotated[int, UBYTE] = PRIORITY
    ttl: Annotated[int | None, UINT] = None
    first_acquirer: Annotated[bool, BOOLEAN] = False
    delivery_count: Annotated[int, UINT] = 0


@composite("properties", 0x73)
class Properties(Composite):
    """The properties of a message (3.2.4). Times are in milliseconds since 1970; ids are str, UUID, ULong or bytes."""

    message_id: Annotated[object, MESSAGE_ID] = None
    user_id: Annotated[bytes | None, BINARY] = None
    to: Annotated[str | None, STRING] = None
    subject: Annotated[str | None, STRING] = None
    reply_to: Annotated[str | None, STRING] = None
    correlation_id: Annotated[object, MESSAGE_ID] = None
    content_type: Annotated[str | None, LABEL] = None
    content_encoding: Annotated[str | None, LABEL] = None
    absolute_expiry_time: Annotated[int | None, TIMESTAMP] = None
    creation_time: Annotated[int | None, TIMESTAMP] = None
    group_id: Annotated[str | None, STRING] = None
    group_sequence: Annotated[int | None, UINT] = None
    reply_to_group_id: Annotated[str | None, STRING] = None


@dataclass(slots=True, repr=False)
class Message:
    """A decoded message. A section that is absent is None.

    `body_kind` determines `body`: DATA and DATAS a list of bytes, SEQUENCE a list of lists, VALUE the value, NONE None.
    Keys of annotations may be given as plain `str`; they are written as symbols.
    """

    body: Any = None
    body_kind: int = VALUE
    _: KW_ONLY
    header: Header | None = None
    delivery_annotations: Mapping[Any, Any] | None = None
    message_annotations: Mapping[Any, Any] | None = None
    properties: Properties | None = None
    application_properties: Mapping[str, Any] | None = None
    footer: Mapping[Any, Any] | None = None

    def __repr__(self) -> str:
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return f"Message({', '.join(f'{name}={value!r}' for name, value in given if value is not None)})"


def decode_message(message: bytes) -> Message:
    """The message, decoded in full. Raises DecodeError: like `walk`, or if a section is malformed."""
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
    """The content of one section: Header, Properties, a dict, bytes, a list, or the value of an amqp-value section.

    `span` comes from `walk`; for several data or sequence sections, the result is the first. Raises DecodeError.
    """
    return _read_section(message, span[0])[0]


def decode_body(message: bytes, sections: Sections) -> Any:
    """The body of a message with these sections from `walk`, in the form of `Message.body`. Raises DecodeError."""
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
            content, at = read_fields(Header.LAYOUT, message, at)
        elif code == PROPERTIES:
            content, at = read_fields(Properties.LAYOUT, message, at)
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
            raise EncodeError(f"a key or value of section 0x{code:x} cannot be encoded: {wrong}") from None


def _write_body(out: bytearray, kind: int, body: Any) -> None:
    if kind == VALUE:
        _write_descriptor(out, VALUE_SECTION)
        encode_into(out, body)
    elif kind == SEQUENCE:
        for items in body:
            if not isinstance(items, (list, tuple)):
                raise EncodeError(f"a sequence body must be a list of lists, but contains a {type(items).__name__}")
            _write_descriptor(out, SEQUENCE_SECTION)
            encode_into(out, items)
    elif kind in (DATA, DATAS):
        for data in body:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise EncodeError(f"a data body must be a list of bytes, but contains a {type(data).__name__}")
            _write_descriptor(out, DATA_SECTION)
            write_binary(out, data)
    elif body is not None:
        raise EncodeError(f"a message without a body was given the body of type {type(body).__name__}")


def _write_descriptor(out: bytearray, code: int) -> None:
    out.append(0x00)
    out += CODE_UBYTE.pack(0x53, code)


_MAPS: Final[dict[int, Kind]] = {
    DELIVERY_ANNOTATIONS: ANNOTATIONS,
    MESSAGE_ANNOTATIONS: ANNOTATIONS,
    APPLICATION_PROPERTIES: STRING_MAP,
    FOOTER: ANNOTATIONS,
}
