"""Whatever bytes an AMQP peer sends, decoding them gives a value or a DecodeError that lies within them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.amqp.protocol.codec import DecodeError, decode, encode
from headwater.amqp.protocol.message import (
    DATA,
    DATAS,
    SEQUENCE,
    Header,
    Message,
    Properties,
    decode_message,
    decode_section,
    encode_message,
    walk,
)
from headwater.amqp.protocol.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
    decode_performative,
    encode_performative,
)
from headwater.amqp.protocol.sasl import (
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    decode_sasl,
    encode_sasl,
    parse_plain,
    plain,
)
from headwater.amqp.protocol.types import (
    Array,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from headwater.core.message.values import skip

SCALARS = [
    None, True, UByte(1), UShort(2), UInt(0), UInt(3), UInt(70000), ULong(4), -1, 2**40, Float(1.5), 2.5, Char("c"),
    Timestamp(5), uuid.UUID(int=6), Decimal32(b"1234"), Decimal64(b"12345678"), Decimal128(b"1234567812345678"),
    b"binary", "string", "s" * 300, Symbol("symbol"),
]  # fmt: skip
VALUES = [
    *SCALARS,
    SCALARS,
    {"map": SCALARS, Symbol("key"): {}, 1: [[[]]]},
    Described(Symbol("d"), Described(ULong(1), [])),
    *(Array([scalar, scalar]) for scalar in SCALARS),
    Array([Array(["a"]), Array([1, 2])]),
    Array([Described(ULong(7), [1]), Described(ULong(7), [])]),
    Array([True] * 8, 0x41),
    Array([{"a": 1}, {}], 0xC1),
]
ERROR = ErrorCondition("amqp:not-found", "why", {"info": [1, 2]})
PERFORMATIVES = [
    Open("container", "host", 512, 10, 30000, ("en-US",), (), ("a", "b"), (), {"product": "x", "n": 1}),
    Begin(0, 1, 2048, 2048, 7, (), ("c",), {}),
    Attach("link", 0, True, 1, 0, Source("log", 2, "never", 5, False, None, "copy", {"f": Described(ULong(4), "x > 1")},
           Modified(True), ("amqp:accepted:list",)), Target("t"), {b"tag": Described(ULong(0x24), [])}, True, 3, 2**40),
    Attach("link", 0, False, target=Coordinator(("amqp:local-transactions",))),
    Flow(1, 2, 3, 4, 5, 6, 7),
    Flow(),
    Transfer(0, 1, b"tag", 0, False, True, 1, Received(1, 2)),
    *(Disposition(True, 1, 2, True, state) for state in (None, Accepted(), Released(), Rejected(ERROR))),
    Disposition(False, 1, state=TransactionalState(b"txn", Modified(True, True, {"x-opt-a": 1}))),
    Detach(1, True, ERROR),
    End(),
    Close(ERROR),
]  # fmt: skip
SECTIONS = {
    "header": Header(True, 5, 1000, True, 2),
    "delivery_annotations": {"x-opt-a": 1},
    "message_annotations": {"x-opt-b": Timestamp(1), 5: "c"},
    "properties": Properties("id", b"me", "to", "subject", "reply", ULong(5), "text/plain", "gzip", 1, 2, "g", 3, "r"),
    "application_properties": {"cloudEvents:id": "1", "n": 1.5},
}
MESSAGES = [
    Message([b"data"], DATA, **SECTIONS, footer={"crc": UInt(1)}),  # type: ignore[arg-type]
    Message([b"one", b"x" * 300], DATAS),
    Message([[1, "two"], []], SEQUENCE),
    Message({"value": [None]}),
]
SASL = [SaslMechanisms(("PLAIN", "ANONYMOUS")), SaslInit("PLAIN", plain("name", "word"), "host"), SaslOutcome(0, b"x")]

CORPUS = [
    *map(encode, VALUES),
    *(bytes(encode_performative(performative)) for performative in PERFORMATIVES),
    *map(encode_message, MESSAGES),
    *(bytes(encode_sasl(frame)) for frame in SASL),
    *(bytes([code]) * 20 for code in range(256)),
]

Edit = tuple[int, int, bytes]


def _edited(whole: bytes, edits: list[Edit]) -> bytes:
    """Each edit puts some bytes in the place of others."""
    for at, removed, put in edits:
        at %= len(whole) + 1
        whole = whole[:at] + put + whole[at + removed :]
    return whole


interesting = st.sampled_from([b"\xff", b"\x00", b"\xff\xff\xff\xff", b"\x7f", *(bytes([code]) for code in range(256))])
edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 4), st.binary(max_size=3) | interesting), max_size=4)
hurt = st.builds(_edited, st.sampled_from(CORPUS), edits)
hostile = st.binary(max_size=60) | hurt


def _read(function: Callable[..., Any], *given: Any) -> Any:
    """What the function gives, or the DecodeError that it raises."""
    try:
        return function(*given)
    except DecodeError as refused:
        assert refused.problem
        assert 0 <= refused.at <= len(given[0])
        assert len(str(refused)) < 400
        return refused


@settings(max_examples=1000)
@given(hostile)
def test_any_bytes_are_a_value_or_an_error(given: bytes) -> None:
    outcome = _read(decode, given, 0, len(given))
    skipped = _read(skip, given, 0, len(given))
    if isinstance(outcome, DecodeError):
        return
    value, after = outcome
    assert skipped == after <= len(given)
    again = encode(value)
    assert len(again) <= after + 8  # an empty array may have come without a constructor, or counts grow wide
    assert encode(decode(again, 0, len(again))[0]) == again


@settings(max_examples=1000)
@given(hostile)
def test_any_bytes_are_a_performative_or_an_error(given: bytes) -> None:
    outcome = _read(decode_performative, given, 0, len(given))
    if not isinstance(outcome, DecodeError):
        performative, after = outcome
        assert after <= len(given)
        again = bytes(encode_performative(performative))
        assert bytes(encode_performative(decode_performative(again, 0, len(again))[0])) == again


@settings(max_examples=1000)
@given(hostile)
@example(b"")
def test_any_bytes_are_a_message_or_an_error(given: bytes) -> None:
    sections = _read(walk, given)
    message = _read(decode_message, given)
    if isinstance(sections, DecodeError):
        assert isinstance(message, DecodeError)
        return
    for span in (sections.header, sections.properties, sections.message_annotations, sections.body, sections.footer):
        if span is not None:
            assert 0 <= span[0] < span[1] <= len(given)
            _read(decode_section, given, span)
    if sections.payload is not None:
        assert sections.payload[0] <= sections.payload[1] <= len(given)
    if not isinstance(message, DecodeError):
        again = encode_message(message)
        assert encode_message(decode_message(again)) == again


@given(hostile)
def test_any_bytes_are_a_sasl_frame_or_an_error(given: bytes) -> None:
    outcome = _read(decode_sasl, given, 0, len(given))
    if not isinstance(outcome, DecodeError):
        encode_sasl(outcome)


@given(st.binary(max_size=20) | st.builds(_edited, st.just(plain("name", "word")), edits))
def test_any_bytes_are_a_plain_response_or_an_error(given: bytes) -> None:
    outcome = _read(parse_plain, given)
    assert isinstance(outcome, DecodeError) or len(outcome) == 3


@given(hostile, st.integers(0, 70))
def test_what_lies_behind_the_end_is_never_part_of_a_value(given: bytes, end: int) -> None:
    end = min(end, len(given))
    for function in (decode, decode_performative):
        outcome = _read(function, given, 0, end)
        if not isinstance(outcome, DecodeError):
            assert outcome[1] <= end
            assert repr(outcome[0]) == repr(function(given[:end], 0, end)[0])
