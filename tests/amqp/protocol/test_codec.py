"""Every type of AMQP 1.0, part 1, section 1.6, in every encoding; and what is no encoding at all."""

from __future__ import annotations

import math
import uuid
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given

from headwater.amqp.protocol import codec
from headwater.amqp.protocol.codec import DecodeError, EncodeError, decode, encode
from headwater.amqp.protocol.types import (
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
from headwater.core.message.values import DEPTH_MAX, DESCRIBED_MAX, WEAK_KEYS_MAX, ZERO_WIDTH_PER_BYTE_MAX, skip
from tests.amqp.values import same, values
from tests.every import every

ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")

ENCODINGS: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("56 01", True),
    ("56 00", False),
    ("50 ff", UByte(255)),
    ("60 ffff", UShort(65535)),
    ("70 ffffffff", UInt(2**32 - 1)),
    ("52 ff", UInt(255)),
    ("43", UInt(0)),
    ("80 ffffffffffffffff", ULong(2**64 - 1)),
    ("53 ff", ULong(255)),
    ("44", ULong(0)),
    ("51 80", Byte(-128)),
    ("51 7f", Byte(127)),
    ("61 8000", Short(-32768)),
    ("71 80000000", Int(-(2**31))),
    ("54 ff", Int(-1)),
    ("54 7f", Int(127)),
    ("81 8000000000000000", Long(-(2**63))),
    ("55 80", Long(-128)),
    ("55 01", Long(1)),
    ("72 3fc00000", Float(1.5)),
    ("82 3ff8000000000000", 1.5),
    ("82 7ff0000000000000", math.inf),
    ("82 8000000000000000", -0.0),
    ("82 7ff8000000000000", math.nan),
    ("74 01020304", Decimal32(b"\1\2\3\4")),
    ("84 0102030405060708", Decimal64(b"\1\2\3\4\5\6\7\10")),
    ("94 01020304050607080102030405060708", Decimal128(b"\1\2\3\4\5\6\7\10" * 2)),
    ("73 0001f600", Char("\U0001f600")),
    ("83 ffffffffffffffff", Timestamp(-1)),
    ("98 0123456789abcdef0123456789abcdef", ID),
    ("a0 00", b""),
    ("a0 02 00ff", b"\x00\xff"),
    ("b0 00000002 00ff", b"\x00\xff"),
    ("a1 02 c3a9", "é"),
    ("b1 00000002 c3a9", "é"),
    ("a3 02 6162", Symbol("ab")),
    ("b3 00000002 6162", Symbol("ab")),
    ("45", []),
    ("c0 01 00", []),
    ("c0 05 02 41 a1 01 61", [True, "a"]),
    ("d0 00000008 00000002 41 a1 01 61", [True, "a"]),
    ("c1 01 00", {}),
    ("c1 05 02 a1 01 61 41", {"a": True}),
    ("d1 00000008 00000002 a1 01 61 41", {"a": True}),
    ("00 53 10 45", Described(ULong(16), [])),
    ("00 a3 01 61 00 44 40", Described(Symbol("a"), Described(ULong(0), None))),
    ("00 00 43 44 40", Described(Described(UInt(0), ULong(0)), None)),
    ("c0 04 03 45 40 43", [[], None, UInt(0)]),
]


def octets(text: str) -> bytes:
    return bytes.fromhex(text)


def decoded(buffer: bytes) -> Any:
    value, after = decode(buffer, 0, len(buffer))
    assert after == len(buffer)
    return value


@every(("text", "value"), ENCODINGS)
def test_an_encoding_is_decoded_to_its_type(text: str, value: Any) -> None:
    assert same(decoded(octets(text)), value)


@every(("text", "value"), ENCODINGS)
def test_a_value_is_found_between_others(text: str, value: Any) -> None:
    buffer = b"\x41" + octets(text) + b"\xff"
    assert same(decode(buffer, 1, len(buffer))[0], value)
    assert decode(buffer, 1, len(buffer))[1] == skip(buffer, 1, len(buffer)) == len(buffer) - 1


