"""Checks, before a message is stored, that every receiver can decode it as delivered, whatever protocol it arrived by.

Client libraries decode all of a message, and many lose their connection, or their process, over a section that they
cannot decode. So each section is checked once, by the types of AMQP part 3, section 3.2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...speedups import IS_NATIVE
from .sections import (
    APPLICATION_PROPERTIES,
    DATA_SECTION,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Sections,
    Span,
    header_stop,
    section_code,
    section_name,
    walk,
)
from .spans import Spans, spans_of, usual_spans
from .values import (
    ELEMENTS,
    NUMBERS,
    SYMBOLS,
    U32_U32,
    WIDTHS,
    DecodeError,
    check_map_end,
    check_text,
    check_value,
    check_values,
    count_values,
    map_bounds,
    type_name,
)

if IS_NATIVE:
    from ...speedups._native import look_through as look_through_usual

VALUES_MAX = 32 * 1024
"""The maximum number of values in a message, not counting its data or one array of numbers."""
_COUNTED_BYTES = 16 * 1024
"""A message with fewer bytes outside its data never has too many values."""
STRINGS: Final = (0xA1, 0xB1)

_Codes = frozenset[int]
_BOOLEAN, _UBYTE, _UINT = frozenset((0x41, 0x42, 0x56)), frozenset((0x50,)), frozenset((0x43, 0x52, 0x70))
_TIMESTAMP, _BINARY = frozenset((0x83,)), frozenset((0xA0, 0xB0))
_STRING, _SYMBOL = frozenset(STRINGS), frozenset(SYMBOLS)
_ID = frozenset((*STRINGS, 0x98, 0x44, 0x53, 0x80, *_BINARY))
_KINDS: Final[dict[_Codes, str]] = {
    _BOOLEAN: "boolean", _UBYTE: "ubyte", _UINT: "uint", _TIMESTAMP: "timestamp", _BINARY: "binary",
    _STRING: "string", _SYMBOL: "symbol", _ID: "message id (string, uuid, ulong or binary)",
}  # fmt: skip
HEADER_FIELDS: Final = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
_HEADER_CODES: Final = (_BOOLEAN, _UBYTE, _UINT, _BOOLEAN, _UINT)
PROPERTIES_FIELDS: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
)  # fmt: skip
_PROPERTIES_CODES: Final = (
    _ID, _BINARY, _STRING, _STRING, _STRING, _ID, _SYMBOL, _SYMBOL, _TIMESTAMP, _TIMESTAMP, _STRING, _UINT, _STRING,
)  # fmt: skip
Places = Sequence[int]
"""The position at which each present field of the properties begins, and the end of the last field."""
_ARRAY_NUMBERS: Final = NUMBERS & ELEMENTS
_NOT_SIMPLE: Final = frozenset((0x45, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0))


def look_through(message: bytes, size: int) -> tuple[Spans, Places]:
    """The checked sections of a message of that size, and the positions at which the fields of its properties begin.

    The content of a data section may be missing, if it is the whole body. Raises DecodeError if some receivers cannot
    decode the message.
    """
    if IS_NATIVE and (found := look_through_usual(message, size)) is not None:
        return found
    return look_through_any(message, size)


def look_through_any(message: bytes, size: int) -> tuple[Spans, Places]:
    """The Python twin of `speedups/message.c`. `look_through` calls it for unusual or invalid messages."""
    spans, found = usual_spans(message), None
    if spans is None or spans[DATA_SECTION][1] != size or len(message) not in spans[DATA_SECTION]:
        if len(message) != size:
            raise DecodeError("the message is cut short", len(message))
        found = walk(message)
        spans = spans_of(message, found)
    places = _check_sections(message, spans)
    if found is not None:
        _check_body(message, found)
    return spans, places


def message_fault(envelope: bytes, data: bytes, is_whole: bool) -> str | None:
    """Why some receivers cannot decode an event that is a message, as delivered; None if all can.

    With `is_whole`, the data is the whole message (`Encoding.AMQP`); otherwise it is the content of its only data
    section.
    """
    try:
        looked_through(envelope, data, is_whole)
    except DecodeError as error:
        return str(error)
    return None


def looked_through(envelope: bytes, data: bytes, is_whole: bool) -> tuple[Spans, Places]:
    """Like `look_through`, for an event that is a message, with the arguments of `message_fault`."""
    return _check_whole(envelope + data) if is_whole else _check_envelope(envelope, data)


def check_ids(form: int, ids: Callable[[], Iterator[bytes]], at: int) -> None:
    """Check the values of message-ids with that constructor, of alike messages. Raises DecodeError."""
    if form in STRINGS and not b"".join(ids()).isascii():
        for id in ids():
            check_text(id, at)


def _check_sections(message: bytes, spans: Spans) -> Places:
    """Check all sections except the body; the content of the data section may be missing."""
    if len(message) > _COUNTED_BYTES:
        _check_count(message, [span for section, span in spans.items() if section != DATA_SECTION])
    places: Places = []
    section = start = 0
    try:
        for section, (start, stop) in spans.items():
            if section == PROPERTIES:
                places = _places(message, start, stop, _PROPERTIES_CODES)
            elif section == APPLICATION_PROPERTIES:
                _check_application_properties(message, start, stop)
            elif section in (MESSAGE_ANNOTATIONS, FOOTER):
                _check_annotations(message, start, stop)
            elif section == HEADER:
                _places(message, start, stop, _HEADER_CODES)
    except (IndexError, struct.error):
        raise DecodeError(f"{section_name(section)}: the section is cut short", start) from None
    except DecodeError as wrong:
        raise DecodeError(f"{section_name(section)}: {wrong.problem}", wrong.at) from None
    return places


def _check_body(message: bytes, found: Sections) -> None:
    if found.body is None or found.body_kind not in (SEQUENCE, VALUE):
        return
    if found.body_kind == SEQUENCE or not _is_array_of_numbers(message, found.body):
        _check_count(message, [found.body])
        at, stop = found.body
        while at < stop:
            at = check_value(message, section_code(message, at)[1], stop)


def _check_envelope(envelope: bytes, data: bytes) -> tuple[Spans, Places]:
    content = len(envelope), len(envelope) + len(data)
    try:
        found = look_through(envelope, content[1])
    except DecodeError:
        found = _check_whole(envelope + data)
    else:
        _check_stored(envelope, found[0])
    if found[0].get(DATA_SECTION) != content:
        raise DecodeError(
            "expected an envelope that ends where the content of its only data section starts", len(envelope)
        )
    return found


def _check_whole(message: bytes) -> tuple[Spans, Places]:
    if not message:
        raise DecodeError("it has neither properties nor a body", 0)
    found = look_through(message, len(message))
    _check_stored(message, found[0])
    return found


def _check_stored(message: bytes, spans: Spans) -> None:
    """A delivery inserts delivery-annotations after the header, and finds the header only in its short form."""
    if DELIVERY_ANNOTATIONS in spans:
        raise DecodeError("delivery-annotations are not stored: send the message without them", 0)
    if HEADER in spans and not header_stop(message):
        raise DecodeError("the header must be in its short form (0x00 0x53 0x70 0xc0)", 0)


def _check_count(message: bytes, spans: list[Span]) -> None:
    if sum([stop - at for at, stop in spans]) > _COUNTED_BYTES:
        left = VALUES_MAX
        for at, stop in spans:
            left -= count_values(message, at, stop, left)


def _places(message: bytes, at: int, stop: int, fields: Sequence[_Codes]) -> Places:
    """Where each field begins, in a list whose fields are null or of their types. Bounds are not checked."""
    start, form = at, message[at]
    if form == 0x45:
        return [stop]
    if form == 0xC0:
        end, count, at = at + 2 + message[at + 1], message[at + 2], at + 3
    else:
        size, count = U32_U32.unpack_from(message, at + 1)
        end, at = at + 5 + size, at + 9
    if count > len(fields):
        raise DecodeError(f"expected at most {len(fields)} fields, got {count}", start)
    places = [at]
    for codes in fields[:count]:
        code = message[at]
        if code == 0x40:
            at += 1
        elif code not in codes:
            problem = f"expected {_KINDS[codes]}, got {type_name(code)}"
            raise DecodeError(f"{_name(fields, places)}: {problem}", at)
        elif code == 0xA1 or code == 0xA3:
            begin = at + 2
            at = begin + message[at + 1]
            if not message[begin:at].isascii():
                _check_field(message, begin - 2, fields, places)
        elif code == 0x83:
            at += 9
        else:
            at = _check_field(message, at, fields, places)
        places.append(at)
    if at != stop or end != stop:
        raise DecodeError("the list's size does not match its fields", start)
    return places


def _check_field(message: bytes, at: int, fields: Sequence[_Codes], places: Places) -> int:
    try:
        return check_values(message, at, 1, 0)
    except DecodeError as wrong:
        raise DecodeError(f"{_name(fields, places)}: {wrong.problem}", wrong.at) from None


def _name(fields: Sequence[_Codes], places: Places) -> str:
    """The name of the field that begins at the last of these places."""
    return (HEADER_FIELDS if fields is _HEADER_CODES else PROPERTIES_FIELDS)[len(places) - 1]


def _check_application_properties(message: bytes, at: int, end: int) -> None:
    """Check a map of strings to simple values; bounds are not checked."""
    at, count, stop = map_bounds(message, at)
    start = at
    names: set[bytes] = set()
    for _ in range(count >> 1):
        code = message[at]
        if code == 0xA1:
            begin, value = at + 2, at + 2 + message[at + 1]
        elif code == 0xB1:
            begin, value = at + 5, check_values(message, at, 1, 1)
        else:
            raise DecodeError(f"a key must be a string, got {type_name(code)}", at)
        name = message[begin:value]
        if not name.isascii():
            check_text(name, at)
        names.add(name)
        code = message[value]
        if code == 0xA1:
            begin = value + 2
            at = begin + message[value + 1]
            if not message[begin:at].isascii():
                check_text(message[begin:at], value)
        elif code in _NOT_SIMPLE:
            raise DecodeError(f"expected a simple value, got {type_name(code)} for {name.decode()!r}", value)
        else:
            at = check_values(message, value, 1, 1)
    check_map_end(at, stop if stop == end else -1, len(names), count, start)


def _check_annotations(message: bytes, at: int, end: int) -> None:
    """Check a map of symbols to any values; bounds are not checked. Numeric keys are reserved (3.2.10)."""
    at, count, stop = map_bounds(message, at)
    start = at
    keys: set[bytes] = set()
    for _ in range(count >> 1):
        code = message[at]
        if code not in SYMBOLS:
            raise DecodeError(f"a key must be a symbol, got {type_name(code)}", at)
        value = check_values(message, at, 1, 1)
        keys.add(message[at + (2 if code == 0xA3 else 5) : value])
        at = check_values(message, value, 1, 1)
    check_map_end(at, stop if stop == end else -1, len(keys), count, start)


def _is_array_of_numbers(message: bytes, body: Span) -> bool:
    """Whether an amqp-value is an array whose elements need no check: there may be many."""
    at, stop = section_code(message, body[0])[1], body[1]
    head = {0xE0: 1, 0xF0: 4}.get(message[at], 0)
    first = at + 1 + 2 * head
    if not head or first >= stop or message[first] not in _ARRAY_NUMBERS:
        return False
    return first + 1 + int.from_bytes(message[first - head : first]) * WIDTHS[message[first]] == stop
