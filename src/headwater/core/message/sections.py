"""Finds the sections of a message (AMQP part 3, section 3.2) without decoding them."""

from __future__ import annotations

import struct
from typing import Final

from .values import SYMBOLS, U32, DecodeError, descriptor_code, skip

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA_SECTION: Final = 0x75
SEQUENCE_SECTION: Final = 0x76
VALUE_SECTION: Final = 0x77
FOOTER: Final = 0x78

BODY_SECTIONS_MAX: Final = 10_000
"""The maximum number of data or sequence sections in one body: finding this many takes 10 ms."""

NONE: Final = 0
"""No body, which the standard does not provide for."""
DATA: Final = 1
"""One data section."""
DATAS: Final = 2
"""Several data sections."""
SEQUENCE: Final = 3
"""One or more amqp-sequence sections."""
VALUE: Final = 4
"""An amqp-value section."""

Span = tuple[int, int]


HEADER_START: Final = b"\x00\x53\x70"


class Sections:
    """The positions of a message's sections. Each is a span of its bytes, including the descriptor, or None.

    `body` spans all data or sequence sections; `payload` is the content of the data section, if it is the only one.
    `by_symbol` is the start of the first section described by a symbol, or None.
    """

    __slots__ = (
        "application_properties",
        "body",
        "body_kind",
        "by_symbol",
        "delivery_annotations",
        "footer",
        "header",
        "message_annotations",
        "payload",
        "properties",
    )

    def __init__(self, spans: list[Span | None], body_kind: int, payload: Span | None, by_symbol: int | None) -> None:
        self.header = spans[0]
        self.delivery_annotations = spans[1]
        self.message_annotations = spans[2]
        self.properties = spans[3]
        self.application_properties = spans[4]
        self.body = spans[5]
        self.footer = spans[8]
        self.body_kind = body_kind
        self.payload = payload
        self.by_symbol = by_symbol


def walk(message: bytes) -> Sections:
    """Finds the sections; their content is not checked.

    Raises DecodeError for an unknown section, one of a wrong type, out of order or repeated, two kinds of body, more
    than BODY_SECTIONS_MAX of them, or truncation.
    """
    spans: list[Span | None] = [None] * 9
    end = len(message)
    at = last = more = 0
    body_kind = NONE
    payload: Span | None = None
    by_symbol: int | None = None
    try:
        while at < end:
            start = at
            if message[at] == 0x00 and message[at + 1] == 0x53:
                code, at = message[at + 2], at + 3
            else:
                code, at = section_code(message, at)
                if by_symbol is None and message[start + 1] in SYMBOLS:
                    by_symbol = start
            if code <= last and not (code == last and DATA_SECTION <= code <= SEQUENCE_SECTION):
                raise DecodeError(f"section {section_name(code)} follows section {section_name(last)}", start)
            value = at
            if message[at] == _SHORT_CONSTRUCTORS[code]:
                at += 2 + message[at + 1]
            else:
                at = _behind(code, message, at, end)
            body = spans[5]
            if code < DATA_SECTION or code == FOOTER:
                spans[code - HEADER] = start, at
            elif body is None:
                spans[5] = start, at
                body_kind = _BODY_KINDS[code - DATA_SECTION]
                payload = (value + (2 if message[value] == 0xA0 else 5), at) if code == DATA_SECTION else None
            elif code == last:
                more += 1
                if more >= BODY_SECTIONS_MAX:
                    raise DecodeError(f"more than {BODY_SECTIONS_MAX} sections in one body", start)
                spans[5] = body[0], at
                body_kind = SEQUENCE if code == SEQUENCE_SECTION else DATAS
                payload = None
            else:
                raise DecodeError(f"section {section_name(code)} follows section {section_name(last)}", start)
            last = code
    except (IndexError, struct.error):
        raise DecodeError("the message is cut short", end) from None
    if at > end:
        raise DecodeError("the message is cut short", end)
    return Sections(spans, body_kind, payload, by_symbol)


def header_stop(message: bytes) -> int:
    """The end of the plain-form header with which a stored message begins; 0 if it begins with none."""
    form = message[3:5]
    if not message.startswith(HEADER_START) or form[:1] != b"\xc0" or len(form) < 2:
        return 0
    stop = 5 + form[1]
    return stop if stop <= len(message) else 0


def section_code(message: bytes, at: int) -> tuple[int, int]:
    """The code of the section that starts at `at`, and the start of its value; bounds are not checked."""
    if message[at] != 0x00:
        raise DecodeError(f"expected a section, got constructor 0x{message[at]:02x}", at)
    descriptor, after = descriptor_code(message, at + 1)
    code = _CODES.get(descriptor, -1) if isinstance(descriptor, bytes) else -1 if descriptor is None else descriptor
    if HEADER <= code <= FOOTER:
        return code, after
    given = descriptor.decode("ascii", "replace") if isinstance(descriptor, bytes) else descriptor
    shown = f"constructor 0x{message[at + 1]:02x}" if given is None else repr(given)[:80]
    raise DecodeError(f"expected a section, got a value described by {shown}", at)


def _behind(code: int, message: bytes, at: int, end: int) -> int:
    """The position after the section's value, which must be of the section's type."""
    if code == VALUE_SECTION:
        return skip(message, at, end)
    if not HEADER <= code <= FOOTER:
        raise DecodeError(f"no section has the code 0x{code:x}", at)
    constructor = message[at]
    if constructor | 0x10 == _CONSTRUCTORS[code - HEADER]:
        if constructor & 0x10:
            at += 5 + U32.unpack_from(message, at + 1)[0]
        else:
            at += 2 + message[at + 1]
    elif constructor == 0x45 and _CONSTRUCTORS[code - HEADER] == 0xD0:
        at += 1
    else:
        raise DecodeError(f"the section {section_name(code)} has a value with constructor 0x{constructor:02x}", at)
    return at


def section_name(code: int) -> str:
    """Its name in the standard."""
    return _NAMES[code - HEADER] if HEADER <= code <= FOOTER else f"0x{code:x}"


_BODY_KINDS: Final = (DATA, SEQUENCE, VALUE)
_NAMES: Final = (
    "header",
    "delivery-annotations",
    "message-annotations",
    "properties",
    "application-properties",
    "data",
    "amqp-sequence",
    "amqp-value",
    "footer",
)
_CONSTRUCTORS: Final = (0xD0, 0xD1, 0xD1, 0xD0, 0xD1, 0xB0, 0xD0, 0, 0xD1)
"""The long form of the constructors that each section's value may have."""

_SHORT_CONSTRUCTORS: Final[list[int]] = [
    _CONSTRUCTORS[code - HEADER] - 0x10 if HEADER <= code <= FOOTER and code != VALUE_SECTION else -1
    for code in range(256)
]
"""By the section's code: the short form, with a size of one byte."""

_CODES: Final = {
    f"amqp:{name}:{kind}".encode(): HEADER + index
    for index, (name, kind) in enumerate(
        zip(_NAMES, ("list", "map", "map", "list", "map", "binary", "list", "*", "map"), strict=True)
    )
}
"""By the section's other descriptor."""
