"""Messages that not every client of AMQP can decode, and odd ones that all can."""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

from headwater.amqp.protocol.codec import encode
from headwater.amqp.protocol.types import Array, Char, Decimal64, Described, Symbol, Timestamp, UByte, UInt, ULong
from tests.amqp.streams.messages import (
    application_properties,
    cloud_event,
    data,
    delivery_annotations,
    header,
    message_annotations,
    properties,
    section,
    value,
)

BODY = data(b"payload")
NESTED = b"\x45"
for _ in range(40):
    NESTED = bytes((0xC0, len(NESTED) + 1, 1)) + NESTED

TWICE = Described(Symbol("x:y"), Described(Symbol("x:z"), 1))


def described_map(code: int, count: int, content: bytes) -> bytes:
    """A section of a map that says that it has so many elements."""
    return bytes((0x00, 0x53, code, 0xC1, len(content) + 1, count)) + content


POISON = {
    "constructor that does not exist": bytes.fromhex("005374c10702a1016bee0000") + BODY,
    "key that is not UTF-8": described_map(0x74, 2, b"\xa1\x02\xff\xfe\x40") + BODY,
    "string that is not UTF-8": described_map(0x72, 2, b"\xa3\x01a\xa1\x01\xff") + BODY,
    "symbol that is not ASCII": described_map(0x72, 2, b"\xa3\x01\xff\x40") + BODY,
    "key without a value": described_map(0x72, 1, b"\xa3\x01a") + BODY,
    "more entries than bytes": described_map(0x74, 200, b"\xa1\x01a\x40") + BODY,
    "key twice": described_map(0x74, 4, b"\xa1\x01a\x40\xa1\x01a\x40") + BODY,
    "property that has a number as its name": application_properties({}) [:3] + encode({5: "x"}) + BODY,
    "property that is a list": application_properties({"a": [1]}) + BODY,
    "annotation that has an int as its key": section(0x72, {5: "x"}) + BODY,
    "annotation that has a string as its key": section(0x72, {"x-opt-a": "x"}) + BODY,
    "annotation that has a number as its key": section(0x72, {ULong(7): [1, {"a": None}]}) + BODY,
    "user-id that is a string": section(0x73, [None, "me"]) + BODY,
    "content-type that is a string": properties(content_type="text/plain") + BODY,
    "content-encoding that is a string": section(0x73, [None] * 7 + ["gzip"]) + BODY,
    "properties described by a symbol": encode(Described(Symbol("amqp:properties:list"), [None, None, "to"])) + BODY,
    "data described by a symbol": encode(Described(Symbol("amqp:data:binary"), b"payload")),
    "message-id that is a list": section(0x73, [[1]]) + BODY,
    "group-sequence that is a string": section(0x73, [None] * 11 + ["x"]) + BODY,
    "subject that is not UTF-8": b"\x00\x53\x73\xc0\x07\x04\x40\x40\x40\xa1\x01\xff" + BODY,
    "properties of 14 fields": section(0x73, [None] * 13 + ["x"]) + BODY,
    "header whose durable is a string": header("durable") + BODY,
    "array of 2^31-1 nulls": bytes.fromhex("005377f0000000057fffffff40"),
    "array of 2^31-1 nulls in a list": section(0x77, [1])[:3] + b"\xc0\x0b\x01" + bytes.fromhex("f0000000057fffffff40"),
    "array without elements": value(Array()),
    "array without a constructor": bytes.fromhex("005377e00100"),
    "array of lists in an annotation": message_annotations(a=Array([[1], []])) + BODY,
    "array of arrays": value(Array([Array([1])])),
    "array of described values": value(Array([Described(Symbol("x:y"), 1)])),
    "value described as one of AMQP's own": value(Described(ULong(0x24), 1)),
    "value described by a string": value(Described("x:y", 1)),
    "value described by a list": value([Described([], 1)]),
    "value described by toString": message_annotations(a=Described(Symbol("toString"), [])) + BODY,
    "value that is described twice": value([TWICE, 2]),
    "property that is described twice": application_properties({"a": TWICE}) + BODY,
    "key that is binary": value({b"k": None}),
    "key that is binary in an annotation": message_annotations(a={b"k": None}) + BODY,
    "key that is binary in an array of maps": value(Array([{b"k": None}])),
    "key that is described": value({Described(Symbol("x:y"), "k"): None}),
    "key that is described in an annotation": message_annotations(a={Described(Symbol("x:y"), "k"): None}) + BODY,
    "key that is described binary in an annotation": message_annotations(a={Described(Symbol("x:y"), b"k"): 1}) + BODY,
    "value that is not UTF-8": b"\x00\x53\x77\xa1\x01\xff",
    "value that is nested too deep": b"\x00\x53\x77" + NESTED,
    "value of too many values": value([None] * 40_000),
    "sequence that is not UTF-8": b"\x00\x53\x76\xc0\x04\x01\xa1\x01\xff",
    "footer that has an int as its key": BODY + section(0x78, {5: 1}),
    "footer that has a number as its key": BODY + section(0x78, {ULong(7): 1}),
    "message that is cut short": BODY[:-1],
    "properties behind the body": BODY + properties(subject="late"),
    "two kinds of body": BODY + value(1),
    "second delivery-annotations": delivery_annotations(a=1) + delivery_annotations(a=1) + BODY,
    "header behind its annotations": message_annotations(a=1) + header(True) + BODY,
    "section that does not exist": section(0x79, {}) + BODY,
    "no section": b"hello",
}  # fmt: skip
ODD = {
    "data alone": BODY,
    "data of no bytes": data(b""),
    "long data": properties(subject="S") + data(bytes(70_000)),
    "two data sections": data(b"a") + data(b"b"),
    "sequences": section(0x76, [1, 2]) + section(0x76, [3]),
    "null": value(None),
    "text": value("Größe 😀"),
    "map with keys of all types": value(
        {
            1: "a", "b": 2, None: 3, uuid.UUID(int=5): Timestamp(1), Symbol("c"): 4, 2.5: 5, UByte(6): 6, UInt(7): 7,
            ULong(2**63): 8, Timestamp(9): 9, -1: 10, False: 11, "toString": 12,
        }
    ),
    "no body": properties(subject="S"),
    "footer": BODY + section(0x78, {Symbol("x-crc"): 1}),
    "header that says something": header(True, UByte(9), UInt(1000), True, UInt(3)) + BODY,
    "annotations of all types": message_annotations(a=1.5, b=Described(Symbol("x:y"), 1), c=Array([1, 2])) + BODY,
    "long map": section(0x74, {"k" * 300: "v" * 300}) + BODY,
    "map of 32 bits of one entry": bytes((0x00, 0x53, 0x74, 0xD1)) + struct.pack(">II", 8, 2) + b"\xa1\x01a\x40" + BODY,
    "properties of no field": section(0x73, []) + BODY,
    "properties that are all null": section(0x73, [None] * 13) + BODY,
    "message-id that is a number": properties(message_id=ULong(2**63), subject="S") + BODY,
    "message-id that is binary": properties(message_id=b"\xff\xfe", subject="S") + BODY,
    "message-id that is a uuid": properties(message_id=uuid.UUID(int=5), subject="S") + BODY,
    "message-id of 300 characters": properties(message_id="ä" * 300, subject="S") + BODY,
    "data described by a long number": b"\x00\x80" + (0x75).to_bytes(8) + encode(b"payload"),
    "cloud event": cloud_event(time=Timestamp(1_500), flag=True) + BODY,
    "char": value(["a", Char("b")]),
    "decimal": application_properties({"price": Decimal64(b"12345678")}) + BODY,
    "array of strings": value(Array(["a", "b"])),
    "array of no symbols": message_annotations(a=Array((), 0xA3)) + BODY,
    "array of maps": value(Array([{"a": 1}, {}])),
    "annotation described by a number": message_annotations(a=Described(ULong(0x468C00000004), "x > 1")) + BODY,
    "list that has an array of longs": value([1, Array([1])]),
    "map that has a list with an array of booleans": value({"a": [Array([], 0x56)]}),
    "sequence that has a map with an array of doubles": section(0x76, [{"a": Array([1.5])}]),
    "array of ulongs and of strings in a list": value([Array([ULong(300)]), Array(["a"])]),
    "array of longs in a list of an annotation": message_annotations(a=[Array([1])]) + BODY,
    "array of 100,000 numbers": value(Array([1.5] * 100_000)),
    "delivery-annotations over AMQP": BODY,
}  # fmt: skip


class Form(NamedTuple):
    """A message as the fields of an event: whole, or with its envelope apart."""

    envelope: bytes
    data: bytes
    encoding: str


def forms(message: bytes) -> list[Form]:
    """Whole, and with an envelope where it ends with the data section that all tests have."""
    whole = Form(b"", message, "amqp")
    return [whole, Form(message[:-7], b"payload", "data")] if message.endswith(BODY) else [whole]
