"""The kinds of composite fields: each reads one AMQP type to one plain Python type, and writes it.

A kind's `read(buffer, at)` finds the constructor at `at`, never null, and checks no bounds (see `decoding`); it raises
DecodeError if the value has another type. Its `write(out, value)` never gets None.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from reprlib import repr as shown
from typing import Any, Final, NamedTuple

from ...core.message.values import U32
from .codec import DecodeError, EncodeError, encode_into
from .decoding import U16, U64, read
from .encoding import WRITERS, write_binary, write_map, write_string, write_symbol, write_uint, write_ulong
from .types import Array, Symbol, Timestamp, UByte, ULong, UShort

Read = Callable[[bytes, int], tuple[Any, int]]
Write = Callable[[bytearray, Any], None]


class Kind(NamedTuple):
    """How the fields of one AMQP type are read and written."""

    name: str
    read: Read
    write: Write


class Field(NamedTuple):
    """One field of a composite type, with the default for an absent one; a mandatory one may not be null."""

    name: str
    kind: Kind
    default: object
    is_mandatory: bool


def unexpected(expected: str, buffer: bytes, at: int) -> DecodeError:
    """The error for a value at `at` that is not of the expected type."""
    return DecodeError(f"expected {expected}, got constructor 0x{buffer[at]:02x}", at)


def _read_boolean(buffer: bytes, at: int) -> tuple[bool, int]:
    code = buffer[at]
    if code == 0x41:
        return True, at + 1
    if code == 0x42:
        return False, at + 1
    if code == 0x56 and buffer[at + 1] < 2:
        return buffer[at + 1] == 1, at + 2
    raise unexpected("boolean", buffer, at)


def _read_ubyte(buffer: bytes, at: int) -> tuple[int, int]:
    if buffer[at] != 0x50:
        raise unexpected("ubyte", buffer, at)
    return buffer[at + 1], at + 2


def _read_ushort(buffer: bytes, at: int) -> tuple[int, int]:
    if buffer[at] != 0x60:
        raise unexpected("ushort", buffer, at)
    return U16.unpack_from(buffer, at + 1)[0], at + 3


def _read_uint(buffer: bytes, at: int) -> tuple[int, int]:
    code = buffer[at]
    if code == 0x52:
        return buffer[at + 1], at + 2
    if code == 0x70:
        return U32.unpack_from(buffer, at + 1)[0], at + 5
    if code == 0x43:
        return 0, at + 1
    raise unexpected("uint", buffer, at)


def _read_ulong(buffer: bytes, at: int) -> tuple[int, int]:
    code = buffer[at]
    if code == 0x53:
        return buffer[at + 1], at + 2
    if code == 0x80:
        return U64.unpack_from(buffer, at + 1)[0], at + 9
    if code == 0x44:
        return 0, at + 1
    raise unexpected("ulong", buffer, at)


def _read_timestamp(buffer: bytes, at: int) -> tuple[int, int]:
    if buffer[at] != 0x83:
        raise unexpected("timestamp", buffer, at)
    value, at = read(buffer, at, 0)
    return int(value), at  # type: ignore[call-overload]


def _read_binary(buffer: bytes, at: int) -> tuple[bytes, int]:
    if buffer[at] not in (0xA0, 0xB0):
        raise unexpected("binary", buffer, at)
    return read(buffer, at, 0)  # type: ignore[return-value]


def _read_string(buffer: bytes, at: int) -> tuple[str, int]:
    if buffer[at] not in (0xA1, 0xB1):
        raise unexpected("string", buffer, at)
    return read(buffer, at, 0)  # type: ignore[return-value]


def _read_symbol(buffer: bytes, at: int) -> tuple[Symbol, int]:
    if buffer[at] not in (0xA3, 0xB3):
        raise unexpected("symbol", buffer, at)
    return read(buffer, at, 0)  # type: ignore[return-value]


def _read_label(buffer: bytes, at: int) -> tuple[str, int]:
    return _read_string(buffer, at) if buffer[at] in (0xA1, 0xB1) else _read_symbol(buffer, at)


def _read_symbols(buffer: bytes, at: int) -> tuple[tuple[Symbol, ...], int]:
    code = buffer[at]
    if code in (0xA3, 0xB3):
        symbol, at = _read_symbol(buffer, at)
        return (symbol,), at
    if code not in (0xE0, 0xF0):
        raise unexpected("symbol or array of symbols", buffer, at)
    _check_elements(buffer, at, 3 if code == 0xE0 else 9)
    array, after = read(buffer, at, 0)
    assert isinstance(array, Array)
    if array and array.constructor not in (0xA3, 0xB3):
        raise DecodeError(f"expected an array of symbols, got an array of {shown(array.constructor)}", at)
    return tuple(array), after


def _check_elements(buffer: bytes, at: int, head: int) -> None:
    """Refuse arrays of anything but symbols before reading them, because 65,000 small numbers take 60 ms."""
    constructor = buffer[at + head] if at + head < len(buffer) else 0
    if constructor not in (0x00, 0xA3, 0xB3) and any(buffer[at + (head + 1) // 2 : at + head]):
        raise DecodeError(f"expected an array of symbols, got an array of {shown(constructor)}", at)


def _write_symbols(out: bytearray, value: tuple[str, ...]) -> None:
    if not isinstance(value, (tuple, list)) or not all(isinstance(symbol, str) for symbol in value):
        raise EncodeError(f"expected a tuple of symbols, got {shown(value)}")
    if value:
        encode_into(out, Array(map(Symbol, value)))
    else:
        out.append(0x40)


def _read_map(buffer: bytes, at: int) -> tuple[dict[Any, Any], int]:
    if buffer[at] not in (0xC1, 0xD1):
        raise unexpected("map", buffer, at)
    return read(buffer, at, 0)  # type: ignore[return-value]


def _map_reader(keys: str, *kinds: type) -> Read:
    """Returns a reader for a map whose keys all have exactly one of these classes, and no subclass."""

    def read_map(buffer: bytes, at: int) -> tuple[dict[Any, Any], int]:
        entries, after = _read_map(buffer, at)
        for key in entries:
            if type(key) not in kinds:
                raise DecodeError(f"expected a map with {keys} as keys, got the key {shown(key)}", at)
        return entries, after

    return read_map


def _map_writer(write_key: Write) -> Write:
    return lambda out, value: write_entries(out, value, write_key)


def _write_name(out: bytearray, key: str) -> None:
    """Write a symbol, or a string if the text cannot be a symbol."""
    if key.isascii():
        write_symbol(out, key)
    else:
        write_string(out, key)


def _write_annotation_key(out: bytearray, key: object) -> None:
    if isinstance(key, str):
        _write_name(out, key)
    else:
        write_ulong(out, key)  # type: ignore[arg-type]


def write_entries(out: bytearray, entries: Mapping[Any, Any], write_key: Write) -> None:
    """Append a map whose keys are all of one type, whatever their class."""
    content = bytearray()
    for key, value in entries.items():
        write_key(content, key)
        encode_into(content, value, 1)
    write_map(out, len(entries), content)


def _read_message_id(buffer: bytes, at: int) -> tuple[Any, int]:
    if buffer[at] not in (0xA1, 0xB1, 0x98, 0x53, 0x80, 0x44, 0xA0, 0xB0):
        raise unexpected("message id (string, uuid, ulong or binary)", buffer, at)
    return read(buffer, at, 0)


def _write_message_id(out: bytearray, value: object) -> None:
    if isinstance(value, str):
        write_string(out, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        write_ulong(out, value)
    elif isinstance(value, (bytes, uuid.UUID)):
        encode_into(out, value)
    else:
        raise EncodeError(f"a message id must be a str, UUID, int or bytes, not {shown(value)}")


BOOLEAN: Final = Kind("boolean", _read_boolean, WRITERS[bool])
UBYTE: Final = Kind("ubyte", _read_ubyte, WRITERS[UByte])
USHORT: Final = Kind("ushort", _read_ushort, WRITERS[UShort])
UINT: Final = Kind("uint", _read_uint, write_uint)
ULONG: Final = Kind("ulong", _read_ulong, write_ulong)
TIMESTAMP: Final = Kind("timestamp", _read_timestamp, WRITERS[Timestamp])
BINARY: Final = Kind("binary", _read_binary, write_binary)
STRING: Final = Kind("string", _read_string, write_string)
SYMBOL: Final = Kind("symbol", _read_symbol, write_symbol)
LABEL: Final = Kind("symbol", _read_label, write_symbol)
"""A symbol; a string is accepted too, as some libraries send it."""

SYMBOLS: Final = Kind("symbols", _read_symbols, _write_symbols)
"""For a field that may be multiple: a tuple of symbols, also read from one symbol, and always written as an array."""

SYMBOL_MAP: Final = Kind("map", _map_reader("symbols", Symbol, str), _map_writer(_write_name))
"""String keys are accepted too, as peers send them; a plain `str` key is written as a symbol if it can be one."""

ANNOTATIONS: Final = Kind(
    "annotations", _map_reader("symbols or ulongs", Symbol, str, ULong), _map_writer(_write_annotation_key)
)
"""Like SYMBOL_MAP, but ulongs may be keys too."""

STRING_MAP: Final = Kind("map", _map_reader("strings", str), _map_writer(write_string))
DELIVERY_MAP: Final = Kind("map", _map_reader("delivery tags", bytes), _map_writer(write_binary))
MESSAGE_ID: Final = Kind("message id", _read_message_id, _write_message_id)
"""Keeps its type: str, UUID, ULong or bytes. Any int is written as a ulong."""
