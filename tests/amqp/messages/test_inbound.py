"""What a received message becomes: envelope and data, type, id, tags, keys; and which messages are rejected."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.amqp.errors import MessageFault
from headwater.amqp.messages.inbound import read_message
from headwater.amqp.protocol.codec import encode
from headwater.amqp.protocol.types import Char, Described, Int, Symbol, Timestamp, UByte, UInt, ULong
from headwater.core import Encoding, Event, LogSettings
from headwater.core.errors import InvalidEvent
from headwater.core.limits import check_append
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
    value,
)
from tests.every import every

MESSAGE = properties(subject="OrderPlaced") + application_properties({"a": 1}) + data(b"payload")
STRUCTURED = Symbol("application/cloudevents+json")


def event_of(message: bytes) -> Event:
    return read_message(message).event


def fault_of(message: bytes) -> MessageFault:
    with pytest.raises(MessageFault) as caught:
        read_message(message)
    return caught.value


# What is stored


@every("size", [0, 1, 255, 256, 70_000])
@every("before", [b"", properties(subject="A"), application_properties({"k": "v"}), MESSAGE[:-12]])
def test_single_data_section_is_envelope_and_payload(before, size):
    message = before + data(bytes(size))
    event = event_of(message)
    assert event.envelope + event.data == message
    assert (event.data, event.encoding) == (bytes(size), Encoding.DATA)


@pytest.mark.parametrize("body", [
    data(b"a") + data(b"b"), section(0x76, [1, 2]) + section(0x76, [3]), value("text"), value(None), b"",
    data(b"a") + section(0x78, {Symbol("x-crc"): 1}),
])  # fmt: skip
def test_any_other_body_is_kept_whole(body):
    message = properties(subject="OrderPlaced", content_type=Symbol("text/plain")) + body
    event = event_of(message)
    assert (event.envelope, event.data, event.encoding) == (b"", message, Encoding.AMQP)
    assert event.type == "OrderPlaced"
    assert event.attributes == {"datacontenttype": "application/amqp"}


def test_delivery_annotations_are_evaluated_and_stripped():
    annotations = delivery_annotations(event_streams_target_partition=Symbol("3"), x_opt_a=1)
    incoming = read_message(annotations + MESSAGE)
    assert incoming.target_partition == "3"
    assert incoming.event == event_of(MESSAGE)
    whole = read_message(annotations + value("x"))
    assert (whole.event.data, whole.target_partition) == (value("x"), "3")
    assert read_message(MESSAGE).target_partition is None
    assert read_message(delivery_annotations(x_opt_a=1) + MESSAGE).target_partition is None


def test_message_annotations_are_kept():
    annotated = message_annotations(x_opt_a=1, event_streams_group_key="k") + MESSAGE
    event = event_of(annotated)
    assert event.envelope + event.data == annotated
    assert event.group_key == "k"


@pytest.mark.parametrize("given_header", [
    header(), header(False), header(None, UByte(4), None, False, UInt(0)), section(0x70, []),
])  # fmt: skip
def test_header_that_says_nothing_is_dropped(given_header):
    assert event_of(given_header + MESSAGE) == event_of(MESSAGE)


def test_a_header_of_too_many_fields_is_refused_before_it_is_decoded():
    fault = fault_of(section(0x70, [None] * 1100) + MESSAGE)
    assert fault.description == "header: expected at most 5 fields, got 1100 (at byte 3)"


@pytest.mark.parametrize("given_header", [
    header(True), header(None, UByte(5)), header(None, None, UInt(1000)), header(None, None, None, True),
    header(None, None, None, None, UInt(1)),
])  # fmt: skip
def test_header_that_says_something_is_kept(given_header):
    event = event_of(given_header + delivery_annotations(x_opt_a=1) + MESSAGE)
    assert event.envelope + event.data == given_header + MESSAGE
    assert event_of(given_header + value(1)).data == given_header + value(1)


def test_sections_may_be_described_by_long_numbers():
    body = b"\x00\x80" + (0x75).to_bytes(8) + encode(b"payload")
    strange = b"\x00\x80" + (0x70).to_bytes(8) + encode([True]) + properties(subject="OrderPlaced") + body
    event = event_of(strange)
    assert event.envelope + event.data == header(True) + properties(subject="OrderPlaced") + body
    assert (event.type, event.data, event.encoding) == ("OrderPlaced", b"payload", Encoding.DATA)


@pytest.mark.parametrize(("name", "number", "before", "after"), [
    ("amqp:header:list", "0x70", b"", MESSAGE), ("amqp:delivery-annotations:map", "0x71", b"", MESSAGE),
    ("amqp:properties:list", "0x73", b"", data(b"")), ("amqp:data:binary", "0x75", properties(subject="S"), b""),
    ("amqp:data:binary", "0x75", data(b"a"), b""), ("amqp:amqp-value:*", "0x77", b"", b""),
    ("amqp:footer:map", "0x78", MESSAGE, b""),
])  # fmt: skip
def test_a_section_that_a_symbol_describes_is_refused(name, number, before, after):
    """Some clients give up their link over one."""
    value = {"list": [], "map": {}, "binary": b"x", "*": 1}[name.rpartition(":")[2]]
    fault = fault_of(before + encode(Described(Symbol(name), value)) + after)
    section = f"the section {name.split(':')[1]} is described by a symbol"
    said = f"{section}: use its code, {number} (at byte {len(before)})"
    assert (fault.condition, fault.description) == ("amqp:decode-error", said)


# What it says of itself


@pytest.mark.parametrize(("subject", "type"), [
    ("OrderPlaced", "OrderPlaced"), ("Größe", "Größe"), ("x" * 200, "x" * 200), ("x" * 201, "amqp.message"),
    ("", "amqp.message"), ("a\nb", "amqp.message"), (None, "amqp.message"),
])  # fmt: skip
def test_type_is_the_subject_where_a_log_takes_it(subject, type):
    assert event_of(properties(to="queue", subject=subject) + data(b"")).type == type


def test_message_without_properties_has_the_default_type():
    assert event_of(data(b"x")) == Event("amqp.message", b"x", envelope=b"\x00Su\xa0\x01")
    assert event_of(section(0x73, []) + data(b"x")).type == "amqp.message"


def test_message_id_is_not_the_events_id():
    assert event_of(properties(message_id="m-1") + data(b"")).id == ""


@pytest.mark.parametrize("message_id", [uuid.UUID(int=5), ULong(2**63), b"\0\1", "m" * 300, ULong(0), None])
def test_every_type_of_message_id_is_passed_over(message_id):
    assert event_of(properties(message_id=message_id, subject="S" * 100) + data(b"")).type == "S" * 100


def test_content_type_and_creation_time_are_told_to_other_readers():
    event = event_of(properties(content_type=Symbol("text/plain"), creation_time=Timestamp(1_500)) + data(b"x"))
    assert event.attributes == {"datacontenttype": "text/plain", "time": "1970-01-01T00:00:01.500Z"}
    fault = fault_of(properties(content_type="text/plain") + data(b"x"))
    assert fault.description == "properties: content-type: expected symbol, got string (0xa1) (at byte 12)"
    assert event_of(properties(content_type=Symbol("a\x01")) + data(b"x")).attributes == {}
    assert (
        event_of(properties(creation_time=Timestamp(-1)) + data(b"")).attributes["time"] == "1969-12-31T23:59:59.999Z"
    )
    assert event_of(properties(creation_time=Timestamp(2**62)) + data(b"")).attributes == {}


@pytest.mark.parametrize("key", ["k", Symbol("k")])
def test_group_key_is_a_message_annotation(key):
    assert event_of(message_annotations(event_streams_group_key=key) + data(b"")).group_key == "k"
    assert event_of(message_annotations(x_opt_other=key) + data(b"")).group_key == ""


# CloudEvents


@pytest.mark.parametrize("separator", [":", "_"])
def test_binary_mode_gives_id_source_type_tags_and_attributes(separator):
    attributes = {"id": "17", "source": "/shop", "type": "OrderPlaced", "time": "2024-01-01T00:00:00+01:00",
                  "subject": "x", "tags": "order:17,b", "partitionkey": "p", "dataschema": "http://x/y"}  # fmt: skip
    message = (
        properties(subject="other", content_type=Symbol("text/plain"))
        + cloud_event(separator, **attributes)
        + data(b"hello")
    )
    event = event_of(message)
    assert event == Event(
        "OrderPlaced", b"hello", ("order:17", "b"), "17", "/shop",
        {"time": "2024-01-01T00:00:00+01:00", "subject": "x", "dataschema": "http://x/y",
         "datacontenttype": "text/plain"},
        "p", message[:-5],
    )  # fmt: skip


def test_binary_mode_takes_native_types():
    message = cloud_event(
        time=Timestamp(1_500),
        flag=True,
        other=False,
        count=Int(-5),
        big=2**40,
        blob=b"\xff",
        nothing=None,
        label=Symbol("s"),
        char=Char("ä"),
    ) + data(b"")
    assert event_of(message).attributes == {
        "time": "1970-01-01T00:00:01.500Z", "flag": "true", "other": "false", "count": "-5", "big": str(2**40),
        "blob": "/w==", "label": "s", "char": "ä",
    }  # fmt: skip


def test_other_application_properties_of_a_cloud_event_stay_in_the_envelope_only():
    given = {"cloudEvents:specversion": "1.0", "cloudEvents:id": "1", "cloudEvents:source": "/s",
             "cloudEvents:type": "t", "trace": "x", "n": 7, "cloudEventsX": "y"}  # fmt: skip
    assert event_of(application_properties(given) + data(b"")).attributes == {}


def test_long_maps_and_long_strings_are_read_alike():
    event = event_of(cloud_event(subject="s" * 300, **{f"x{n}": str(n) for n in range(50)}) + data(b""))
    assert event.attributes["subject"] == "s" * 300
    assert event.attributes["x49"] == "49"


def test_group_key_annotation_goes_before_the_partition_key_of_a_cloud_event():
    message = message_annotations(event_streams_group_key="annotated") + cloud_event(partitionkey="p") + data(b"")
    assert event_of(message).group_key == "annotated"


def test_cloud_event_with_another_body_is_kept_whole():
    message = cloud_event(id="17") + value("text")
    event = event_of(message)
    assert (event.id, event.data, event.encoding) == ("17", message, Encoding.AMQP)
    assert event.attributes == {"datacontenttype": "application/amqp"}


def test_structured_mode_keeps_the_document_as_data():
    document = b'{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"x","tags":"a:1","data":{"n":1}}'
    message = properties(content_type=Symbol("application/cloudevents+json; charset=UTF-8")) + data(document)
    event = event_of(message)
    assert event.envelope + event.data == message
    assert (event.data, event.id, event.type, event.tags) == (document, "1", "t", ("a:1",))
    assert event.attributes == {"subject": "x", "datacontenttype": "application/cloudevents+json; charset=UTF-8"}


def test_other_formats_of_cloud_events_pass_as_they_are():
    event = event_of(properties(content_type=Symbol("application/cloudevents+avro")) + data(b"\1"))
    assert (event.type, event.data) == ("amqp.message", b"\1")


@every("document", [
    b"", b"{", b"\xff", b"[" * 2000, b"{}", b'{"specversion":"1.0","id":"1"}', *(
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t",%b}' % more
        for more in (
            b'"datacontenttype":7', b'"datacontenttype":""', b'"datacontenttype":"a\\u0000"', b'"time":"now"',
            b'"data":1,"data_base64":"AA=="', b'"data_base64":12', b'"tags":","', b'"comment":"a\\n"',
        )
    ),
])  # fmt: skip
def test_a_document_that_is_no_event_of_a_log_is_a_payload_as_any_other(document):
    """The gate does not read payloads: over HTTP the same message is taken."""
    before = message_annotations(event_streams_group_key="k") + properties(subject="S", content_type=STRUCTURED)
    event = event_of(before + data(document))
    envelope = (before + data(document))[: -len(document) or None]
    media_type = {"datacontenttype": "application/cloudevents+json"}
    assert event == Event("S", document, attributes=media_type, group_key="k", envelope=envelope)


def test_a_trace_that_is_too_many_attributes_is_left_out():
    """Else this way in would refuse what the others take."""
    trace = application_properties({"traceparent": PARENT, **{f"cloudEvents:{name}": value for name, value in (
        ("specversion", "1.0"), ("id", "1"), ("source", "/s"), ("type", "t"), *((f"a{n}", "") for n in range(64)),
    )}})  # fmt: skip
    assert len(event_of(trace + data(b"")).attributes) == 64


# What is rejected


@every(("message", "condition", "said"), [
    (properties(content_type=Symbol("application/cloudevents-batch+json")) + data(b"[]"),
     "amqp:not-implemented", "has no batches"),
    (properties(content_type=Symbol("application/cloudevents+json")) + value("{}"),
     "amqp:invalid-field", "one data section"),
    (application_properties({"cloudEvents:id": "1"}) + data(b""), "amqp:invalid-field", "specversion"),
    (application_properties({"cloudEvents:specversion": "1.0", "cloudEvents:id": "1"}) + data(b""),
     "amqp:invalid-field", "source"),
    (cloud_event(time="yesterday") + data(b""), "amqp:invalid-field", "time"),
    (cloud_event(time=Timestamp(2**62)) + data(b""), "amqp:invalid-field", "time"),
    (cloud_event(ratio=1.5) + data(b""), "amqp:invalid-field", "ratio"),
    (cloud_event(Upper="x") + data(b""), "amqp:invalid-field", "Upper"),
    (cloud_event(data="x") + data(b""), "amqp:invalid-field", "data"),
    (cloud_event(id="x" * 513) + data(b""), "amqp:invalid-field", "id"),
    (cloud_event(type="a\nb") + data(b""), "amqp:invalid-field", "type"),
    (cloud_event(tags="a tag:,") + data(b""), "amqp:invalid-field", "tags[1]"),
    (application_properties({"cloudEvents:id": "1", "cloudEvents_id": "2"}) + data(b""),
     "amqp:invalid-field", "given twice"),
    (message_annotations(event_streams_group_key=5) + data(b""), "amqp:invalid-field", "event-streams-group-key"),
    (message_annotations(event_streams_group_key="a\nb") + data(b""), "amqp:invalid-field", "group_key"),
    (message_annotations(event_streams_group_key="x" * 513) + data(b""), "amqp:invalid-field", "group_key"),
    (delivery_annotations(event_streams_target_partition=3) + data(b""),
     "amqp:invalid-field", "event-streams-target-partition"),
    (section(0x73, [None, None, None, 5]) + data(b""), "amqp:decode-error", "subject"),
    (section(0x73, [None, None, None, None, None, None, 5]) + data(b""), "amqp:decode-error", "content-type"),
    (section(0x73, [None] * 9 + [5]) + data(b""), "amqp:decode-error", "creation-time"),
    (section(0x73, [["list"], None, None, "S"]) + data(b""), "amqp:decode-error", "properties: message-id"),
    (header("durable") + data(b""), "amqp:decode-error", "durable"),
    (b"", "amqp:decode-error", "neither"),
    (header(), "amqp:decode-error", "neither"),
    (b"\x00", "amqp:decode-error", ""),
    (b"hello", "amqp:decode-error", "section"),
    (data(b"x")[:-1], "amqp:decode-error", "cut short"),
    (data(b"x") + b"\0", "amqp:decode-error", ""),
    (data(b"x") + properties(subject="late"), "amqp:decode-error", "follows"),
    (b"\x00Ss\xc0\x05\x04\xa1\x20ab" + data(b""), "amqp:decode-error", ""),
    (b"\x00St\xc1\x12\x02\xa1\x0ecloudEvents:id\xa1" + data(b""), "amqp:decode-error", "application-properties"),
])  # fmt: skip
def test_faulty_message_is_rejected_with_condition_and_reason(message, condition, said):
    fault = fault_of(message)
    assert fault.condition == condition
    assert type(fault.condition) is Symbol
    assert said in fault.description


def test_message_over_the_logs_limit_is_rejected():
    settings = LogSettings(event_bytes_max=1024)
    assert read_message(data(bytes(1019 - 3)), settings).event.data == bytes(1016)
    with pytest.raises(MessageFault) as caught:
        read_message(data(bytes(1024)), settings)
    assert caught.value.condition == "amqp:link:message-size-exceeded"
    assert "at most 1024" in caught.value.description


@given(messages)
def test_a_log_takes_whatever_is_read_and_refuses_what_is_not(message):
    try:
        event = event_of(message)
    except MessageFault:
        with pytest.raises(InvalidEvent):
            check_append([Event("t", message, encoding=Encoding.AMQP)], LogSettings().event_bytes_max)
    else:
        check_append([event], LogSettings().event_bytes_max)


@given(messages, st.data())
def test_garbled_message_is_read_or_rejected(message, draw):
    garbled = bytearray(message)
    for _ in range(draw.draw(st.integers(1, 3))):
        if garbled:
            garbled[draw.draw(st.integers(0, len(garbled) - 1))] = draw.draw(st.integers(0, 255))
    garbled = bytes(garbled[: draw.draw(st.integers(0, len(garbled)))])
    try:
        event = event_of(garbled)
    except MessageFault as fault:
        assert fault.description
        return
    check_append([event], LogSettings().event_bytes_max)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_rejected(noise):
    try:
        event = event_of(noise)
    except MessageFault as fault:
        assert fault.description
        return
    check_append([event], LogSettings().event_bytes_max)


# Traces

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"


@pytest.mark.parametrize("body", [data(b"x"), value("x")], ids=["data", "whole"])
def test_a_trace_is_an_application_property_or_else_a_message_annotation(body):
    in_properties = application_properties({"traceparent": PARENT, "tracestate": "a=1"})
    in_annotations = section(0x72, {Symbol("traceparent"): OTHER})
    for sections, expected in (
        (in_properties, {"traceparent": PARENT, "tracestate": "a=1"}),
        (in_annotations, {"traceparent": OTHER}),
        (in_annotations + in_properties, {"traceparent": PARENT, "tracestate": "a=1"}),
        (application_properties({"traceparent": "00-x"}), {}),
        (application_properties({"traceparent": 7}), {}),
        (application_properties({"a": "traceparent"}), {}),
        (application_properties({"traceparent": PARENT, "filling": "x" * 70_000}), {}),
    ):
        event = event_of(sections + body)
        found = {name: text for name, text in event.attributes.items() if name != "datacontenttype"}
        assert found == expected
        assert event.envelope + event.data == sections + body


def test_a_cloud_event_keeps_the_trace_of_its_extension():
    usual = {"cloudEvents:specversion": "1.0", "cloudEvents:id": "1", "cloudEvents:source": "/s",
             "cloudEvents:type": "t"}  # fmt: skip
    own = event_of(
        application_properties({**usual, "cloudEvents:traceparent": OTHER, "traceparent": PARENT}) + data(b"")
    )
    assert own.attributes == {"traceparent": OTHER}
    assert event_of(application_properties({**usual, "traceparent": PARENT}) + data(b"")).attributes == {
        "traceparent": PARENT
    }