@every(("text", "value"), ENCODINGS)
def test_what_is_decoded_is_encoded_as_the_same_type_in_no_more_bytes(text: str, value: Any) -> None:
    again = encode(decoded(octets(text)))
    assert same(decoded(again), value)
    assert len(again) <= len(octets(text))


@every("text", [text for text, _ in ENCODINGS])
def test_an_encoding_that_is_cut_short_is_an_error(text: str) -> None:
    whole = octets(text)
    for end in range(len(whole)):
        for buffer in (whole[:end], whole):  # nothing follows, or what follows is somebody else's
            with pytest.raises(DecodeError):
                decode(buffer, 0, end)
            with pytest.raises(DecodeError):
                skip(buffer, 0, end)


ARRAYS: list[tuple[str, list[Any]]] = [
    ("40", [None, None]),
    ("41", [True, True]),
    ("42", [False, False]),
    ("43", [UInt(0), UInt(0)]),
    ("44", [ULong(0), ULong(0)]),
    ("45", [[], []]),
    ("50 01 02", [UByte(1), UByte(2)]),
    ("51 ff 02", [Byte(-1), Byte(2)]),
    ("52 01 02", [UInt(1), UInt(2)]),
    ("53 01 02", [ULong(1), ULong(2)]),
    ("54 ff 02", [Int(-1), Int(2)]),
    ("55 ff 02", [Long(-1), Long(2)]),
    ("56 00 01", [False, True]),
    ("60 0001 0002", [UShort(1), UShort(2)]),
    ("61 ffff 0002", [Short(-1), Short(2)]),
    ("70 00000001 00000002", [UInt(1), UInt(2)]),
    ("71 ffffffff 00000002", [Int(-1), Int(2)]),
    ("72 3fc00000 3fc00000", [Float(1.5), Float(1.5)]),
    ("73 00000061 00000062", [Char("a"), Char("b")]),
    ("74 01020304 05060708", [Decimal32(b"\1\2\3\4"), Decimal32(b"\5\6\7\10")]),
    ("80 0000000000000001 0000000000000002", [ULong(1), ULong(2)]),
    ("81 ffffffffffffffff 0000000000000002", [Long(-1), Long(2)]),
    ("82 3ff8000000000000 3ff8000000000000", [1.5, 1.5]),
    ("83 0000000000000001 0000000000000002", [Timestamp(1), Timestamp(2)]),
    ("84 0102030405060708 0102030405060708", [Decimal64(b"\1\2\3\4\5\6\7\10")] * 2),
    ("94" + "01" * 32, [Decimal128(b"\1" * 16)] * 2),
    ("98" + "0123456789abcdef" * 4, [ID, ID]),
    ("a0 01 00 00", [b"\0", b""]),
    ("b0 00000001 00 00000000", [b"\0", b""]),
    ("a1 01 61 00", ["a", ""]),
    ("b1 00000001 61 00000000", ["a", ""]),
    ("a3 01 61 00", [Symbol("a"), Symbol("")]),
    ("b3 00000001 61 00000000", [Symbol("a"), Symbol("")]),
    ("c0 02 01 41 01 00", [[True], []]),
    ("d0 00000005 00000001 41 00000004 00000000", [[True], []]),
    ("c1 03 02 41 42 01 00", [{True: False}, {}]),
    ("d1 00000006 00000002 41 42 00000004 00000000", [{True: False}, {}]),
    ("e0 03 01 50 07 02 00 40", [Array([UByte(7)]), Array()]),
    ("f0 00000006 00000001 50 07 00000005 00000000 40", [Array([UByte(7)]), Array()]),
    ("00 a3 01 64 50 01 02", [Described(Symbol("d"), UByte(1)), Described(Symbol("d"), UByte(2))]),
    ("00 53 07 41", [Described(ULong(7), True), Described(ULong(7), True)]),
    ("00 44 00 43 50 01 02", [Described(ULong(0), Described(UInt(0), UByte(n))) for n in (1, 2)]),
    ("00 53 07 c0 02 01 41 01 00", [Described(ULong(7), [True]), Described(ULong(7), [])]),
]
"""The constructor and the elements of arrays of two."""


