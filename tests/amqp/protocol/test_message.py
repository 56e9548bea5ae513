"""Messages: their sections found, decoded, and built."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.amqp.protocol.codec import DecodeError, EncodeError, encode
from headwater.amqp.protocol.message import (
    DATA,
    DATAS,
    NONE,
    SEQUENCE,
    VALUE,
    Header,
    Message,
    Properties,
    decode_message,
    decode_section,
    encode_message,
    walk,
)
from headwater.amqp.protocol.types import Described, Symbol, UInt, ULong
from headwater.core.message.sections import BODY_SECTIONS_MAX
from tests.amqp.composites import by_kind, composites, fields
from tests.amqp.values import same, values
from tests.every import every

bodies = st.one_of(
    st.tuples(st.binary(max_size=300).map(lambda data: [data]), st.just(DATA)),
    st.tuples(st.lists(st.binary(max_size=9), min_size=2, max_size=3), st.just(DATAS)),
    st.tuples(st.lists(st.lists(values, max_size=3), min_size=1, max_size=3), st.just(SEQUENCE)),
    st.tuples(values, st.just(VALUE)),
    st.just((None, NONE)),
)
messages = st.builds(
    lambda body, **sections: Message(*body, **sections),
    bodies,
    header=st.none() | composites(Header),
    delivery_annotations=st.none() | by_kind[fields.ANNOTATIONS],
    message_annotations=st.none() | by_kind[fields.ANNOTATIONS],
    properties=st.none() | composites(Properties),
    application_properties=st.none() | by_kind[fields.STRING_MAP],
    footer=st.none() | by_kind[fields.ANNOTATIONS],
)
SPANS = (
    "header", "delivery_annotations", "message_annotations", "properties", "application_properties", "body", "footer",
)  # fmt: skip

FULL = Message(
    [b"payload"],
    DATA,
    header=Header(True, 9, 5000, True, 3),
    delivery_annotations={Symbol("d"): 1},
    message_annotations={Symbol("m"): 2},
    properties=Properties(
        "id", b"me", "to", "subject", "reply", "correlation", Symbol("text/plain"), Symbol("gzip"), 1, 2
    ),
    application_properties={"a": "b"},
    footer={Symbol("f"): 3},
)


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


@given(messages)
def test_a_message_is_decoded_as_it_was_encoded(message: Message) -> None:
    encoded = encode_message(message)
    again = decode_message(encoded)
    assert encode_message(again) == encoded
    assert again == message or "nan" in repr(message)


@given(messages)
def test_the_spans_of_a_message_are_all_of_it(message: Message) -> None:
    encoded = encode_message(message)
    sections = walk(encoded)
    spans = [span for name in SPANS if (span := getattr(sections, name)) is not None]
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    assert (spans[-1][1] if spans else 0) == len(encoded)
    assert sections.body_kind == message.body_kind
    for name in SPANS:
        assert (getattr(sections, name) is None) == (getattr(message, name) is None) or name == "body"


def test_a_span_holds_its_section_with_its_descriptor() -> None:
    encoded = encode_message(FULL)
    sections = walk(encoded)
    start, end = sections.application_properties or (0, 0)
    assert encoded[start:end] == section(0x74, {"a": "b"})
    for name in SPANS:
        assert decode_section(encoded, getattr(sections, name)) == (
            b"payload" if name == "body" else getattr(FULL, name)
        )


@pytest.mark.parametrize("length", [0, 7, 255, 256, 70_000])
def test_the_payload_is_the_content_of_the_only_data_section(length: int) -> None:
    encoded = encode_message(Message([b"x" * length], DATA, header=Header()))
    start, end = walk(encoded).payload or (0, 0)
    assert encoded[start:end] == b"x" * length
    assert end == len(encoded)


@pytest.mark.parametrize(
    "message", [Message([b"a", b"b"], DATAS), Message([[]], SEQUENCE), Message(b"a", VALUE), Message(None, NONE)]
)
def test_any_other_body_has_no_payload(message: Message) -> None:
    assert walk(encode_message(message)).payload is None


def test_ids_keep_their_type_and_other_properties_are_plain() -> None:
    for id in ("1", ULong(1), ULong(2**40), uuid.uuid4(), b"1"):
        properties = Properties(id, correlation_id=id, absolute_expiry_time=5, group_sequence=300)
        again = decode_message(encode_message(Message(properties=properties))).properties
        assert again is not None
        assert same([again.message_id, again.correlation_id], [id, id])
        assert type(again.absolute_expiry_time) is type(again.group_sequence) is int
    again = decode_message(encode_message(Message(properties=Properties(7)))).properties
    assert again is not None
    assert same(again.message_id, ULong(7))


def test_keys_are_written_as_the_section_wants_them() -> None:
    message = Message(delivery_annotations={"a": 1, 7: 2}, application_properties={Symbol("b"): 3}, footer={"c": 4})
    again = decode_message(encode_message(message))
    assert [type(key) for key in again.delivery_annotations or ()] == [Symbol, ULong]
    assert [type(key) for key in again.application_properties or ()] == [str]
    assert [type(key) for key in again.footer or ()] == [Symbol]


def test_absent_fields_of_a_header_have_the_standards_defaults() -> None:
    assert decode_message(section(0x70, [])).header == Header(False, 4, None, False, 0)


def test_a_descriptor_may_have_any_form() -> None:
    wide = bytes.fromhex("00 80 0000000000000070 45") + encode(Described(Symbol("amqp:data:binary"), b"x"))
    wide += encode(Described(Symbol("amqp:footer:map"), {}))
    again = decode_message(wide)
    assert (again.header, again.body, again.footer) == (Header(), [b"x"], {})
    value = encode(Described(Symbol("amqp:amqp-value:*"), "x"))
    assert decode_message(value).body == "x"


@every(
    ("message", "problem"),
    [
        (b"x", "expected a section, got constructor 0x78"),
        (b"\0", "cut short"),
        (b"\0\x53", "cut short"),
        (b"\0\x53\x75", "cut short"),
        (b"\0\x53\x75\xa0", "cut short"),
        (b"\0\x53\x75\xa0\x05abcd", "cut short"),
        (b"\0\x53\x75\xb0\0\0\0\x05abcd", "cut short"),
        (b"\0\x53\x77\xa1\x05abcd", "cut short"),
        (section(0x79, b""), "no section has the code 0x79"),
        (section(0x10, []), "no section has the code 0x10"),
        (section(0x1000, []), "expected a section, got a value described by 4096"),
        (encode(Described(Symbol("amqp:open:list"), [])), "described by 'amqp:open:list'"),
        (encode(Described(UInt(0x75), b"")), "expected a section, got a value described by constructor 0x52"),
        (section(0x70, {}), "the section header has a value with constructor 0xc1"),
        (section(0x72, []), "the section message-annotations has a value with constructor 0x45"),
        (section(0x75, "text"), "the section data has a value with constructor 0xa1"),
        (section(0x76, b""), "the section amqp-sequence has a value with constructor 0xa0"),
        (section(0x73, []) + section(0x70, []), "section header follows section properties"),
        (section(0x73, []) * 2, "section properties follows section properties"),
        (section(0x77, None) * 2, "section amqp-value follows section amqp-value"),
        (section(0x75, b"") + section(0x76, []), "section amqp-sequence follows section data"),
        (section(0x75, b"") + section(0x77, 1), "section amqp-value follows section data"),
        (section(0x78, {}) + section(0x75, b""), "section data follows section footer"),
        (section(0x78, {}) * 2, "section footer follows section footer"),
        (section(0x75, b"") + b"\x40", "expected a section, got constructor 0x40"),
    ],
)
def test_what_is_no_message_is_an_error_that_says_why(message: bytes, problem: str) -> None:
    for read in (walk, decode_message):
        with pytest.raises(DecodeError) as error:
            read(message)
        assert problem in error.value.problem


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (section(0x70, [1]), "header.durable: expected boolean"),
        (section(0x73, [UInt(1)]), "properties.message_id: expected message id"),
        (section(0x73, [None] * 14), "properties: expected at most 13 fields, got 14"),
        (section(0x72, {1.5: 1}), "expected a map with symbols or ulongs as keys, got the key 1.5"),
        (section(0x74, {ULong(1): 1}), "expected a map with strings as keys, got the key 1"),
        (bytes.fromhex("005372c1030241ff"), "no type has the constructor 0xff"),
        (bytes.fromhex("005376c0020240"), "cut short"),
        (bytes.fromhex("005377c0020240"), "cut short"),
    ],
)
def test_a_section_that_is_malformed_inside_is_found_when_it_is_decoded(message: bytes, problem: str) -> None:
    walk(message)
    with pytest.raises(DecodeError, match=problem):
        decode_message(message)


def test_a_message_that_is_cut_short_is_an_error_or_lacks_sections() -> None:
    whole = encode_message(FULL)
    ends = {getattr(walk(whole), name)[1] for name in SPANS} | {0}
    for end in range(len(whole)):
        if end in ends:
            walk(whole[:end])
        else:
            with pytest.raises(DecodeError):
                walk(whole[:end])


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message(b"bytes", DATA), "a data body must be a list of bytes, but contains a int"),
        (Message(["text"], DATA), "a data body must be a list of bytes, but contains a str"),
        (Message(["text"], SEQUENCE), "a list of lists, but contains a str"),
        (Message("text", NONE), "a message without a body was given the body of type str"),
        (Message(object(), VALUE), "no type for the object"),
        (Message(header=Header(priority=256)), "header.priority"),
        (Message(properties=Properties(1.5)), "properties.message_id: a message id must be"),
        (Message(application_properties={1: 1}), "section 0x74"),  # type: ignore[dict-item]
        (Message(message_annotations={1.5: 1}), "section 0x72"),
        (Message(message_annotations={"a": object()}), "no type for the object"),
    ],
)
def test_a_message_that_cannot_be_written_is_refused(message: Message, problem: str) -> None:
    with pytest.raises(EncodeError, match=problem):
        encode_message(message)


def test_a_message_shows_what_it_has() -> None:
    assert repr(Message("x", header=Header(True))) == "Message(body='x', body_kind=4, header=Header(durable=True))"
    assert Message("x") != Message("y")
    assert Message("x") != "x"


@pytest.mark.parametrize("one", [b"\x00\x53\x75\xa0\x00", b"\x00\x53\x76\x45"])
def test_a_body_has_so_many_sections_at_most(one: bytes) -> None:
    walk(one * BODY_SECTIONS_MAX)
    with pytest.raises(DecodeError, match=f"more than {BODY_SECTIONS_MAX} sections in one body"):
        walk(one * (BODY_SECTIONS_MAX + 1))
