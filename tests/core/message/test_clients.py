"""What the gate takes has none of the forms that some client of AMQP cannot decode, wherever they lie."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

import pytest

from headwater.amqp.protocol.codec import encode
from headwater.amqp.protocol.message import decode_message
from headwater.amqp.protocol.types import Array, Described, Symbol, ULong
from headwater.core.message.validity import message_fault
from tests.amqp.random_messages import random_messages

NAMES = [
    "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__", "constructor",
    "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf",
]  # fmt: skip
"""Of what each object of JavaScript has."""
KEYS = {
    "binary": b"\xa0\x01k", "long binary": b"\xb0\0\0\0\x01k", "described": b"\x00\xa3\x03x:y\xa1\x01k",
    "described around binary": b"\x00\xa3\x03x:y\xa0\x01k", "empty list": b"\x45", "list": b"\xc0\x01\x00",
    "map": b"\xc1\x01\x00", "array": b"\xe0\x04\x01\xa1\x01a",
}  # fmt: skip
"""What some client cannot have as a key."""
FIT_KEYS = {
    "string": b"\xa1\x01k", "symbol": b"\xa3\x01k", "null": b"\x40", "boolean": b"\x56\x01", "ubyte": b"\x50\x01",
    "double": b"\x82" + bytes(8), "uuid": b"\x98" + bytes(16), "timestamp": b"\x83" + bytes(8),
    "decimal": b"\x74" + bytes(4), "char": b"\x73\0\0\0a", "ulong": b"\x80" + b"\xff" * 8,
}  # fmt: skip
DESCRIBED = {
    "by a string": b"\x00\xa1\x03x:y\x40", "by an uint": b"\x00\x52\x24\x45", "by null": b"\x00\x40\x40",
    "by a list": b"\x00\xc0\x01\x00\x40", "by binary": b"\x00\xa0\x01a\x40", "by a map": b"\x00\xc1\x01\x00\x40",
    "by a described value": b"\x00\x00\xa3\x03x:y\x40\x40", "twice": b"\x00\xa3\x03x:y\x00\xa3\x03x:y\x40",
} | {f"by {name}": b"\x00\xa3" + bytes([len(name)]) + name.encode() + b"\x40" for name in NAMES}  # fmt: skip


def places(value: bytes) -> dict[str, bytes]:
    """A message for each place where any value may be."""
    listed = b"\xc0" + bytes((len(value) + 1, 1)) + value
    named = b"\xc1" + bytes((len(value) + 4, 2)) + b"\xa3\x01x" + value
    return {
        "value": b"\0Sw" + value,
        "sequence": b"\0Sv" + listed,
        "list in a value": b"\0Sw" + listed,
        "annotation": b"\0Sr" + named + BODY,
        "footer": BODY + b"\0Sx" + named,
    }


BODY = b"\0Su\xa0\x01a"


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_some_client_cannot_have_is_refused_in_every_map(key: str) -> None:
    content = KEYS[key] + b"\x40"
    entries = bytes((len(content) + 1, 2)) + content
    array_of_maps = b"\xe0" + bytes((len(entries) + 2, 1)) + b"\xc1" + entries
    for value in (b"\xc1" + entries, array_of_maps):
        for place, message in places(value).items():
            fault = message_fault(b"", message, True)
            assert fault is not None and "a map contains a key of type" in fault, place
            assert "which not every client can decode: use a string, a symbol or a number (at byte" in fault


@pytest.mark.parametrize("key", FIT_KEYS)
def test_every_other_key_is_taken(key: str) -> None:
    content = FIT_KEYS[key] + b"\x40"
    for place, message in places(b"\xc1" + bytes((len(content) + 1, 2)) + content).items():
        assert message_fault(b"", message, True) is None, place


@pytest.mark.parametrize("described", DESCRIBED)
def test_a_described_value_that_some_client_cannot_decode_is_refused_wherever_it_is(described: str) -> None:
    value = DESCRIBED[described]
    among_properties = b"\0St\xc1" + bytes((len(value) + 4, 2)) + b"\xa1\x01x" + value + BODY
    for place, message in (places(value) | {"property": among_properties}).items():
        fault = message_fault(b"", message, True)
        assert fault is not None and "which not every client can decode" in fault, place


def test_a_value_that_is_described_by_a_symbol_or_an_ulong_is_taken() -> None:
    for descriptor in (Symbol("x:y"), Symbol("x"), Symbol(""), ULong(2**32)):
        for place, message in places(encode(Described(descriptor, [Described(Symbol("z"), 1)]))).items():
            assert message_fault(b"", message, True) is None, (place, descriptor)


def test_random_messages_that_are_taken_have_none_of_these_forms() -> None:
    taken, refused = 0, Counter[str]()
    for message in islice(random_messages(1), 4000):
        fault = message_fault(b"", message, True)
        if fault is None:
            taken += 1
            found = decode_message(message)
            for part in (found.body, found.message_annotations, found.application_properties, found.footer):
                _check(part)
        else:
            refused.update(word for word in ("key of type", "a value has", "contains another one") if word in fault)
    assert taken > 1500
    assert min(refused.values()) > 10 and len(refused) == 3


def _check(value: Any) -> None:
    if isinstance(value, Described):
        assert isinstance(value.descriptor, Symbol | ULong)
        assert value.descriptor not in NAMES
        assert not isinstance(value.value, Described)
        _check(value.value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            assert type(key) is not bytes and not isinstance(key, Described | list)
            _check(inner)
    elif isinstance(value, list | tuple | Array):
        for inner in value:
            _check(inner)
