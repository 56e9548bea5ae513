"""SASL frames, and the PLAIN message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.amqp.protocol.codec import DecodeError, EncodeError, decode, encode
from headwater.amqp.protocol.performatives import Open, encode_performative
from headwater.amqp.protocol.sasl import (
    AUTH,
    OK,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode_sasl,
    encode_sasl,
    parse_plain,
    plain,
)
from headwater.amqp.protocol.types import Array, Described, Symbol, ULong
from tests.amqp.composites import SASL_FRAMES, composites
from tests.amqp.values import same


def decoded(body: bytes) -> Any:
    return decode_sasl(body, 0, len(body))


@given(st.one_of(*map(composites, SASL_FRAMES)))
def test_a_sasl_frame_is_decoded_as_it_was_encoded(sasl: Any) -> None:
    assert decoded(bytes(encode_sasl(sasl))) == sasl


def test_mechanisms_are_an_array_even_if_there_is_one() -> None:
    body = bytes(encode_sasl(SaslMechanisms(("ANONYMOUS",))))
    assert same(decode(body, 0, len(body))[0], Described(ULong(0x40), [Array([Symbol("ANONYMOUS")])]))


def test_a_client_may_send_its_init_short_or_with_a_symbol_as_descriptor() -> None:
    assert decoded(encode(Described(ULong(0x41), [Symbol("ANONYMOUS")]))) == SaslInit("ANONYMOUS")
    init = encode(Described(Symbol("amqp:sasl-init:list"), [Symbol("PLAIN"), b"x", None]))
    assert decoded(init) == SaslInit("PLAIN", b"x")


def test_what_is_no_sasl_frame_is_an_error_that_says_why() -> None:
    for body, problem in [
        (b"", "cut short"),
        (bytes(encode_performative(Open("me"))), "expected a SASL frame, got another"),
        (encode("x"), "expected SASL frame, got constructor 0xa1"),
        (encode(Described(ULong(0x41), [])), "sasl-init.mechanism: a value is required"),
        (encode(Described(ULong(0x41), ["PLAIN"])), "sasl-init.mechanism: expected symbol"),
        (encode(Described(ULong(0x44), [1])), "sasl-outcome.code: expected ubyte"),
        (bytes(encode_sasl(SaslOutcome(OK))) + b"x", "sasl-outcome does not end at the end of its frame"),
        (bytes(encode_sasl(SaslOutcome(AUTH)))[:-1], "cut short"),
    ]:
        with pytest.raises(DecodeError) as error:
            decoded(body)
        assert problem in error.value.problem


def test_an_outcome_out_of_range_is_not_encoded() -> None:
    with pytest.raises(EncodeError, match=r"sasl-outcome\.code"):
        encode_sasl(SaslOutcome(256))


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(SaslInit("PLAIN", b"\0a\0secret", "host"))
    assert "secret" not in repr(SaslResponse(b"\0a\0secret"))


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(names, names)
def test_plain_says_name_and_password(name: str, password: str) -> None:
    assert parse_plain(plain(name, password)) == ("", name, password)


def test_plain_may_name_another_identity() -> None:
    assert parse_plain("wem\0är\0ß".encode()) == ("wem", "är", "ß")


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (b"", "1 part"),
        (b"a\0secret", "2 part"),
        (b"\0a\0secret\0", "4 part"),
        (b"\0a\0secret\xff", "not UTF-8"),
        (b"\0\0secret", "empty name"),
        (b"secret\0a\0", "empty password"),
    ],
)
def test_a_malformed_plain_is_an_error_that_does_not_show_it(response: bytes, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem) as error:
        parse_plain(response)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(("name", "password"), [("", "b"), ("a", ""), ("a\0", "b"), ("a", "b\0")])
def test_plain_is_not_made_of_what_it_cannot_say(name: str, password: str) -> None:
    with pytest.raises(ValueError, match="for PLAIN"):
        plain(name, password)
