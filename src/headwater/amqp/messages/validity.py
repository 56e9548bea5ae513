"""Checks whether every receiver can decode a message, before it is stored, by whichever protocol it comes.

Client libraries decode all of a message, and many lose their connection, or their process, over a section that they
cannot decode. So each section is decoded once here, by the same codec as in this server's own client, with the types
of AMQP part 3, section 3.2. Messages that differ from an earlier one in message-id and data alone are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...core.event import Encoding
from ..protocol.codec import DecodeError, count_values
from ..protocol.decoding import WIDTHS
from ..protocol.message import decode_body, decode_section
from ..protocol.sections import (
    APPLICATION_PROPERTIES,
    DATA_SECTION,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    SEQUENCE,
    VALUE,
    Sections,
    Span,
    section_code,
    walk,
)
from ..protocol.types import Symbol, ULong
from .headers import header_stop
from .spans import Spans, message_id_span, usual_spans

VALUES_MAX = 32 * 1024
"""A message may have so many values, besides its data, or one array of numbers."""
_COUNTED_BYTES = 16 * 1024
"""A message with fewer bytes besides its data has never too many."""
_FORMS_MAX = 1024
_FORM_BYTES_MAX = 4096
_STRINGS = (0xA1, 0xB1)
_NUMBERS = frozenset(code for code, width in enumerate(WIDTHS) if width > 0) - {0x56, 0x73}
"""Constructors of fixed width after which any bytes are a value: all but boolean and char."""

_MAPS = (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER)

_forms: set[tuple[bytes, bytes]] = set()
"""Messages that can be decoded: the bytes before the value of message-id, and the bytes from its end to the data."""


def message_fault(envelope: bytes, data: bytes, encoding: Encoding) -> str | None:
    """What keeps a receiver from decoding an event that is a message, as it is delivered; None where nothing does.

    It is what `core.message_check` asks for.
    """
    try:
        if encoding:
            _check_whole(envelope + data)
        else:
            _check_envelope(envelope, data)
    except DecodeError as error:
        return str(error)
    return None


def check_decodable(message: bytes, spans: Spans) -> None:
    """Decode all sections of a message that was received. Raises DecodeError: one cannot be decoded."""
    if DATA_SECTION in spans:
        check_sections(message, spans)
    else:
        check_found(message, walk(message))


def check_counts(message: bytes, spans: Spans) -> None:
    """Check only the parts of it that cost a receiver most, in a fraction of the time. Raises DecodeError.

    These are maps whose count is above their bytes, or odd; and arrays, which may claim any number of values that take
    no bytes.
    """
    for section in _MAPS:
        if section in spans:
            at, stop = spans[section]
            head = 3 if message[at] == 0xC1 else 9
            count = int.from_bytes(message[at + 2 : at + 3] if head == 3 else message[at + 5 : at + 9])
            if count & 1 or count > stop - at - head:
                raise DecodeError(f"a map says {count} elements, in {stop - at - head} bytes", at)
    if DATA_SECTION not in spans and (b"\xf0" in message or b"\xe0" in message):
        check_found(message, walk(message))


def check_sections(message: bytes, spans: Spans) -> None:
    """Look into the sections of a message whose body is one section of data; that one may be missing its content.

    Raises DecodeError: one cannot be decoded.
    """
    form, id_at, id_stop = message_id_span(message, spans)
    before, stop = list[Span](), 0
    for section, (_, end) in spans.items():
        if section != DATA_SECTION:
            if section != DELIVERY_ANNOTATIONS:
                before.append((stop, end))
            stop = end
    key = message[:id_at], message[id_stop:stop]
    if key in _forms:
        if form in _STRINGS:
            _check_text(message, id_at, id_stop)
        return
    _check_each(message, before)
    if stop <= _FORM_BYTES_MAX:
        if len(_forms) >= _FORMS_MAX:
            _forms.clear()
        _forms.add(key)


def check_found(message: bytes, found: Sections) -> None:
    """Look into the sections of any message. Raises DecodeError: one cannot be decoded."""
    spans = [
        found.header, found.message_annotations, found.properties, found.application_properties, found.footer,
    ]  # fmt: skip
    _check_each(message, [span for span in spans if span is not None])
    if found.body is None or found.body_kind not in (SEQUENCE, VALUE):
        return
    if found.body_kind == SEQUENCE or not _is_array_of_numbers(message, found.body):
        _check_count(message, [found.body])
        decode_body(message, found)


def _check_envelope(envelope: bytes, data: bytes) -> None:
    spans = usual_spans(envelope)
    if spans is None or spans[DATA_SECTION] != (len(envelope), len(envelope) + len(data)):
        if _check_whole(envelope + data).payload != (len(envelope), len(envelope) + len(data)):
            raise DecodeError("an envelope ends where the content of the one data section begins", len(envelope))
        return
    _check_stored(envelope, HEADER in spans, DELIVERY_ANNOTATIONS in spans)
    check_sections(envelope, spans)


def _check_whole(message: bytes) -> Sections:
    if not message:
        raise DecodeError("it has neither properties nor a body", 0)
    found = walk(message)
    _check_stored(message, found.header is not None, found.delivery_annotations is not None)
    check_found(message, found)
    return found


def _check_stored(message: bytes, has_header: bool, has_delivery_annotations: bool) -> None:
    """A delivery inserts delivery-annotations behind the header, and finds the header in its short form only."""
    if has_delivery_annotations:
        raise DecodeError("delivery-annotations are not stored: give the message without them", 0)
    if has_header and not header_stop(message):
        raise DecodeError("the header is not in its short form (0x00 0x53 0x70 0xc0)", 0)


def _check_each(message: bytes, spans: Sequence[Span]) -> None:
    _check_count(message, spans)
    for span in spans:
        code, value_at = section_code(message, span[0])
        content = decode_section(message, span)
        if code in (MESSAGE_ANNOTATIONS, FOOTER):
            _check_keys(content, value_at)
        elif code == APPLICATION_PROPERTIES:
            _check_simple(content, value_at)


def _check_count(message: bytes, spans: Sequence[Span]) -> None:
    if sum([stop - at for at, stop in spans]) > _COUNTED_BYTES:
        left = VALUES_MAX
        for at, stop in spans:
            left -= count_values(message, at, stop, left)


def _check_keys(keys: Iterable[object], at: int) -> None:
    for key in keys:
        if type(key) is not Symbol and type(key) is not ULong:
            problem = f"annotations have symbols or ulongs as keys, {key!r} ({type(key).__name__.lower()}) found"
            raise DecodeError(problem, at)


def _check_simple(entries: dict[str, object], at: int) -> None:
    for name, value in entries.items():
        if isinstance(value, list | dict):
            kind = type(value).__name__.lower()
            raise DecodeError(f"application-properties have simple values, that of {name!r} is a {kind}", at)


def _check_text(message: bytes, at: int, stop: int) -> None:
    try:
        message[at:stop].decode()
    except UnicodeDecodeError:
        raise DecodeError("properties.message_id: a string is not UTF-8", at) from None


def _is_array_of_numbers(message: bytes, body: Span) -> bool:
    """Whether an amqp-value is an array whose elements need no look: there may be many."""
    at, stop = section_code(message, body[0])[1], body[1]
    head = {0xE0: 1, 0xF0: 4}.get(message[at], 0)
    first = at + 1 + 2 * head
    if not head or first >= stop or message[first] not in _NUMBERS:
        return False
    return first + 1 + int.from_bytes(message[first - head : first]) * WIDTHS[message[first]] == stop
