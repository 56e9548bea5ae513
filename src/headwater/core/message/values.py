"""AMQP values (part 1, section 1.6) in bytes: skipped, counted and checked, without creating objects.

`check_value` accepts and refuses what the decoder of `amqp.protocol` does; it also refuses forms that some client
library cannot decode (`Uncommon`). Like the decoder, it checks no bounds within a value: reading past the end raises
IndexError or struct.error, or leaves a position past it, which the caller detects. Positions only grow, so no byte is
read twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

DEPTH_MAX: Final = 32
"""The maximum nesting depth of compound, array and described values."""
DESCRIBED_MAX: Final = 1024
"""The maximum number of nested descriptors at the beginning of a skipped value."""

ARRAY_DESCRIPTORS_MAX: Final = 2
"""The maximum nesting depth of descriptors in an array's constructor: each costs an object per element."""

ZERO_WIDTH_PER_BYTE_MAX: Final = 8
"""How many elements without bytes (null, true, false, 0) an array may have for each of its own bytes.

The same limit for empty lists, which cost an object each.
"""

WEAK_KEYS_MAX: Final = 64
"""The maximum number of map keys that are uuids (or described): a peer can deliberately make these collide in a hash
table."""

SIZE8: Final = -1
SIZE32: Final = -2
DESCRIBED: Final = -3
UNKNOWN: Final = -4
_BY_WIDTH: Final = {
    0: (0x40, 0x41, 0x42, 0x43, 0x44, 0x45),
    1: (0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56),
    2: (0x60, 0x61),
    4: (0x70, 0x71, 0x72, 0x73, 0x74),
    8: (0x80, 0x81, 0x82, 0x83, 0x84),
    16: (0x94, 0x98),
    SIZE8: (0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0),
    SIZE32: (0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0),
    DESCRIBED: (0x00,),
}
_WIDTH_OF: Final = {code: width for width, codes in _BY_WIDTH.items() for code in codes}
WIDTHS: Final[list[int]] = [_WIDTH_OF.get(code, UNKNOWN) for code in range(256)]
"""By the constructor's byte: the number of bytes of the value, or the encoding of its length."""

NUMBERS: Final = frozenset(code for code, width in _WIDTH_OF.items() if width > 0) - {0x56, 0x73}
"""Constructors of fixed width for which any bytes are valid: all but boolean and char."""
SYMBOLS: Final = (0xA3, 0xB3)
ELEMENTS: Final = NUMBERS - {0x74, 0x84, 0x94} | {0x56, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3, 0xC1, 0xD1}
"""Constructors of array elements that every client library decodes."""
_TYPE_NAMES: Final = {
    code: name
    for name, codes in {
        "described value": (0x00,), "null": (0x40,), "boolean": (0x41, 0x42, 0x56), "ubyte": (0x50,), "ushort": (0x60,),
        "uint": (0x43, 0x52, 0x70), "ulong": (0x44, 0x53, 0x80), "byte": (0x51,), "short": (0x61,), "int": (0x54, 0x71),
        "long": (0x55, 0x81), "float": (0x72,), "double": (0x82,), "decimal32": (0x74,), "decimal64": (0x84,),
        "decimal128": (0x94,), "char": (0x73,), "timestamp": (0x83,), "uuid": (0x98,), "binary": (0xA0, 0xB0),
        "string": (0xA1, 0xB1), "symbol": (0xA3, 0xB3), "list": (0x45, 0xC0, 0xD0), "map": (0xC1, 0xD1),
        "array": (0xE0, 0xF0),
    }.items()
    for code in codes
}  # fmt: skip
NO_KEYS: Final = frozenset((0x00, 0x45, 0xA0, 0xB0, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0))
"""Constructors that some client library cannot use as the key of a map: described, binary, list, map and array."""
NO_DESCRIPTORS: Final = frozenset(
    (b"__defineGetter__", b"__defineSetter__", b"__lookupGetter__", b"__lookupSetter__", b"__proto__", b"constructor",
     b"hasOwnProperty", b"isPrototypeOf", b"propertyIsEnumerable", b"toLocaleString", b"toString", b"valueOf")
)  # fmt: skip
"""Properties of every JavaScript object: rhea takes a descriptor of that name for an AMQP type, and fails."""
_ODD_KEYS: Final = NO_KEYS | {0x98}
_COMPOUND: Final = (0xC0, 0xC1, 0xD0, 0xD1)
_ARRAYS: Final = (0xE0, 0xF0)
_ANY_BYTES: Final = [width if width == 0 or code in NUMBERS else -1 for code, width in enumerate(WIDTHS)]
"""By the constructor's byte: the number of bytes that follow if any content is valid; -1 if they must be checked."""