def array_of(text: str, is_long: bool) -> bytes:
    content = octets(text)
    if is_long:
        return b"\xf0" + (len(content) + 4).to_bytes(4, "big") + b"\0\0\0\2" + content
    return b"\xe0" + bytes([len(content) + 1, 2]) + content


@every("is_long", [False, True])
@every(("text", "elements"), ARRAYS)
def test_an_array_may_have_any_elements_and_encodes_as_it_came(text: str, elements: list[Any], is_long: bool) -> None:
    array = decoded(array_of(text, is_long))
    assert same(array, Array(elements))
    assert encode(array) == array_of(text, False)


@every("text", [text for text, _ in ARRAYS])
def test_an_array_that_is_cut_short_is_an_error(text: str) -> None:
    whole = array_of(text, False)
    for end in range(len(whole)):
        for buffer in (whole[:end], whole):
            with pytest.raises(DecodeError):
                decode(buffer, 0, end)


@every("elements", [elements for _, elements in ARRAYS])
def test_an_array_without_a_constructor_gets_the_one_that_fits(elements: list[Any]) -> None:
    assert same(decoded(encode(Array(elements))), Array(elements))


def test_an_array_takes_the_long_constructor_where_one_element_needs_it() -> None:
    assert decoded(encode(Array(["a", "b" * 256]))).constructor == 0xB1
    assert decoded(encode(Array([Symbol("a" * 256), Symbol("b")]))).constructor == 0xB3
    assert decoded(encode(Array([b"a" * 255]))).constructor == 0xA0


def test_an_empty_array_may_come_without_a_constructor() -> None:
    assert same(decoded(octets("e0 01 00")), Array())


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (Array([UInt(1), ULong(1)]), "have different types"),
        (Array(["a", Symbol("b")]), "have different types"),
        (Array(["a"], 0x70), "constructor 0x70 contains the element 'a'"),
        (Array([True], 0x70), "constructor 0x70 contains the element True"),
        (Array([1], 0x43), "can only contain 0 contains"),
        (Array([256], 0x50), "out of range"),
        (Array(["a" * 256], 0xA1), "at most 255 bytes"),
        (Array([["a" * 256]], 0xC0), "at most 255 bytes"),
        (Array([1], 0x57), "no type has the constructor 87"),
        (Array([1], Described("d", 0x70)), "described by 'd' contains 1"),
        (Array([Described("d", 1), Described("e", 1)]), "described by 'd'"),
        (Array([object()]), "no type for the object"),
    ],
)
def test_an_array_whose_elements_do_not_fit_is_refused(array: Array, problem: str) -> None:
    with pytest.raises(EncodeError, match=problem):
        encode(array)


@given(values)
def test_any_value_is_decoded_as_it_was_encoded(value: Any) -> None:
    encoded = encode(value)
    assert same(decoded(encoded), value)
    assert skip(encoded, 0, len(encoded)) == len(encoded)
    assert encode(decoded(encoded)) == encoded


@every(
    ("value", "text"),
    [
        (0, "55 00"),
        (-129, "81 ffffffffffffff7f"),
        (UInt(0), "43"),
        (UInt(256), "70 00000100"),
        (ULong(0), "44"),
        (ULong(16), "53 10"),
        (ULong(256), "80 0000000000000100"),
        (Int(128), "71 00000080"),
        ((1, 2), "c0 05 02 55 01 55 02"),
        (bytearray(b"a"), "a0 01 61"),
        (memoryview(b"a"), "a0 01 61"),
        ("a" * 256, "b1 00000100" + "61" * 256),
        ([b"a" * 250, None], "c0 fe 02 a0 fa" + "61" * 250 + "40"),
        ([None] * 255, "d0 00000103 000000ff" + "40" * 255),
        ([None] * 254, "c0 ff fe" + "40" * 254),
        ({None: None}, "c1 03 02 40 40"),
        (IntEnum("Number", "ONE")["ONE"], "55 01"),
        (StrEnum("Word", "ONE")["ONE"], "a1 03 6f6e65"),
    ],
)
def test_a_value_takes_its_shortest_encoding(value: Any, text: str) -> None:
    assert encode(value) == octets(text)


