"""Arrays -> bytes (part 1, section 1.6.24): one constructor, then the elements without constructors. See `codec`."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from operator import attrgetter
from reprlib import repr as shown
from typing import Any, Final

from ...core.message.values import U32
from . import types
from .decoding import F32, F64, I16, I32, I64, U16, U64
from .encoding import (
    WRITERS,
    EncodeError,
    Writer,
    ascii_of,
    check_depth,
    code_point,
    encode_into,
    list_content,
    map_content,
    octets,
    of_length,
    utf8,
    write_compound,
    writer_of,
)
from .types import Array, Described, Symbol

ElementWriter = Callable[[bytearray, Any, int], None]
"""`(output, value, depth)`: append the value without its constructor."""


def _array(out: bytearray, value: Array, depth: int = 0) -> None:
    content = _array_content(value, depth)
    write_compound(out, 0xE0, len(value), content)


def _array_content(array: Array, depth: int) -> bytearray:
    """The constructor and the elements."""
    check_depth(depth)
    content = bytearray()
    constructor: Any = _constructor_of(array) if array.constructor is None else array.constructor
    elements: list[Any] = array
    while isinstance(constructor, Described):
        content.append(0x00)
        encode_into(content, constructor.descriptor, depth + 1)
        elements = [_undescribed(element, constructor.descriptor) for element in elements]
        constructor = constructor.value
    if not isinstance(constructor, int) or constructor not in _ELEMENT_WRITERS:
        raise EncodeError(f"no type has the constructor {shown(constructor)}")
    content.append(constructor)
    accepted, write = _ELEMENT_WRITERS[constructor]
    for element in elements:
        if not isinstance(element, accepted) or (isinstance(element, bool) and accepted is int):
            raise EncodeError(f"an array of constructor 0x{constructor:02x} contains the element {shown(element)}")
        write(content, element, depth + 1)
    return content


def _undescribed(element: object, descriptor: object) -> object:
    if not isinstance(element, Described) or element.descriptor != descriptor:
        raise EncodeError(f"an array of elements described by {shown(descriptor)} contains {shown(element)}")
    return element.value


def _constructor_of(elements: list[Any]) -> int | Described:
    """The constructor that fits all elements, which must be of one type."""
    if not elements:
        return 0x40
    first = elements[0]
    if isinstance(first, Described):
        values = [_undescribed(element, first.descriptor) for element in elements]
        return Described(first.descriptor, _constructor_of(values))
    code = _ARRAY_CODES.get(writer_of(first))
    if code is None:
        raise EncodeError(f"AMQP does not support arrays of {shown(first)}")
    is_long = False
    for element in elements:
        if writer_of(element) is not writer_of(first):
            raise EncodeError(f"an array contains {shown(first)} and {shown(element)}, which have different types")
        if code in (0xA0, 0xA1, 0xA3):
            is_long = is_long or len(utf8(element) if isinstance(element, str) else element) > 255
    return code + 0x10 if is_long else code


def _nothing_but(only: object) -> ElementWriter:
    """Used for elements of zero width, which their constructor fully describes."""

    def write(out: bytearray, value: object, depth: int) -> None:
        if value != only:
            raise EncodeError(f"an array that can only contain {only!r} contains {shown(value)}")

    return write


def _packed(form: struct.Struct) -> ElementWriter:
    def write(out: bytearray, value: object, depth: int) -> None:
        out += form.pack(value)

    return write


def _plain(content_of: Callable[..., bytes]) -> ElementWriter:
    def write(out: bytearray, value: object, depth: int) -> None:
        out += content_of(value)

    return write


def _sized8(content_of: Callable[..., bytes]) -> ElementWriter:
    def write(out: bytearray, value: object, depth: int) -> None:
        content = content_of(value)
        if len(content) > 255:
            raise EncodeError(f"an array of elements of at most 255 bytes contains {shown(value)}")
        out.append(len(content))
        out += content

    return write


def _sized32(content_of: Callable[..., bytes]) -> ElementWriter:
    def write(out: bytearray, value: object, depth: int) -> None:
        content = content_of(value)
        out += U32.pack(len(content))
        out += content

    return write


def _compound8(content_of: Callable[..., bytearray], factor: int = 1) -> ElementWriter:
    def write(out: bytearray, value: Any, depth: int) -> None:
        content = content_of(value, depth)
        if len(content) > 254 or factor * len(value) > 255:
            raise EncodeError(f"an array of elements of at most 255 bytes contains {shown(value)}")
        out.append(len(content) + 1)
        out.append(factor * len(value))
        out += content

    return write


def _compound32(content_of: Callable[..., bytearray], factor: int = 1) -> ElementWriter:
    def write(out: bytearray, value: Any, depth: int) -> None:
        content = content_of(value, depth)
        out += U32.pack(len(content) + 4)
        out += U32.pack(factor * len(value))
        out += content

    return write


WRITERS[Array] = _array

_ARRAY_CODES: Final[dict[Writer, int]] = {
    WRITERS[type(None)]: 0x40,
    WRITERS[bool]: 0x56,
    WRITERS[types.UByte]: 0x50,
    WRITERS[types.UShort]: 0x60,
    WRITERS[types.UInt]: 0x70,
    WRITERS[types.ULong]: 0x80,
    WRITERS[types.Byte]: 0x51,
    WRITERS[types.Short]: 0x61,
    WRITERS[types.Int]: 0x71,
    WRITERS[types.Long]: 0x81,
    WRITERS[types.Float]: 0x72,
    WRITERS[float]: 0x82,
    WRITERS[types.Timestamp]: 0x83,
    WRITERS[types.Char]: 0x73,
    WRITERS[uuid.UUID]: 0x98,
    WRITERS[types.Decimal32]: 0x74,
    WRITERS[types.Decimal64]: 0x84,
    WRITERS[types.Decimal128]: 0x94,
    WRITERS[bytes]: 0xA0,
    WRITERS[Symbol]: 0xA3,
    WRITERS[str]: 0xA1,
    WRITERS[list]: 0xD0,
    WRITERS[dict]: 0xD1,
    WRITERS[Array]: 0xF0,
}
"""The constructor for an array of values that this function writes. Strings and binaries may need the longer one."""

_ELEMENT_WRITERS: Final[dict[int, tuple[type | tuple[type, ...], ElementWriter]]] = {
    0x40: (type(None), _nothing_but(None)),
    0x41: (bool, _nothing_but(True)),
    0x42: (bool, _nothing_but(False)),
    0x43: (int, _nothing_but(0)),
    0x44: (int, _nothing_but(0)),
    0x45: (list, _nothing_but([])),
    0x50: (int, _packed(struct.Struct(">B"))),
    0x51: (int, _packed(struct.Struct(">b"))),
    0x52: (int, _packed(struct.Struct(">B"))),
    0x53: (int, _packed(struct.Struct(">B"))),
    0x54: (int, _packed(struct.Struct(">b"))),
    0x55: (int, _packed(struct.Struct(">b"))),
    0x56: (bool, _packed(struct.Struct(">?"))),
    0x60: (int, _packed(U16)),
    0x61: (int, _packed(I16)),
    0x70: (int, _packed(U32)),
    0x71: (int, _packed(I32)),
    0x72: (float, _packed(F32)),
    0x73: (str, _plain(lambda value: U32.pack(code_point(value)))),
    0x74: (bytes, _plain(lambda value: of_length(value, 4))),
    0x80: (int, _packed(U64)),
    0x81: (int, _packed(I64)),
    0x82: (float, _packed(F64)),
    0x83: (int, _packed(I64)),
    0x84: (bytes, _plain(lambda value: of_length(value, 8))),
    0x94: (bytes, _plain(lambda value: of_length(value, 16))),
    0x98: (uuid.UUID, _plain(attrgetter("bytes"))),
    0xA0: ((bytes, bytearray, memoryview), _sized8(octets)),
    0xA1: (str, _sized8(utf8)),
    0xA3: (str, _sized8(ascii_of)),
    0xB0: ((bytes, bytearray, memoryview), _sized32(octets)),
    0xB1: (str, _sized32(utf8)),
    0xB3: (str, _sized32(ascii_of)),
    0xC0: ((list, tuple), _compound8(list_content)),
    0xC1: (dict, _compound8(map_content, 2)),
    0xD0: ((list, tuple), _compound32(list_content)),
    0xD1: (dict, _compound32(map_content, 2)),
    0xE0: (Array, _compound8(_array_content)),
    0xF0: (Array, _compound32(_array_content)),
}
"""The Python types that the elements may have, and their writer, by the array's constructor."""