U32: Final = struct.Struct(">I")
U32_U32: Final = struct.Struct(">II")
_U64: Final = struct.Struct(">Q")


class DecodeError(ValueError):
    """The bytes are not an AMQP value, or not the expected one. `at` is the position in the buffer."""

    def __init__(self, problem: str, at: int) -> None:
        self.problem = problem
        self.at = at
        super().__init__(f"{problem} (at byte {at})")


def type_name(code: int) -> str:
    """The standard's name for the type of a constructor's byte."""
    return f"{_TYPE_NAMES.get(code, 'no type')} (0x{code:02x})"


class Uncommon(DecodeError):
    """Valid AMQP that some client libraries cannot decode, although another form means the same."""


def skip(buffer: bytes, at: int, end: int) -> int:
    """The position after the value that starts at `at`, at most `end`; creates nothing and does not check the content.

    Raises DecodeError for an unknown constructor, endlessly nested described values or truncated data.
    """
    start, pending, described = at, 1, 0
    try:
        while pending:
            width = WIDTHS[buffer[at]]
            if width == SIZE8:
                at += 2 + buffer[at + 1]
            elif width == SIZE32:
                size: int = U32.unpack_from(buffer, at + 1)[0]
                at += 5 + size
            elif width >= 0:
                at += 1 + width
            elif width == DESCRIBED:
                at += 1
                pending += 2  # the descriptor and the value
                described += 1
                if described > DESCRIBED_MAX:
                    raise DecodeError(f"more than {DESCRIBED_MAX} described values in one value", start)
            else:
                raise DecodeError(f"no type has the constructor 0x{buffer[at]:02x}", at)
            pending -= 1
    except (IndexError, struct.error):
        raise DecodeError("the value is cut short", start) from None
    if at > end:
        raise DecodeError("the value is cut short", start)
    return at


def count_values(buffer: bytes, at: int, end: int, limit: int) -> int:
    """The number of values between `at` and `end`, including nested ones; creates nothing.

    Arrays are not entered: an array counts as many values as it declares, or as it has bytes. Malformed values are left
    to `check_value`. Raises DecodeError: more than `limit`.
    """
    start, values = at, 0
    while at < end and values <= limit:
        code = buffer[at]
        width = WIDTHS[code]
        values += 1
        if width >= 0:
            at += 1 + width
        elif code == 0x00 or width == UNKNOWN:
            at += 1
        else:
            head = 1 if width == SIZE8 else 4
            size = int.from_bytes(buffer[at + 1 : at + 1 + head])
            if code in _COMPOUND:
                at += 1 + 2 * head
            else:
                if code in _ARRAYS:
                    values += max(size, int.from_bytes(buffer[at + 1 + head : at + 1 + 2 * head]))
                at += 1 + head + size
    if values > limit:
        raise DecodeError(f"more than {limit} values", start)
    return values


def check_value(buffer: bytes, at: int, end: int) -> int:
    """The position after the value that starts at `at`, which is checked; `end` lies in the buffer.

    Raises DecodeError: the bytes are malformed or truncated, a string is not UTF-8, a symbol not ASCII, the value is
    too deep, a map contains a key twice or one of NO_KEYS, an array has too many elements for its bytes or other than
    ELEMENTS, a value is described by other than a symbol or an ulong, by one of AMQP's own or of NO_DESCRIPTORS, or
    twice.
    """
    try:
        after = check_values(buffer, at, 1, 0)
    except (IndexError, struct.error):
        raise DecodeError("the value is cut short", at) from None
    if after > end:
        raise DecodeError("the value is cut short", at)
    return after


