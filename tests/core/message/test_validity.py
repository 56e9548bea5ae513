"""What the gate takes as a message our own client decodes, and it takes whatever keeps the standard."""

from __future__ import annotations

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from headwater.amqp.errors import MessageFault
from headwater.amqp.messages.inbound import read_message
from headwater.amqp.protocol.conditions import DECODE_ERROR
from headwater.amqp.protocol.message import decode_message
from headwater.core import Encoding, Event, LogSettings
from headwater.core.errors import InvalidEvent
from headwater.core.limits import check_append
from headwater.core.message.validity import VALUES_MAX, message_fault
from headwater.core.message.values import WIDTHS, DecodeError
from headwater.storage.memory import MemoryLog
from tests.amqp.streams.messages import messages, properties

CODES = [code for code, width in enumerate(WIDTHS) if width != -4]


def received(message: bytes) -> Event:
    """The event of a message that is well-formed; there is none where what it says of itself is not fit."""
    try:
        return read_message(message).event
    except MessageFault as fault:
        assert fault.condition != DECODE_ERROR or "neither" in fault.description
        reject()


@settings(max_examples=100)
@given(messages)
def test_a_message_that_was_received_passes_as_an_event(message: bytes) -> None:
    event = received(message)
    assert message_fault(event.envelope, event.data, bool(event.encoding)) is None
    decode_message(event.envelope + event.data)


@settings(max_examples=100)
@given(messages, st.data())
def test_our_own_client_decodes_what_passes(message: bytes, draw: st.DataObject) -> None:
    garbled = bytearray(message)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(garbled) - 1))
        garbled[at] = draw.draw(st.sampled_from(CODES) | st.integers(0, 255))
    if message_fault(b"", bytes(garbled), True) is None:
        decode_message(bytes(garbled))


@settings(max_examples=100)
@given(messages, st.data())
def test_an_envelope_passes_as_the_whole_message_does(message: bytes, draw: st.DataObject) -> None:
    event = received(message)
    if event.encoding:
        return
    garbled = bytearray(event.envelope)
    at = draw.draw(st.integers(0, len(garbled) - 1))
    garbled[at] = draw.draw(st.sampled_from(CODES) | st.integers(0, 255))
    apart, whole = (
        message_fault(bytes(garbled), event.data, False),
        message_fault(b"", bytes(garbled) + event.data, True),
    )
    assert apart is not None or whole is None
    if apart is not None and whole is None:
        assert "ends where the content" in apart


def test_an_append_in_process_is_refused_as_any_other() -> None:
    log = MemoryLog(LogSettings())
    for given_event in (
        Event("A", b"payload", envelope=b"\0St\xc1\x07\x02\xa1\x01k\xee\0\0\0Su\xa0\x07"),
        Event("A", b"\0Sw\xf0\0\0\0\x05\x7f\xff\xff\xff@", encoding=Encoding.AMQP),
        Event("A", b"", encoding=Encoding.AMQP),
    ):
        with pytest.raises(InvalidEvent, match="not an AMQP message"):
            log.append([given_event])
    assert log.head() == 0


def test_a_message_of_very_many_values_is_refused() -> None:
    for count, is_fit in ((VALUES_MAX - 3, True), (VALUES_MAX + 1, False)):
        data = b"\0Sw\xd0" + (count + 4).to_bytes(4) + count.to_bytes(4) + b"@" * count
        assert (message_fault(b"", data, True) is None) == is_fit


def test_a_fault_names_its_section_and_field() -> None:
    data = properties(subject="S")[:-1] + b"\xff" + b"\0Su\xa0\0"
    assert message_fault(data, b"", False) == "properties: subject: a string is not UTF-8 (at byte 9)"
    with pytest.raises(InvalidEvent) as caught:
        check_append([Event("A"), Event("A", envelope=data)], 1000)
    assert caught.value.where == "events[1].envelope"


def test_any_bytes_are_taken_or_refused() -> None:
    for length in range(12):
        for fill in (0, 0x53, 0x75, 0xC0, 0xD0, 0xFF):
            noise = b"\0Ss"[: length % 4] + bytes([fill]) * length
            if message_fault(b"", noise, True) is None:
                decode_message(noise)
            else:
                with pytest.raises((DecodeError, InvalidEvent)):
                    check_append([Event("A", noise, encoding=Encoding.AMQP)], 1000)