@every(
    "value",
    [
        2**63,
        UByte(256),
        UByte(-1),
        UShort(65536),
        UInt(2**32),
        UInt(-1),
        ULong(2**64),
        ULong(-1),
        Byte(128),
        Short(32768),
        Int(2**31),
        Long(2**63),
        Timestamp(2**63),
        Float(1e39),
        Char(""),
        Char("ab"),
        Char("\ud800"),
        "\ud800",
        Symbol("é"),
        Decimal32(b""),
        Decimal64(b"123"),
        Decimal128(b"123"),
        object(),
        {1, 2},
        [[object()]],
        {"a": object()},
        Described(1, object()),
    ],
)
def test_what_has_no_encoding_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(EncodeError, match="more than 32"):
        encode(endless)


@every(
    ("text", "problem"),
    [
        ("", "cut short"),
        ("ff", "no type has the constructor 0xff"),
        ("57 00", "no type has the constructor 0x57"),
        ("e0 02 00 ff", "no type has the constructor 0xff"),
        ("56 02", "a boolean must be 0 or 1, not 2"),
        ("73 00110000", "0x110000 is not a Unicode character"),
        ("73 0000d800", "0xd800 is not a Unicode character"),
        ("a1 01 ff", "a string is not UTF-8"),
        ("b1 00000003 eda080", "a string is not UTF-8"),
        ("a3 01 ff", "a symbol is not ASCII"),
        ("b3 00000001 ff", "a symbol is not ASCII"),
        ("c0 00", "cut short"),
        ("c0 00 00", "a list's size"),
        ("c0 03 01 40 40", "a list's size"),
        ("c0 01 01 40", "a list's size"),
        ("c0 03 01 a0 01 00", "a list's size"),
        ("d0 00000004 ffffffff 40", "cut short"),
        ("d0 ffffffff 00000000", "a list's size"),
        ("b0 ffffffff 00", "cut short"),
        ("c1 02 01 40", "a key without a value"),
        ("c1 05 04 41 40 41 40", "a key twice"),
        ("c1 03 02 45 40", "a map's key is a list, map or array"),
        ("c1 05 02 c1 01 00 40", "a map's key is a list, map or array"),
        ("c1 06 02 e0 02 00 40 40", "a map's key is a list, map or array"),
        ("c1 05 02 00 44 45 40", "a map's key is a list, map or array"),
        ("c1 04 02 40 40 40", "a map's size"),
        ("e0 04 01 50 01 02", "an array's size"),
        ("e0 03 02 50 01", "an array's size"),
    ],
)
def test_what_is_no_value_is_an_error_that_says_why(text: str, problem: str) -> None:
    buffer = octets(text)
    with pytest.raises(DecodeError) as error:
        decode(buffer, 0, len(buffer))
    assert problem in error.value.problem
    assert 0 <= error.value.at <= len(buffer)


def nested(opening: bytes, levels: int) -> bytes:
    value = b"\x40"
    for _ in range(levels):
        value = opening + len(value + b"....").to_bytes(4, "big") + b"\0\0\0\1" + value
    return value


def test_values_lie_in_one_another_up_to_the_depth_allowed() -> None:
    deepest = nested(b"\xd0", DEPTH_MAX)
    assert encode(decoded(deepest)).startswith(b"\xc0")
    with pytest.raises(DecodeError, match="more than 32"):
        decoded(nested(b"\xd0", DEPTH_MAX + 1))
    decoded(b"\0\x44" * DEPTH_MAX + b"\x40")
    with pytest.raises(DecodeError, match="more than 32"):
        decoded(b"\0\x44" * (DEPTH_MAX + 1) + b"\x40")


def test_depth_is_bounded_whatever_nests() -> None:
    for bomb in (nested(b"\xd0", 20_000), b"\0" * 100_000, b"\0\x44" * 50_000, b"\xe0\xff\x01" * 30_000):
        with pytest.raises(DecodeError):
            decode(bomb, 0, len(bomb))