def check_values(buffer: bytes, at: int, count: int, depth: int) -> int:
    """The position after `count` values at nesting depth `depth`; bounds are not checked. Raises DecodeError."""
    for _ in range(count):
        code = buffer[at]
        width = _ANY_BYTES[code]
        if width >= 0:
            at += 1 + width
        elif code == 0xA1:
            stop = at + 2 + buffer[at + 1]
            text = buffer[at + 2 : stop]
            if not text.isascii():
                check_text(text, at)
            at = stop
        else:
            at = _CHECKS[code](buffer, at + 1, depth)
    return at


def check_text(text: bytes, at: int) -> None:
    """Raises DecodeError if it is not UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        raise DecodeError("a string is not UTF-8", at) from None


def _unknown(buffer: bytes, at: int, depth: int) -> int:
    raise DecodeError(f"no type has the constructor 0x{buffer[at - 1]:02x}", at - 1)


def _boolean(buffer: bytes, at: int, depth: int) -> int:
    if buffer[at] > 1:
        raise DecodeError(f"a boolean must be 0 or 1, not {buffer[at]}", at)
    return at + 1


def _char(buffer: bytes, at: int, depth: int) -> int:
    point: int = U32.unpack_from(buffer, at)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"0x{point:x} is not a Unicode character", at)
    return at + 4


def _binary8(buffer: bytes, at: int, depth: int) -> int:
    return at + 1 + buffer[at]


def _binary32(buffer: bytes, at: int, depth: int) -> int:
    return at + 4 + int(U32.unpack_from(buffer, at)[0])


def _string8(buffer: bytes, at: int, depth: int) -> int:
    stop = at + 1 + buffer[at]
    check_text(buffer[at + 1 : stop], at)
    return stop


def _string32(buffer: bytes, at: int, depth: int) -> int:
    stop = _binary32(buffer, at, depth)
    check_text(buffer[at + 4 : stop], at)
    return stop


def _symbol8(buffer: bytes, at: int, depth: int) -> int:
    stop = at + 1 + buffer[at]
    return _ascii(buffer[at + 1 : stop], at, stop)


def _symbol32(buffer: bytes, at: int, depth: int) -> int:
    stop = _binary32(buffer, at, depth)
    return _ascii(buffer[at + 4 : stop], at, stop)


def _ascii(text: bytes, at: int, stop: int) -> int:
    if not text.isascii():
        raise DecodeError("a symbol is not ASCII", at)
    return stop


def _list8(buffer: bytes, at: int, depth: int) -> int:
    return _items(buffer, at + 2, buffer[at + 1], at + 1 + buffer[at], depth)


def _list32(buffer: bytes, at: int, depth: int) -> int:
    size, count = U32_U32.unpack_from(buffer, at)
    return _items(buffer, at + 8, count, at + 4 + size, depth)


def _items(buffer: bytes, at: int, count: int, stop: int, depth: int) -> int:
    _check_depth(at, depth)
    if check_values(buffer, at, count, depth + 1) != stop:
        raise DecodeError("a list's size does not match its elements", at)
    return stop


def _check_depth(at: int, depth: int) -> None:
    if depth >= DEPTH_MAX:
        raise DecodeError(f"more than {DEPTH_MAX} levels of nested values", at)


def map_bounds(buffer: bytes, at: int) -> tuple[int, int, int]:
    """For the map whose constructor is at `at`: where its elements begin, how many there are, and where they end.

    Raises DecodeError if it is not a map, or it has a key without a value. Bounds are not checked.
    """
    code = buffer[at]
    if code == 0xC1:
        stop, count, at = at + 2 + buffer[at + 1], buffer[at + 2], at + 3
    elif code == 0xD1:
        size, count = U32_U32.unpack_from(buffer, at + 1)
        stop, at = at + 5 + size, at + 9
    else:
        raise DecodeError(f"expected a map, got constructor 0x{code:02x}", at)
    _check_pairs(at, count)
    return at, count, stop


def _check_pairs(at: int, count: int) -> None:
    if count & 1:
        raise DecodeError(f"a map has a key without a value: {count} elements", at)


def _map8(buffer: bytes, at: int, depth: int) -> int:
    return _entries(buffer, at + 2, buffer[at + 1], at + 1 + buffer[at], depth)


def _map32(buffer: bytes, at: int, depth: int) -> int:
    size, count = U32_U32.unpack_from(buffer, at)
    return _entries(buffer, at + 8, count, at + 4 + size, depth)


def _entries(buffer: bytes, at: int, count: int, stop: int, depth: int) -> int:
    _check_depth(at, depth)
    _check_pairs(at, count)
    start, weak_keys = at, 0
    keys: set[object] = set()
    for _ in range(count >> 1):
        code = buffer[at]
        if code in _ODD_KEYS:
            if code != 0x98:
                problem = f"a map contains a key of type {type_name(code)}, which not every client can decode"
                raise Uncommon(f"{problem}: use a string, a symbol or a number", at)
            weak_keys += 1
            if weak_keys > WEAK_KEYS_MAX:
                raise DecodeError(f"more than {WEAK_KEYS_MAX} keys of a map are uuids", at)
        after = check_values(buffer, at, 1, depth + 1)
        keys.add(key_of(buffer, at, after))
        at = check_values(buffer, after, 1, depth + 1)
    check_map_end(at, stop, len(keys), count, start)
    return stop


def check_map_end(at: int, stop: int, keys: int, count: int, start: int) -> None:
    """Raises DecodeError if a map of that many elements and distinct keys ends elsewhere, or has a key twice."""
    if at != stop:
        raise DecodeError("a map's size does not match its elements", start)
    if keys != count >> 1:
        raise DecodeError("a map contains a key twice", start)


def key_of(buffer: bytes, at: int, after: int) -> object:
    """A hashable form of a map's key, which is checked already and not in NO_KEYS.

    Keys that readers may consider equal are equal.
    """
    code = buffer[at]
    width = WIDTHS[code]
    if code in (0xA1, 0xA3):
        return buffer[at + 2 : after].decode()
    if code in (0xB1, 0xB3):
        return buffer[at + 5 : after].decode()
    if code == 0x73:
        return chr(U32.unpack_from(buffer, at + 1)[0])
    if code == 0x98:
        return "uuid", buffer[at + 1 : after]
    if code in _FLOATS:
        return _FLOATS[code].unpack_from(buffer, at + 1)[0]
    if code in (0x74, 0x84, 0x94):
        return buffer[at + 1 : after]
    if width == 0:
        return _CONSTANTS[code]
    return int.from_bytes(buffer[at + 1 : after], signed=code in _SIGNED)


_FLOATS: Final = {0x72: struct.Struct(">f"), 0x82: struct.Struct(">d")}
_CONSTANTS: Final = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_SIGNED: Final = frozenset((0x51, 0x54, 0x55, 0x61, 0x71, 0x81, 0x83))


def _array8(buffer: bytes, at: int, depth: int) -> int:
    return _elements(buffer, at + 2, buffer[at + 1], at + 1 + buffer[at], depth)


def _array32(buffer: bytes, at: int, depth: int) -> int:
    size, count = U32_U32.unpack_from(buffer, at)
    return _elements(buffer, at + 8, count, at + 4 + size, depth)


def _elements(buffer: bytes, at: int, count: int, stop: int, depth: int) -> int:
    _check_depth(at, depth)
    if stop > len(buffer):
        raise DecodeError("the value is cut short", at)
    if count == 0 and at == stop:
        raise Uncommon("an array has no constructor: use an empty list", at)
    start, code = at, buffer[at]
    at += 1
    check_array_count(code, count, at, start, stop)
    if code not in ELEMENTS:
        raise Uncommon(
            f"an array has elements of type {type_name(code)}, which not every client can decode: use a list", start
        )
    width = _ANY_BYTES[code]
    if width >= 0:
        at += count * width
    else:
        check = _CHECKS[code]
        for _ in range(count):
            at = check(buffer, at, depth + 1)
    if at != stop:
        raise DecodeError("an array's size does not match its elements", start)
    return stop


def check_array_count(code: int, count: int, at: int, start: int, stop: int) -> None:
    """Check whether an array with content `start` to `stop` and elements `at` to `stop` may have that many elements.

    Raises DecodeError.
    """
    width = WIDTHS[code]
    if width == UNKNOWN:
        raise DecodeError(f"no type has the constructor 0x{code:02x}", at - 1)
    if width == 0:
        array_bytes = stop - start + 3  # at least, with its constructor, size and count
        if count > array_bytes * (1 if code == 0x45 else ZERO_WIDTH_PER_BYTE_MAX):
            raise DecodeError(f"an array has {count} elements of width zero", start)
    elif count * max(width, 1) > stop - at:
        raise DecodeError("an array's size does not match its elements", start)


def _described(buffer: bytes, at: int, depth: int) -> int:
    _check_depth(at, depth)
    descriptor, value = descriptor_code(buffer, at)
    if descriptor is None:
        problem = f"a value has a descriptor of type {type_name(buffer[at])}, which not every client can decode"
        raise Uncommon(f"{problem}: describe it with a symbol or a ulong", at)
    if _is_amqps_own(descriptor):
        raise Uncommon("a value has a descriptor reserved by AMQP: use a descriptor of your own", at)
    if isinstance(descriptor, bytes) and descriptor in NO_DESCRIPTORS:
        problem = f"a value has the descriptor {descriptor.decode()}, which not every client can decode"
        raise Uncommon(f"{problem}: add a domain to the symbol, as in example.com:name", at)
    check_values(buffer, at, 1, depth + 1)
    if buffer[value] == 0x00:
        raise Uncommon(
            "a described value contains another one, which not every client can decode: use only one descriptor", value
        )
    return check_values(buffer, value, 1, depth + 1)


def _is_amqps_own(descriptor: int | bytes) -> bool:
    """Whether clients read the value as that AMQP type. Numbers below 2^32 are AMQP's own (part 1, section 1.5)."""
    if isinstance(descriptor, bytes):
        return descriptor.startswith(b"amqp:")
    return descriptor < 1 << 32


