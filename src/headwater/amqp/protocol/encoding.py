"""AMQP values -> bytes (part 1, section 1.6), each in its shortest encoding. Import it through `codec`."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from reprlib import repr as shown
from typing import Any, Final, Protocol

from ...core.message.values import DEPTH_MAX
from . import types


class Writer(Protocol):
    """Appends a value to the output, with its constructor."""

    def __call__(self, out: bytearray, value: Any, depth: int = 0, /) -> None: ...


CODE_BYTE: Final = struct.Struct(">Bb")
CODE_UBYTE: Final = struct.Struct(">BB")
CODE_SHORT: Final = struct.Struct(">Bh")
CODE_USHORT: Final = struct.Struct(">BH")
CODE_INT: Final = struct.Struct(">Bi")
CODE_UINT: Final = struct.Struct(">BI")
CODE_LONG: Final = struct.Struct(">Bq")
CODE_ULONG: Final = struct.Struct(">BQ")
CODE_FLOAT: Final = struct.Struct(">Bf")
CODE_DOUBLE: Final = struct.Struct(">Bd")
CODE_SIZE_COUNT8: Final = struct.Struct(">BBB")
CODE_SIZE_COUNT32: Final = struct.Struct(">BII")


class EncodeError(ValueError):
    """The value has no AMQP encoding, or is out of its type's range."""


def encode(value: object) -> bytes:
    """The value's encoding. Raises EncodeError."""
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: object, depth: int = 0) -> None:
    """Append the value's encoding to `out`. Raises EncodeError, which may leave part of a value at the end of `out`.

    A plain `int` becomes a long, `float` a double, `str` a string, a bytes-like object a binary, and a tuple or list a
    list. A subclass is encoded like its base class."""
    try:
        writer_of(value)(out, value, depth)
    except (struct.error, TypeError, OverflowError) as wrong:
        raise EncodeError(f"{type(value).__name__} {shown(value)} is out of range: {wrong}") from None


def writer_of(value: object) -> Writer:
    """The writer for a value of this type. Raises EncodeError."""
    writer = WRITERS.get(type(value))
    if writer is not None:
        return writer
    for ancestor in type(value).__mro__:
        if ancestor in WRITERS:
            return WRITERS[ancestor]
    raise EncodeError(f"AMQP has no type for the {type(value).__name__} {shown(value)}")


def check_depth(depth: int) -> None:
    if depth >= DEPTH_MAX:
        raise EncodeError(f"more than {DEPTH_MAX} levels of nested values")


def _null(out: bytearray, value: object, depth: int = 0) -> None:
    out.append(0x40)


def _boolean(out: bytearray, value: bool, depth: int = 0) -> None:
    out.append(0x41 if value else 0x42)


def _packed(code: int, form: struct.Struct) -> Writer:
    """Make the writer for numbers with a fixed-width encoding; `form` also packs the constructor."""

    def write(out: bytearray, value: Any, depth: int = 0) -> None:
        out += form.pack(code, value)

    return write


def _decimal(code: int, length: int) -> Writer:
    def write(out: bytearray, value: bytes, depth: int = 0) -> None:
        out.append(code)
        out += of_length(value, length)

    return write


def write_uint(out: bytearray, value: int, depth: int = 0) -> None:
    """Append a uint, whatever the int's class."""
    if 0 < value < 256:
        out += CODE_UBYTE.pack(0x52, value)
    elif value == 0:
        out.append(0x43)
    else:
        out += CODE_UINT.pack(0x70, value)


def write_ulong(out: bytearray, value: int, depth: int = 0) -> None:
    """Append a ulong, whatever the int's class."""
    if 0 < value < 256:
        out += CODE_UBYTE.pack(0x53, value)
    elif value == 0:
        out.append(0x44)
    else:
        out += CODE_ULONG.pack(0x80, value)


def _int(out: bytearray, value: int, depth: int = 0) -> None:
    if -128 <= value < 128:
        out += CODE_BYTE.pack(0x54, value)
    else:
        out += CODE_INT.pack(0x71, value)


def _long(out: bytearray, value: int, depth: int = 0) -> None:
    if -128 <= value < 128:
        out += CODE_BYTE.pack(0x55, value)
    else:
        out += CODE_LONG.pack(0x81, value)


def _char(out: bytearray, value: str, depth: int = 0) -> None:
    out += CODE_UINT.pack(0x73, code_point(value))


def _uuid(out: bytearray, value: uuid.UUID, depth: int = 0) -> None:
    out.append(0x98)
    out += value.bytes