def test_skipping_is_not_bounded_in_depth_as_it_keeps_none() -> None:
    deep = nested(b"\xd0", 1000)
    assert skip(deep, 0, len(deep)) == len(deep)
    described = b"\0" * DESCRIBED_MAX + b"\x40" * (DESCRIBED_MAX + 1)
    assert skip(described, 0, len(described)) == len(described)


def test_skipping_looks_at_so_many_described_values_at_most() -> None:
    described = b"\0" * (DESCRIBED_MAX + 1) + b"\x40" * (DESCRIBED_MAX + 2)
    with pytest.raises(DecodeError, match=f"more than {DESCRIBED_MAX} described values"):
        skip(described, 0, len(described))


@pytest.mark.parametrize("constructor", ["40", "41", "42", "43", "44", "45", "00 44 40", "00 44 45"])
def test_an_array_of_countless_elements_without_width_is_refused(constructor: str) -> None:
    content = octets(constructor)
    bomb = b"\xf0" + (len(content) + 4).to_bytes(4, "big") + b"\xff\xff\xff\xff" + content
    with pytest.raises(DecodeError, match="an array has 4294967295 elements of width zero"):
        decode(bomb, 0, len(bomb))
    assert skip(bomb, 0, len(bomb)) == len(bomb)


def test_elements_without_width_are_bounded_by_the_arrays_bytes() -> None:
    allowed = 4 * ZERO_WIDTH_PER_BYTE_MAX
    assert decoded(bytes([0xE0, 2, allowed, 0x41])) == [True] * allowed
    with pytest.raises(DecodeError, match="elements of width zero"):
        decoded(bytes([0xE0, 2, allowed + 1, 0x41]))
    with pytest.raises(DecodeError, match="elements of width zero"):
        decoded(bytes([0xE0, 2, 5, 0x45]))  # each would be a list of its own


def test_lists_of_an_array_without_width_are_not_one_list() -> None:
    lists = decoded(octets("e0 06 02 00 a3 01 64 45"))
    assert lists[0].value is not lists[1].value


def test_an_array_cannot_buy_elements_with_bytes_that_it_does_not_have() -> None:
    for code in (0x41, 0x50, 0x74, 0x84, 0x94, 0x98, 0xA0, 0xC0):
        with pytest.raises(DecodeError, match="cut short"):
            decoded(b"\xf0\xff\xff\xff\xff\x7f\xff\xff\xff" + bytes([code]))
        with pytest.raises(DecodeError, match=r"size does not match|of width zero"):
            decoded(b"\xf0\x00\x00\x00\x06\x7f\xff\xff\xff" + bytes([code]) + b"\x00")


def test_descriptors_of_an_array_lie_in_one_another_up_to_two() -> None:
    assert len(decoded(array_of("0044" * 2 + "40", False))) == 2
    with pytest.raises(DecodeError, match="more than 2 descriptors"):
        decoded(array_of("0044" * 3 + "40", False))


def test_keys_that_a_peer_can_make_collide_are_bounded() -> None:
    keys = [uuid.UUID(int=(2**61 - 1) * n) for n in range(WEAK_KEYS_MAX + 1)]
    assert len({hash(key) for key in keys}) == 1
    fine = {key: None for key in keys[:-1]}
    assert decoded(encode(fine)) == fine
    with pytest.raises(DecodeError, match="more than 64 keys"):
        decoded(encode({key: None for key in keys}))
    with pytest.raises(DecodeError, match="more than 64 keys"):
        decoded(encode({Described(ULong(1), key): None for key in keys}))


def test_keys_that_are_no_numbers_are_told_apart() -> None:
    nan = encode(math.nan)
    entries = decoded(b"\xc1" + bytes([2 * len(nan) + 3, 4]) + 2 * (nan + b"\x40"))
    assert len(entries) == 2


def test_encode_into_appends() -> None:
    out = bytearray(b"x")
    codec.encode_into(out, True)
    assert out == b"x\x41"
