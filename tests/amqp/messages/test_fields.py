"""Filters see the sections that a consumer would get."""

from __future__ import annotations

import pytest
from hypothesis import given

from headwater.amqp.errors import MessageFault
from headwater.amqp.messages.fields import EventFields
from headwater.amqp.messages.headers import HEADER_DEFAULTS
from headwater.amqp.messages.inbound import read_message
from headwater.amqp.messages.outbound import Outbound
from headwater.amqp.protocol.codec import decode
from headwater.amqp.protocol.message import walk
from headwater.amqp.protocol.types import Symbol, Timestamp, UByte, UInt
from headwater.core import Encoding, Event
from headwater.core.message.validity import HEADER_FIELDS, PROPERTIES_FIELDS
from tests.amqp.streams.messages import (
    application_properties,
    data,
    header,
    message_annotations,
    messages,
    properties,
    section,
    stored,
    value,
)
from tests.strategies import stored_events

LOG = "/logs/orders"


def fields_of(message: bytes) -> EventFields:
    return EventFields(stored(read_message(message).event), LOG)


def assert_as_delivered(event):
    message = Outbound(1024, LOG).message(event)
    found, fields = walk(message), EventFields(event, LOG)

    def content(span):
        return decode(message, *span)[0].value if span else ()

    def named(span, names):
        return {name: each for name, each in zip(names, content(span), strict=False) if each is not None}

    assert fields.header() == {**HEADER_DEFAULTS, **named(found.header, HEADER_FIELDS)}
    assert fields.properties() == named(found.properties, PROPERTIES_FIELDS)
    assert fields.delivery_annotations() == dict(content(found.delivery_annotations))
    assert fields.message_annotations() == dict(content(found.message_annotations))
    assert fields.application_properties() == dict(content(found.application_properties))
    assert fields.footer() == dict(content(found.footer))


@given(messages)
def test_message_is_seen_as_it_is_delivered(message):
    try:
        event = read_message(message).event
    except MessageFault:
        return
    assert_as_delivered(stored(event))


@given(stored_events)
def test_event_born_elsewhere_is_seen_as_it_is_delivered(event):
    assert_as_delivered(event._replace(envelope=b"", encoding=Encoding.DATA))


def test_every_section_is_found():
    fields = fields_of(
        header(True, UByte(7)) + message_annotations(x_opt_a=1) + properties(subject="S", to="q")
        + application_properties({"k": 5}) + data(b"x") + section(0x78, {Symbol("x-sum"): 3})
    )  # fmt: skip
    assert fields.header() == {"durable": True, "priority": 7, "first-acquirer": False, "delivery-count": 0}
    assert fields.properties() == {"subject": "S", "to": "q"}
    assert fields.message_annotations() == {"x-opt-a": 1}
    assert fields.application_properties() == {"k": 5}
    assert fields.footer() == {"x-sum": 3}
    assert fields.delivery_annotations() == {
        "event-streams-offset": "00000000000000000017", "event-streams-timestamp": 1_700_000_000_123,
        "event-streams-source-partition": "0",
    }  # fmt: skip
    assert [type(each) for each in fields.delivery_annotations().values()] == [Symbol, Timestamp, Symbol]


def test_absent_header_has_the_defaults_of_the_standard():
    found = fields_of(value("x")).header()
    assert found == {"durable": False, "priority": 4, "first-acquirer": False, "delivery-count": 0}
    assert [type(each) for each in found.values()] == [bool, UByte, bool, UInt]


def test_absent_sections_are_empty():
    fields = fields_of(value("x"))
    assert not fields.properties() and not fields.message_annotations()
    assert not fields.application_properties() and not fields.footer()


def test_unreadable_section_is_empty():
    fields = EventFields(stored(Event("t", b"x", envelope=b"\x00St\xc1\x03\x02\xa1\x05\x00Su\xa0\x01")), LOG)
    assert fields.application_properties() == {}
    assert fields.application_properties() == {}


@pytest.mark.parametrize("event", [
    Event("t", b"x", envelope=b"junk"), Event("t", b"junk", encoding=Encoding.AMQP), Event("t", encoding=Encoding.AMQP),
    Event("t", b"", envelope=b"\x00Ss\xc0\x05\x01"),
])  # fmt: skip
def test_bytes_that_are_no_message_have_no_fields(event):
    fields = EventFields(stored(event), LOG)
    assert not fields.properties() and not fields.application_properties()
    assert fields.header() == HEADER_DEFAULTS
    assert fields.delivery_annotations()
