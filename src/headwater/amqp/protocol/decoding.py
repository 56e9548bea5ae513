"""Bytes -> AMQP values (part 1, section 1.6). Import it through `codec`.

Any bytes result in a value or a `DecodeError`, in time and memory linear in the buffer. The readers check no bounds:
reading past the end raises IndexError or struct.error, or leaves a position past it, which callers detect. Positions
only grow, so no byte is read twice; an array, whose elements may take no bytes, has its count checked first.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Final

from ...core.message.values import (
    ARRAY_DESCRIPTORS_MAX,
    DEPTH_MAX,
    U32,
    U32_U32,
    WEAK_KEYS_MAX,
    WIDTHS,
    DecodeError,
    check_array_count,
)
from .types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

Read = tuple[object, int]
Reader = Callable[[bytes, int, int], Read]
"""(buffer, position after the constructor, depth) -> value and the position after it."""


def decode(buffer: bytes, at: int, end: int, depth: int = 0) -> Read:
    """The value that starts at `at`, and the position after it, which is at most `end`; `end` lies in the buffer.

    `depth` is the number of values that enclose this one. Raises DecodeError: the bytes are invalid or truncated, the
    value is nested too deeply, a map has a duplicate key or a key that is a list, map or array, or an array has more
    elements of zero width than ZERO_WIDTH_PER_BYTE_MAX allows."""
    try:
        value, after = READERS[buffer[at]](buffer, at + 1, depth)
    except (IndexError, struct.error):
        raise DecodeError("the value is cut short", at) from None
    if after > end:
        raise DecodeError("the value is cut short", at)
    return value, after


def read(buffer: bytes, at: int, depth: int) -> Read:
    """Like `decode`, but without bounds checks: for callers that check as this module's readers do."""
    return READERS[buffer[at]](buffer, at + 1, depth)


U16: Final = struct.Struct(">H")
I16: Final = struct.Struct(">h")
I32: Final = struct.Struct(">i")
U64: Final = struct.Struct(">Q")
I64: Final = struct.Struct(">q")
F32: Final = struct.Struct(">f")
F64: Final = struct.Struct(">d")


def _unknown(buffer: bytes, at: int, depth: int) -> Read:
    raise DecodeError(f"no type has the constructor 0x{buffer[at - 1]:02x}", at - 1)


def _boolean(buffer: bytes, at: int, depth: int) -> Read:
    if buffer[at] > 1:
        raise DecodeError(f"a boolean must be 0 or 1, not {buffer[at]}", at)
    return buffer[at] == 1, at + 1


def _char(buffer: bytes, at: int, depth: int) -> Read:
    point: int = U32.unpack_from(buffer, at)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"0x{point:x} is not a Unicode character", at)
    return Char(chr(point)), at + 4


def _uuid(buffer: bytes, at: int, depth: int) -> Read:
    stop = at + 16
    if stop > len(buffer):
        raise DecodeError("the value is cut short", at)
    return uuid.UUID(bytes=buffer[at:stop]), stop


def _binary8(buffer: bytes, at: int, depth: int) -> Read:
    stop = at + 1 + buffer[at]
    return buffer[at + 1 : stop], stop


def _binary32(buffer: bytes, at: int, depth: int) -> Read:
    stop: int = at + 4 + U32.unpack_from(buffer, at)[0]
    return buffer[at + 4 : stop], stop


def _string8(buffer: bytes, at: int, depth: int) -> Read:
    stop = at + 1 + buffer[at]
    try:
        return buffer[at + 1 : stop].decode(), stop
    except UnicodeDecodeError:
        raise DecodeError("a string is not UTF-8", at) from None


def _string32(buffer: bytes, at: int, depth: int) -> Read:
    stop: int = at + 4 + U32.unpack_from(buffer, at)[0]
    try:
        return buffer[at + 4 : stop].decode(), stop
    except UnicodeDecodeError:
        raise DecodeError("a string is not UTF-8", at) from None


