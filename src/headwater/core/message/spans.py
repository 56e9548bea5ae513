"""Finds the sections of a message without decoding any."""

from __future__ import annotations

from .sections import (
    APPLICATION_PROPERTIES,
    DATA_SECTION,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Sections,
    section_code,
    section_name,
    walk,
)
from .values import SIZE8, WIDTHS, Uncommon

_LISTS, _MAPS, _BINARIES = ((0x45, 0), (0xC0, 1), (0xD0, 4)), ((0xC1, 1), (0xD1, 4)), ((0xA0, 1), (0xB0, 4))
_FORMS = {
    bytes((0, 0x53, section, form)): (section, width)
    for section, forms in (
        (HEADER, _LISTS), (DELIVERY_ANNOTATIONS, _MAPS), (MESSAGE_ANNOTATIONS, _MAPS), (PROPERTIES, _LISTS),
        (APPLICATION_PROPERTIES, _MAPS), (DATA_SECTION, _BINARIES),
    )
    for form, width in forms
}  # fmt: skip
"""The usual beginnings of sections: which section it is, and the width of its size."""

Spans = dict[int, tuple[int, int]]
"""By section: where its value (list or map; for the data section: its content) begins, and where the section ends."""


def usual_spans(message: bytes) -> Spans | None:
    """The sections up to and including data, if all have their plain form; None for a message of any other shape.

    Bytes of the last one's content may be missing, so that an envelope can be read alone: the caller compares the end.
    """
    spans: Spans = {}
    at = previous = 0
    while True:
        form = _FORMS.get(message[at : at + 4])
        if form is None:
            return None
        section, width = form
        if section <= previous:
            return None
        value = at + 3
        if width == 1:
            sized = message[at + 4 : at + 5]
            if not sized:
                return None
            at += 5 + sized[0]
        elif width == 4:
            at += 8 + int.from_bytes(message[at + 4 : at + 8])
        else:
            at += 4
        if section == DATA_SECTION:
            spans[DATA_SECTION] = value + 1 + width, at
            return spans
        spans[section] = value, at
        previous = section


def message_id_span(message: bytes, spans: Spans) -> tuple[int, int, int]:
    """The constructor of the message-id, and where its value begins and ends; three zeros if there is none."""
    if PROPERTIES not in spans:
        return 0, 0, 0
    at, stop = spans[PROPERTIES]
    if message[at] == 0x45 or not (message[at + 2] if message[at] == 0xC0 else any(message[at + 5 : at + 9])):
        return 0, 0, 0
    at += 3 if message[at] == 0xC0 else 9
    if at + 1 >= stop:
        return 0, 0, 0
    form = message[at]
    width = WIDTHS[form]
    if width >= 0:
        begin = at + 1
    elif width == SIZE8:
        begin, width = at + 2, message[at + 1]
    else:
        begin, width = at + 5, int.from_bytes(message[at + 1 : at + 5], "big")
    return (form, begin, begin + width) if begin + width <= stop else (0, 0, 0)


def any_spans(message: bytes) -> Spans:
    """The sections of any message: as `spans_of`. Raises DecodeError."""
    return spans_of(message, walk(message))


def spans_of(message: bytes, found: Sections) -> Spans:
    """Converts found sections. The data section is included only if it is the whole body and nothing follows it.

    Raises DecodeError if a section is described by a symbol, which some clients cannot decode.
    """
    if (at := found.by_symbol) is not None:
        code, _ = section_code(message, at)
        name = section_name(code)
        raise Uncommon(f"the section {name} is described by a symbol: use its code, 0x{code:x}", at)
    spans: Spans = {}
    for section, span in (
        (HEADER, found.header),
        (DELIVERY_ANNOTATIONS, found.delivery_annotations),
        (MESSAGE_ANNOTATIONS, found.message_annotations),
        (PROPERTIES, found.properties),
        (APPLICATION_PROPERTIES, found.application_properties),
        (FOOTER, found.footer),
    ):
        if span is not None:
            spans[section] = section_code(message, span[0])[1], span[1]
    if found.payload is not None and found.footer is None:
        spans[DATA_SECTION] = found.payload
    return spans
