"""What a stored event is delivered as, wherever it was born; and that it comes back as it was."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.amqp.errors import MessageFault
from headwater.amqp.filters import format_offset
from headwater.amqp.messages.inbound import read_message
from headwater.amqp.messages.outbound import Outbound
from headwater.amqp.protocol.codec import decode
from headwater.amqp.protocol.message import walk
from headwater.amqp.protocol.types import Symbol, Timestamp, UByte, UInt
from headwater.core import Encoding, Event, SequencedEvent
from headwater.storage import Engine
from headwater.storage.memory import MemoryLog
from tests.amqp.streams.messages import (
    application_properties,
    cloud_event,
    data,
    delivery_annotations,
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
PLAIN = properties(subject="OrderPlaced") + data(b"payload")


def sections_of(message: bytes) -> dict[str, object]:
    """The sections of a message, decoded, by name; those that are there."""
    found = walk(message)
    names = ("header", "delivery_annotations", "message_annotations", "properties", "application_properties", "body")
    spans = {name: getattr(found, name) for name in names}
    return {name: decode(message, *span)[0].value for name, span in spans.items() if span}


def bare_message(message: bytes) -> bytes:
    """From the properties on."""
    found = walk(message)
    return message[(found.properties or found.application_properties or found.body)[0] :]


def rendered(event: Event, **fields: int) -> bytes:
    return Outbound(4, LOG).message(stored(event, **fields))


# Delivery annotations


def test_every_delivery_carries_offset_timestamp_and_partition():
    event = read_message(PLAIN).event
    out = Outbound(4, LOG).message(stored(event, number=10**18 - 1, recorded_at=1_700_000_000_123, partition=3))
    annotations = sections_of(out)["delivery_annotations"]
    assert annotations == {
        "event-streams-offset": "00999999999999999999",
        "event-streams-timestamp": 1_700_000_000_123,
        "event-streams-source-partition": "3",
    }
    assert {type(key) for key in annotations} == {Symbol}
    assert [type(annotations[key]) for key in sorted(annotations)] == [Symbol, Symbol, Timestamp]


@given(st.integers(1, 10**18 - 2), st.integers(1, 10**18))
def test_offsets_are_in_the_order_of_text(number, step):
    one, other = (
        sections_of(rendered(Event("t"), number=each))["delivery_annotations"]["event-streams-offset"]
        for each in (number, min(number + step, 10**18 - 1))
    )
    assert one < other
    assert len(one) == 20


def test_prepared_parts_follow_time_and_partition():
    outbound, event = Outbound(1024, LOG), read_message(PLAIN).event
    for recorded_at, partition in ((0, 0), (0, 1023), (5, 0), (0, 0), (2**44, 1023)):
        out = outbound.message(stored(event, recorded_at=recorded_at, partition=partition))
        annotations = sections_of(out)["delivery_annotations"]
        assert annotations["event-streams-timestamp"] == recorded_at
        assert annotations["event-streams-source-partition"] == str(partition)


def test_changed_partitions_of_the_link_are_an_array_of_symbols():
    out = Outbound(4, LOG).message(stored(read_message(PLAIN).event), associated_partitions=[0, 2, 3])
    annotations = sections_of(out)["delivery_annotations"]
    assert annotations["event-streams-associated-partitions-changed"] == ["0", "2", "3"]
    assert annotations["event-streams-associated-partitions-changed"].constructor == 0xA3
    assert annotations["event-streams-offset"] == "00000000000000000017"
    none_left = Outbound(4, LOG).message(stored(read_message(PLAIN).event), associated_partitions=[])
    assert sections_of(none_left)["delivery_annotations"]["event-streams-associated-partitions-changed"] == []
    many = Outbound(1024, LOG).message(stored(read_message(PLAIN).event), associated_partitions=range(1024))
    assert len(sections_of(many)["delivery_annotations"]["event-streams-associated-partitions-changed"]) == 1024


# The header


def test_annotations_come_between_header_and_the_rest():
    message = header(True, UByte(9)) + message_annotations(x_opt_a=1) + PLAIN
    found = sections_of(rendered(read_message(message).event))
    assert list(found) == [
        "header", "delivery_annotations", "message_annotations", "properties", "body",
    ]  # fmt: skip
    assert found["header"] == [True, 9]


def test_redelivery_is_told_in_the_header():
    outbound = Outbound(1, LOG)
    for message, expected in (
        (PLAIN, [None, None, None, None, 2]),
        (header(True) + PLAIN, [True, None, None, None, 2]),
        (header(None, None, None, None, UInt(5)) + PLAIN, [None, None, None, None, 7]),
        (header(None, None, None, None, UInt(2**32 - 1)) + value("x"), [None, None, None, None, 2**32 - 1]),
    ):
        out = outbound.message(stored(read_message(message).event), failures=2)
        found = sections_of(out)
        assert found["header"] == expected
        assert type(found["header"][4]) is UInt
        assert "delivery_annotations" in found
        assert bare_message(out) == bare_message(message)


def test_what_only_looks_like_a_header_harms_nothing():
    """Bytes that somebody appended over HTTP as an envelope, and that no message begins with."""
    for envelope in (b"\0Sp", b"\0Sp\xc0", b"\0Sp\xc0\x50\x01", b"\0Sp\xc0\x02\x01\xa1", b"\0Sp\x45"):
        for failures in (0, 1):
            out = Outbound(1, LOG).message(stored(Event("t", b"x", envelope=envelope)), failures)
            assert out.endswith(b"x")


# Messages come back as they were


@given(messages)
def test_bare_message_comes_back_byte_for_byte(message):
    try:
        incoming = read_message(message)
    except MessageFault:
        return
    out = Outbound(1, LOG).message(stored(incoming.event))
    given_sections, found = walk(message), walk(out)
    rest = max((span[1] for span in (given_sections.header, given_sections.delivery_annotations) if span), default=0)
    assert out[found.delivery_annotations[1] :] == message[rest:]


@given(messages)
def test_delivered_message_sent_on_is_the_same_event(message):
    """Its delivery annotations are ours, and are stripped as any others."""
    try:
        event = read_message(message).event
    except MessageFault:
        return
    assert read_message(Outbound(1, LOG).message(stored(event))).event == event


# Events born elsewhere


def test_event_born_elsewhere_is_a_cloud_event_of_the_binary_mode():
    event = Event(
        "OrderPlaced", b'{"n": 1}', ("customer:5", "order:1,7"), "0190-1", "/shop",
        {"subject": "x", "datacontenttype": "application/json", "time": "2024-01-01T00:00:00.123456+01:00"}, "key",
    )  # fmt: skip
    found = sections_of(rendered(event))
    assert found["properties"] == [
        "0190-1", None, None, "OrderPlaced", None, None, "application/json",
    ]  # fmt: skip
    assert type(found["properties"][6]) is Symbol
    assert found["message_annotations"] == {"event-streams-group-key": "key"}
    assert found["application_properties"] == {
        "cloudEvents:specversion": "1.0", "cloudEvents:id": "0190-1", "cloudEvents:source": "/shop",
        "cloudEvents:type": "OrderPlaced", "cloudEvents:subject": "x",
        "cloudEvents:time": "2024-01-01T00:00:00.123456+01:00", "cloudEvents:tags": "customer:5,order:1%2C7",
        "cloudEvents:partitionkey": "key", "cloudEvents:sequence": "000000000000000017",
    }  # fmt: skip
    assert found["body"] == b'{"n": 1}'


def test_source_and_time_are_the_logs_where_the_producer_gave_none():
    found = sections_of(rendered(Event("t", id="1"), recorded_at=1_500))["application_properties"]
    assert found["cloudEvents:source"] == LOG
    assert found["cloudEvents:time"] == "1970-01-01T00:00:01.500Z"


@pytest.mark.parametrize("media_type", ["text/ü", "x" * 256])
def test_media_type_that_is_no_symbol_is_an_application_property(media_type):
    out = rendered(Event("t", b"x", id="1", source="/s", attributes={"datacontenttype": media_type}))
    assert sections_of(out)["application_properties"]["cloudEvents:datacontenttype"] == media_type
    assert read_message(out).event.attributes["datacontenttype"] == media_type


born_elsewhere = stored_events.map(lambda event: event._replace(envelope=b"", encoding=Encoding.DATA)).filter(
    lambda event: event.attributes.get("subject") != "" and event.attributes.get("time") is None
)


@given(born_elsewhere)
def test_event_born_elsewhere_comes_back_as_the_same_event(event):
    incoming = read_message(Outbound(1024, LOG).message(event))
    found = incoming.event
    added = {"sequence", "time"} - set(event.attributes)
    attributes = {name: text for name, text in found.attributes.items() if name not in added}
    assert found._replace(envelope=b"", attributes=attributes) == event.event._replace(
        source=event.source or LOG, attributes=dict(event.attributes)
    )
    assert incoming.target_partition is None


@pytest.mark.parametrize("size", [0, 255, 256, 70_000])
def test_large_payloads_and_many_attributes_take_the_long_forms(size):
    attributes = {f"x{number}": "v" * 300 for number in range(60)}
    event = Event("t", bytes(size), id="1", source="/s" * 400, attributes=attributes)
    found = read_message(rendered(event)).event
    assert (found.data, found.source) == (event.data, event.source)
    assert {name: found.attributes[name] for name in attributes} == attributes


def test_delivery_annotations_of_the_producer_are_not_delivered():
    message = delivery_annotations(event_streams_target_partition="1", x_opt_secret=1) + cloud_event() + data(b"")
    assert "x-opt-secret" not in sections_of(rendered(read_message(message).event))["delivery_annotations"]


def test_footer_stays_with_its_message():
    message = application_properties({"a": "b"}) + data(b"x") + section(0x78, {Symbol("x-sum"): 5})
    assert rendered(read_message(message).event).endswith(message)


def test_any_stored_event_is_rendered():
    @given(st.lists(stored_events, min_size=1))
    def renders(events: list[SequencedEvent]) -> None:
        alone = [Outbound(1024, LOG).message(event) for event in events]
        assert all(alone) and Outbound(1024, LOG).messages(events) == alone

    renders()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_messages_come_back_from_a_log_as_they_were(kind, tmp_path):
    given_messages = [
        PLAIN,
        data(b""),
        value("text"),
        header(True) + message_annotations(event_streams_group_key="k") + PLAIN,
        properties(content_type=Symbol("text/plain"), creation_time=Timestamp(5)) + data(b"x"),
        cloud_event(id="17", tags="order:17", partitionkey="p") + data(b"{}"),
        properties(content_type=Symbol("application/cloudevents+json"))
        + data(b'{"specversion":"1.0","id":"2","source":"/s","type":"t","data":1}'),
    ]
    with ExitStack() as opened:
        log = MemoryLog() if kind == "memory" else opened.enter_context(Engine(tmp_path)).create("orders")
        log.append([read_message(each).event for each in given_messages])
        found = [Outbound(1, LOG).message(event) for event in log.read()]
    assert [bare_message(each) for each in found] == [bare_message(each) for each in given_messages]
    numbers = [sections_of(each)["delivery_annotations"]["event-streams-offset"] for each in found]
    assert numbers == [format_offset(number) for number in range(1, 8)]