def _symbol8(buffer: bytes, at: int, depth: int) -> Read:
    stop = at + 1 + buffer[at]
    try:
        return Symbol(buffer[at + 1 : stop], "ascii"), stop
    except UnicodeDecodeError:
        raise DecodeError("a symbol is not ASCII", at) from None


def _symbol32(buffer: bytes, at: int, depth: int) -> Read:
    stop: int = at + 4 + U32.unpack_from(buffer, at)[0]
    try:
        return Symbol(buffer[at + 4 : stop], "ascii"), stop
    except UnicodeDecodeError:
        raise DecodeError("a symbol is not ASCII", at) from None


def _list32(buffer: bytes, at: int, depth: int) -> Read:
    size, count = U32_U32.unpack_from(buffer, at)
    return _items(buffer, at + 8, count, at + 4 + size, depth)


def _items(buffer: bytes, at: int, count: int, stop: int, depth: int) -> Read:
    if depth >= DEPTH_MAX:
        raise DecodeError(f"more than {DEPTH_MAX} levels of nested values", at)
    start = at
    items: list[object] = []
    for _ in range(count):
        item, at = READERS[buffer[at]](buffer, at + 1, depth + 1)
        items.append(item)
    if at != stop:
        raise DecodeError("a list's size does not match its elements", start)
    return items, at


def _map32(buffer: bytes, at: int, depth: int) -> Read:
    size, count = U32_U32.unpack_from(buffer, at)
    return _entries(buffer, at + 8, count, at + 4 + size, depth)


def _entries(buffer: bytes, at: int, count: int, stop: int, depth: int) -> Read:
    if depth >= DEPTH_MAX:
        raise DecodeError(f"more than {DEPTH_MAX} levels of nested values", at)
    if count & 1:
        raise DecodeError(f"a map has a key without a value: {count} elements", at)
    start = at
    entries: dict[object, object] = {}
    weak_keys = 0
    for _ in range(count >> 1):
        code = buffer[at]
        if code == 0x98 or code == 0x00:
            weak_keys += 1
            if weak_keys > WEAK_KEYS_MAX:
                raise DecodeError(f"more than {WEAK_KEYS_MAX} keys of a map are uuids or described", at)
        key, after = READERS[code](buffer, at + 1, depth + 1)
        value, after = READERS[buffer[after]](buffer, after + 1, depth + 1)
        try:
            entries[key] = value
        except TypeError:
            raise DecodeError("a map's key is a list, map or array, or a described one", at) from None
        at = after
    if at != stop:
        raise DecodeError("a map's size does not match its elements", start)
    if len(entries) != count >> 1:
        raise DecodeError("a map contains a key twice", start)
    return entries, at


def _array32(buffer: bytes, at: int, depth: int) -> Read:
    size, count = U32_U32.unpack_from(buffer, at)
    return _elements(buffer, at + 8, count, at + 4 + size, depth)


def _elements(buffer: bytes, at: int, count: int, stop: int, depth: int) -> Read:
    if depth >= DEPTH_MAX:
        raise DecodeError(f"more than {DEPTH_MAX} levels of nested values", at)
    if stop > len(buffer):
        raise DecodeError("the value is cut short", at)
    if count == 0 and at == stop:
        return Array(), at  # an element without a constructor violates the standard, but is harmless
    start = at
    descriptors: list[object] = []
    while buffer[at] == 0x00:
        if len(descriptors) == ARRAY_DESCRIPTORS_MAX:
            raise DecodeError(f"more than {ARRAY_DESCRIPTORS_MAX} descriptors of an array are nested", at)
        descriptor, at = READERS[buffer[at + 1]](buffer, at + 2, depth + 1)
        descriptors.append(descriptor)
    code = buffer[at]
    at += 1
    check_array_count(code, count, at, start, stop)
    width = WIDTHS[code]
    reader = READERS[code]
    array = Array()
    for _ in range(count):
        element, at = reader(buffer, at, depth + 1)
        for descriptor in reversed(descriptors):
            element = Described(descriptor, element)
        array.append(element)
        if width == 0 and code != 0x45:
            array *= count  # the elements are equal and immutable
            break
    if at != stop:
        raise DecodeError("an array's size does not match its elements", start)
    constructor: int | Described = code
    for descriptor in reversed(descriptors):
        constructor = Described(descriptor, constructor)
    array.constructor = constructor
    return array, at


