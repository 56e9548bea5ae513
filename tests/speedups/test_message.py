"""The walk of a message in C answers what its twin in Python does; what it leaves to that is what it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.amqp.protocol.codec import encode
from headwater.amqp.protocol.types import Array, Described, Int, Long, Symbol, Timestamp, UInt, ULong
from headwater.core.message.validity import look_through_any
from headwater.core.message.values import DecodeError
from headwater.speedups import IS_NATIVE
from tests.amqp.streams.messages import (
    application_properties,
    data,
    delivery_annotations,
    header,
    message_annotations,
    properties,
    section,
    value,
)
from tests.seeds import seed
from tests.speedups.messages import compare, fuzz
from tests.speedups.needing import needs_native

if IS_NATIVE:
    from headwater.speedups._native import look_through

pytestmark = needs_native
ROUNDS = 500
TEXT = "zwölf €"
FOOTER = section(0x78, {Symbol("x-crc"): Int(7)})
MESSAGES = [
    header(True, None, UInt(1000)) + message_annotations(x_opt_a=[1, {"a": TEXT, Symbol("b"): None}, Symbol("c")])
    + properties(message_id="id-1", subject="Order", content_type=Symbol("text/plain"), creation_time=Timestamp(-1))
    + application_properties({"a": 1, TEXT: TEXT, "c": None, "d": True, "e": 1.5}) + data(b"payload"),
    delivery_annotations(x=1) + properties(message_id=ULong(300), to="/orders") + data(b"") + FOOTER,
    properties(subject="") + value({"a": {"b": Array([Int(1), Int(300)])}, Symbol("c"): []}),
    section(0x70, []) + section(0x76, [1, "two", [3.0]]),
    message_annotations(**{f"k{each}": each for each in range(64)}) + value(Array([Symbol("a"), Symbol("b")])),
]  # fmt: skip
REFUSED = {
    "described by 0": value(None)[:3] + b"\0\x44\x40",
    "described by a small number": value(None)[:3] + b"\0\x80" + (0x70).to_bytes(8) + b"\x40",
    "one field too many": header(None, None, None, None, None, None),
    "one property too many": section(0x73, [None] * 14),
    "two kinds of body": data(b"a") + value(None),
    "a body before properties": data(b"a") + properties(subject="a"),
    "a timestamp that is a long": section(0x73, [None] * 9 + [Long(300)]),
    "a subject that is a symbol": properties(subject=Symbol("a")),
    "an application property named by a symbol": section(0x74, {Symbol("a"): 1}),
    "an annotation named by a string": section(0x72, {"a": 1}),
    "a key twice": section(0x74, {})[:3] + b"\xc1\x09\x04\xa1\x01k\x40\xa1\x01k\x40",
    "a surrogate": value(None)[:3] + b"\xa1\x03\xed\xa0\x80",
    "no section": b"\0\x53\x6f\x45",
}
AROUND: dict[str, Callable[[bytes], bytes]] = {
    "list": lambda inner: b"\xd0" + (len(inner) + 4).to_bytes(4) + b"\0\0\0\x01" + inner,
    "map": lambda inner: bytes((0xC1, len(inner) + 4, 2)) + b"\xa1\x01k" + inner,
}
INNERMOST = [b"\x40", b"\xe0\x03\x01\x50\x01", b"\xe0\x04\x01\xc1\x01\0", b"\xc1\x01\0"]
LEFT = {
    "more than 16 KiB besides the data": application_properties({"a": "x" * 16 * 1024}) + data(b""),
    "an amqp-value above 16 KiB": value("x" * 16 * 1024),
    "several sections of data": data(b"a") + data(b"b"),
    "several sections of a sequence": section(0x76, [1]) + section(0x76, [2]),
    "more than 64 keys": application_properties({f"k{each}": each for each in range(65)}) + data(b""),
    "other keys in an inner map": value({1: 2}),
    "a described value": value(Described(Symbol("mine"), [])),
    "a section described by a long number": b"\0\x80" + (0x75).to_bytes(8) + encode(b"a"),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_both_walks_agree_on_a_message_cut_short_or_with_another_byte(message: bytes) -> None:
    assert look_through(message, len(message)) == look_through_any(message, len(message))
    for at in range(len(message)):
        compare(look_through, message[:at], at)
        compare(look_through, message[:at], len(message))
        for change in (0x01, 0x04, 0x10, 0x80, 0xFF):
            compare(look_through, message[:at] + bytes((message[at] ^ change,)) + message[at + 1 :], len(message))


def test_both_walks_agree_on_messages_of_all_shapes() -> None:
    assert fuzz(look_through, seed(), ROUNDS) > ROUNDS // 4


@pytest.mark.parametrize("message", LEFT.values(), ids=LEFT)
def test_what_is_left_to_python_is_taken_there(message: bytes) -> None:
    assert look_through(message, len(message)) is None
    look_through_any(message, len(message))


@pytest.mark.parametrize("message", REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_in_one_place_is_refused_by_both(message: bytes) -> None:
    assert look_through(message, len(message)) is None
    with pytest.raises(DecodeError):
        look_through_any(message, len(message))


@pytest.mark.parametrize("inner", INNERMOST)
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_depth_is_bounded_as_in_python(around: Callable[[bytes], bytes], inner: bytes) -> None:
    taken = []
    for _ in range(36):
        message = b"\0\x53\x77" + inner
        taken.append(compare(look_through, message, len(message)))
        inner = around(inner)
    assert 31 <= taken.count(True) <= 33 and taken == sorted(taken, reverse=True)


def test_what_is_no_message_is_left_to_python() -> None:
    for given in ((), (b"",), (b"", 0, 0), ("", 0), (b"", "0"), (None, 0), (b"", 1 << 70)):
        assert look_through(*given) is None
    assert look_through(b"", 0) is look_through(b"\0Su\xa0\0", -1) is None
