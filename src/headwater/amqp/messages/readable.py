"""A message for human readers: its sections in order, values as JSON, with AMQP type names where JSON has no such type.

Strings, booleans, longs, doubles and null are the same in JSON. Every other type is an object of one member with its
name (part 1, section 1.6): `{"symbol": "x"}`, `{"timestamp": 0}`, `{"binary": "aGk="}`. A map whose keys are strings or
symbols is an object, unless that is ambiguous; then, like any other map, it is `{"map": [[key, value], ...]}`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ...core.message.sections import DATA, DATAS, NONE, SEQUENCE, VALUE, Sections, Span, walk
from ..protocol import types
from ..protocol.codec import DecodeError
from ..protocol.composite import Composite
from ..protocol.message import decode_section
from ..protocol.types import Array, Described, Float, Long, Symbol

SECTION_BYTES_MAX = 64 * 1024
"""For a longer section, only its length is shown, because each of its bytes may be a value."""
_NAMED: Mapping[type, str] = {
    kind: kind.__name__.lower()
    for kind in (types.UByte, types.UShort, types.UInt, types.ULong, types.Byte, types.Short, types.Int,
                 types.Timestamp, types.Char, Symbol, Float)
}  # fmt: skip
_BYTES: Mapping[type, str] = {
    bytes: "binary", types.Decimal32: "decimal32", types.Decimal64: "decimal64", types.Decimal128: "decimal128",
}  # fmt: skip
_OF_TYPES = frozenset({*_NAMED.values(), *_BYTES.values(), "double", "uuid", "array", "map", "descriptor", "described"})
_BODIES = {
    NONE: "none",
    DATA: "data",
    DATAS: "several data sections",
    SEQUENCE: "amqp-sequence",
    VALUE: "amqp-value",
}
_SECTIONS = (
    ("header", "header"),
    ("delivery-annotations", "delivery_annotations"),
    ("message-annotations", "message_annotations"),
    ("properties", "properties"),
    ("application-properties", "application_properties"),
    ("body", "body"),
    ("footer", "footer"),
)
"""In the order of the standard (part 3, section 3.2), with their names in `Sections`."""


def readable(message: bytes) -> dict[str, Any]:
    """The sections, each with its offset, its length, and its `value`, or the `problem` that prevents one.

    The content of a data section is not repeated: `payload` says where it is.
    """
    try:
        sections = walk(message)
    except DecodeError as error:
        return {"bytes": len(message), "problem": str(error)}
    spans: list[tuple[str, Span | None]] = [(name, getattr(sections, field)) for name, field in _SECTIONS]
    shown = [_section(message, sections, name, span) for name, span in spans if span is not None]
    return {"bytes": len(message), "body": _BODIES[sections.body_kind], "sections": shown}


def _section(message: bytes, sections: Sections, name: str, span: Span) -> dict[str, Any]:
    at, stop = span
    shown: dict[str, Any] = {"section": name, "at": at, "bytes": stop - at}
    if name == "body" and sections.payload is not None:
        start, end = sections.payload
        return {**shown, "payload": {"at": start, "bytes": end - start}}
    if name == "body" and sections.body_kind in (DATAS, SEQUENCE):
        return {**shown, "problem": "a body of several sections is not decoded"}
    if stop - at > SECTION_BYTES_MAX:
        return {**shown, "problem": f"longer than {SECTION_BYTES_MAX} bytes: it is not decoded"}
    try:
        return {**shown, "value": as_json(decode_section(message, span))}
    except DecodeError as error:
        return {**shown, "problem": str(error)}


def as_json(value: Any) -> Any:
    """A decoded value in JSON form; see the module. Decoding limits its depth."""
    kind = type(value)
    if value is None or kind in (bool, str, int, Long):
        return int(value) if kind is Long else value
    if kind is float:
        return value if math.isfinite(value) else {"double": str(value)}
    if (name := _NAMED.get(kind)) is not None:
        plain = str(value) if isinstance(value, str) else float(value) if kind is Float else int(value)
        return {name: plain if not isinstance(plain, float) or math.isfinite(plain) else str(plain)}
    if (name := _BYTES.get(kind)) is not None:
        return {name: base64.b64encode(value).decode()}
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    if isinstance(value, Described):
        return {"descriptor": as_json(value.descriptor), "described": as_json(value.value)}
    if isinstance(value, Composite):
        given = [(field.name.replace("_", "-"), getattr(value, field.name)) for field in value.FIELDS]
        return {key: as_json(each) for key, each in given if each is not None}
    if isinstance(value, Mapping):
        names = {str(key) for key in value if type(key) in (str, Symbol)}
        if len(names) == len(value) and (not names or not names <= _OF_TYPES):
            return {str(key): as_json(each) for key, each in value.items()}
        return {"map": [[as_json(key), as_json(each)] for key, each in value.items()]}
    elements = [as_json(each) for each in value]
    return {"array": elements} if kind is Array else elements
