"""Frames and protocol headers."""

from __future__ import annotations

import pytest

from headwater.amqp.protocol.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_HEADER,
    FRAME_HEADER_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    TLS_HEADER,
    frame,
)


def test_a_frame_says_its_size_and_where_its_body_begins() -> None:
    whole = frame(7, b"body")
    assert whole == bytes.fromhex("0000000c 02 00 0007") + b"body"
    assert FRAME_HEADER.unpack_from(whole) == (len(whole), 2, 0, 7)
    assert FRAME_HEADER.size == FRAME_HEADER_SIZE


def test_a_frame_may_be_of_sasl_and_of_a_bytearray() -> None:
    assert frame(0, bytearray(b"x"), SASL_FRAME) == bytes.fromhex("00000009 02 01 0000") + b"x"


def test_the_empty_frame_is_a_header() -> None:
    assert bytes.fromhex("00000008 02 00 0000") == EMPTY_FRAME


@pytest.mark.parametrize(("header", "protocol"), [(AMQP_HEADER, 0), (TLS_HEADER, 2), (SASL_HEADER, 3)])
def test_a_protocol_header_names_protocol_and_version(header: bytes, protocol: int) -> None:
    assert header == b"AMQP" + bytes([protocol, 1, 0, 0])
    assert len(header) == 8
