"""The header section of a message (AMQP part 3, 3.2.1): its stored form, and its count of redeliveries."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.message.sections import HEADER_START
from ...core.message.validity import HEADER_FIELDS
from ..errors import MessageFault
from ..protocol.codec import DecodeError, decode, encode
from ..protocol.conditions import DECODE_ERROR
from ..protocol.types import UByte, UInt

_DEFAULTS = (False, 4, None, False, 0)
_KINDS = (bool, UByte, UInt, bool, UInt)
HEADER_DEFAULTS: Mapping[str, object] = {
    name: kind(default)
    for name, default, kind in zip(HEADER_FIELDS, _DEFAULTS, _KINDS, strict=True)
    if default is not None
}
"""The defaults of absent fields; `ttl` has no default."""
HEADER_BYTES_MAX = 1024
"""A header of five fields is always shorter."""
_SECTION_BYTES_MAX = 64
_SECTIONS_MAX = 1024
_DELIVERY_COUNT_MAX = 2**32 - 1

_kept: dict[bytes, bytes] = {}
"""Normalized sections by received section, because senders repeat a few headers."""


def kept_header(section: bytes) -> bytes:
    """The section in its stored, plain form; empty if every field has its default.

    Raises MessageFault if it is not a header.
    """
    kept = _kept.get(section)
    if kept is None:
        values = header_values(section)
        kept = b"" if all(map(_is_default, values, _DEFAULTS)) else HEADER_START + encode(values)
        if len(section) <= _SECTION_BYTES_MAX:
            if len(_kept) >= _SECTIONS_MAX:
                _kept.clear()
            _kept[section] = kept
    return kept


def header_values(section: bytes) -> list[object]:
    """The values of the fields that a header contains. Raises MessageFault if it is not a header."""
    if len(section) > HEADER_BYTES_MAX:
        problem = f"{len(section)} bytes given, at most {HEADER_BYTES_MAX} are allowed for {len(HEADER_FIELDS)} fields"
        raise MessageFault(DECODE_ERROR, f"the header is too long: {problem}")
    try:
        described, _ = decode(section, 0, len(section))
    except DecodeError as error:
        raise MessageFault(DECODE_ERROR, f"the header cannot be decoded: {error}") from None
    values = described.value  # type: ignore[attr-defined]
    if not isinstance(values, list) or len(values) > len(HEADER_FIELDS):
        raise MessageFault(DECODE_ERROR, f"the header is not a list of at most {len(HEADER_FIELDS)} fields")
    for name, value, kind in zip(HEADER_FIELDS, values, _KINDS, strict=False):
        if value is not None and type(value) is not kind:
            problem = f"expected {kind.__name__.lower()}, got {type(value).__name__.lower()}"
            raise MessageFault(DECODE_ERROR, f"header, {name}: {problem}")
    return values


def redelivered(section: bytes, failures: int) -> bytes:
    """The header of a message (empty if it has none) after `failures` more failed deliveries."""
    try:
        values = header_values(section) if section else []
    except MessageFault:  # not a received message; these bytes were appended as an envelope
        values = []
    values += [None] * (len(HEADER_FIELDS) - len(values))
    before = values[-1] or 0
    values[-1] = UInt(min(before + failures, _DELIVERY_COUNT_MAX))  # type: ignore[operator]
    return HEADER_START + encode(values)


def _is_default(value: object, default: object) -> bool:
    return value is None or value == default