def write_binary(out: bytearray, value: bytes | bytearray | memoryview, depth: int = 0) -> None:
    """Append a binary."""
    _write_sized(out, 0xA0, octets(value))


def write_string(out: bytearray, value: str, depth: int = 0) -> None:
    """Append a string, whatever the str's class."""
    _write_sized(out, 0xA1, utf8(value))


def write_symbol(out: bytearray, value: str, depth: int = 0) -> None:
    """Append a symbol, whatever the str's class."""
    _write_sized(out, 0xA3, ascii_of(value))


def _write_sized(out: bytearray, code: int, content: bytes) -> None:
    if len(content) < 256:
        out.append(code)
        out.append(len(content))
    else:
        out += CODE_UINT.pack(code + 0x10, len(content))
    out += content


def _list(out: bytearray, value: Sequence[object], depth: int = 0) -> None:
    write_list(out, len(value), list_content(value, depth))


def write_list(out: bytearray, count: int, content: bytearray) -> None:
    """Append a list of encoded elements."""
    if count == 0:
        out.append(0x45)
    else:
        write_compound(out, 0xC0, count, content)


def _map(out: bytearray, value: dict[object, object], depth: int = 0) -> None:
    write_map(out, len(value), map_content(value, depth))


def write_map(out: bytearray, count: int, content: bytearray) -> None:
    """Append a map of encoded keys and values; `count` counts both."""
    write_compound(out, 0xC1, 2 * count, content)


def write_compound(out: bytearray, code: int, count: int, content: bytearray) -> None:
    if len(content) < 255 and count < 256:
        out += CODE_SIZE_COUNT8.pack(code, len(content) + 1, count)
    else:
        out += CODE_SIZE_COUNT32.pack(code + 0x10, len(content) + 4, count)
    out += content


def list_content(value: Sequence[object], depth: int) -> bytearray:
    check_depth(depth)
    content = bytearray()
    for item in value:
        encode_into(content, item, depth + 1)
    return content


def map_content(value: dict[object, object], depth: int) -> bytearray:
    check_depth(depth)
    content = bytearray()
    for key, item in value.items():
        encode_into(content, key, depth + 1)
        encode_into(content, item, depth + 1)
    return content


def _described(out: bytearray, value: types.Described, depth: int = 0) -> None:
    check_depth(depth)
    out.append(0x00)
    encode_into(out, value.descriptor, depth + 1)
    encode_into(out, value.value, depth + 1)


def octets(value: bytes | bytearray | memoryview) -> bytes:
    return value if type(value) is bytes else memoryview(value).tobytes()


def utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"{shown(value)} contains half of a surrogate pair, which UTF-8 cannot encode") from None


def ascii_of(value: str) -> bytes:
    try:
        return value.encode("ascii")
    except UnicodeEncodeError:
        raise EncodeError(f"the symbol {shown(value)} is not ASCII") from None


def code_point(value: str) -> int:
    if len(value) != 1 or 0xD800 <= ord(value) <= 0xDFFF:
        raise EncodeError(f"a char must be one Unicode character, not {shown(value)}")
    return ord(value)


def of_length(value: bytes, length: int) -> bytes:
    if len(value) != length:
        raise EncodeError(f"{type(value).__name__} must have {length} bytes, not {len(value)}")
    return value


WRITERS: Final[dict[type, Writer]] = {
    type(None): _null,
    bool: _boolean,
    types.UByte: _packed(0x50, CODE_UBYTE),
    types.UShort: _packed(0x60, CODE_USHORT),
    types.UInt: write_uint,
    types.ULong: write_ulong,
    types.Byte: _packed(0x51, CODE_BYTE),
    types.Short: _packed(0x61, CODE_SHORT),
    types.Int: _int,
    types.Long: _long,
    int: _long,
    types.Float: _packed(0x72, CODE_FLOAT),
    float: _packed(0x82, CODE_DOUBLE),
    types.Timestamp: _packed(0x83, CODE_LONG),
    types.Char: _char,
    uuid.UUID: _uuid,
    types.Decimal32: _decimal(0x74, 4),
    types.Decimal64: _decimal(0x84, 8),
    types.Decimal128: _decimal(0x94, 16),
    bytes: write_binary,
    bytearray: write_binary,
    memoryview: write_binary,
    types.Symbol: write_symbol,
    str: write_string,
    list: _list,
    tuple: _list,
    dict: _map,
    types.Described: _described,
}
"""By exact type; `arrays` adds its own types."""