def _described(buffer: bytes, at: int, depth: int) -> Read:
    if depth >= DEPTH_MAX:
        raise DecodeError(f"more than {DEPTH_MAX} levels of nested values", at)
    descriptor, at = READERS[buffer[at]](buffer, at + 1, depth + 1)
    value, at = READERS[buffer[at]](buffer, at + 1, depth + 1)
    return Described(descriptor, value), at


_READER_OF: Final[dict[int, Reader]] = {
    0x00: _described,
    0x40: lambda buffer, at, depth: (None, at),
    0x41: lambda buffer, at, depth: (True, at),
    0x42: lambda buffer, at, depth: (False, at),
    0x43: lambda buffer, at, depth: (UInt(0), at),
    0x44: lambda buffer, at, depth: (ULong(0), at),
    0x45: lambda buffer, at, depth: ([], at),
    0x50: lambda buffer, at, depth: (UByte(buffer[at]), at + 1),
    0x51: lambda buffer, at, depth: (Byte(buffer[at] - ((buffer[at] & 0x80) << 1)), at + 1),
    0x52: lambda buffer, at, depth: (UInt(buffer[at]), at + 1),
    0x53: lambda buffer, at, depth: (ULong(buffer[at]), at + 1),
    0x54: lambda buffer, at, depth: (Int(buffer[at] - ((buffer[at] & 0x80) << 1)), at + 1),
    0x55: lambda buffer, at, depth: (Long(buffer[at] - ((buffer[at] & 0x80) << 1)), at + 1),
    0x56: _boolean,
    0x60: lambda buffer, at, depth: (UShort(U16.unpack_from(buffer, at)[0]), at + 2),
    0x61: lambda buffer, at, depth: (Short(I16.unpack_from(buffer, at)[0]), at + 2),
    0x70: lambda buffer, at, depth: (UInt(U32.unpack_from(buffer, at)[0]), at + 4),
    0x71: lambda buffer, at, depth: (Int(I32.unpack_from(buffer, at)[0]), at + 4),
    0x72: lambda buffer, at, depth: (Float(F32.unpack_from(buffer, at)[0]), at + 4),
    0x73: _char,
    0x74: lambda buffer, at, depth: (Decimal32(buffer[at : at + 4]), at + 4),
    0x80: lambda buffer, at, depth: (ULong(U64.unpack_from(buffer, at)[0]), at + 8),
    0x81: lambda buffer, at, depth: (Long(I64.unpack_from(buffer, at)[0]), at + 8),
    0x82: lambda buffer, at, depth: (F64.unpack_from(buffer, at)[0], at + 8),
    0x83: lambda buffer, at, depth: (Timestamp(I64.unpack_from(buffer, at)[0]), at + 8),
    0x84: lambda buffer, at, depth: (Decimal64(buffer[at : at + 8]), at + 8),
    0x94: lambda buffer, at, depth: (Decimal128(buffer[at : at + 16]), at + 16),
    0x98: _uuid,
    0xA0: _binary8,
    0xA1: _string8,
    0xA3: _symbol8,
    0xB0: _binary32,
    0xB1: _string32,
    0xB3: _symbol32,
    0xC0: lambda buffer, at, depth: _items(buffer, at + 2, buffer[at + 1], at + 1 + buffer[at], depth),
    0xC1: lambda buffer, at, depth: _entries(buffer, at + 2, buffer[at + 1], at + 1 + buffer[at], depth),
    0xD0: _list32,
    0xD1: _map32,
    0xE0: lambda buffer, at, depth: _elements(buffer, at + 2, buffer[at + 1], at + 1 + buffer[at], depth),
    0xF0: _array32,
}
READERS: Final[list[Reader]] = [_READER_OF.get(code, _unknown) for code in range(256)]
"""By the constructor's byte."""