_Check = Callable[[bytes, int, int], int]
"""(buffer, position after the constructor, depth) -> the position after the value."""
_CHECK_OF: Final[dict[int, _Check]] = {
    0x00: _described, 0x56: _boolean, 0x73: _char,
    0xA0: _binary8, 0xA1: _string8, 0xA3: _symbol8, 0xB0: _binary32, 0xB1: _string32, 0xB3: _symbol32,
    0xC0: _list8, 0xC1: _map8, 0xD0: _list32, 0xD1: _map32, 0xE0: _array8, 0xF0: _array32,
}  # fmt: skip
_CHECKS: Final[list[_Check]] = [_CHECK_OF.get(code, _unknown) for code in range(256)]
"""By the constructor's byte, if `_ANY_BYTES` has none."""


def descriptor_code(buffer: bytes, at: int) -> tuple[int | bytes | None, int]:
    """The descriptor that starts at `at`, an ulong or the content of a symbol, and the position after it.

    None: it is of another type. Bounds are not checked.
    """
    form = buffer[at]
    if form == 0x53:
        return buffer[at + 1], at + 2
    if form == 0x80:
        return int(_U64.unpack_from(buffer, at + 1)[0]), at + 9
    if form == 0x44:
        return 0, at + 1
    if form == 0xA3:
        stop = at + 2 + buffer[at + 1]
        return buffer[at + 2 : stop], stop
    if form == 0xB3:
        stop = _binary32(buffer, at + 1, 0)
        return buffer[at + 5 : stop], stop
    return None, at
