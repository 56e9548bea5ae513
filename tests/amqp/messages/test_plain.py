"""Plain messages: their columns are those of the events that each of them is by itself."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.amqp.errors import MessageFault
from headwater.amqp.messages.inbound import read_message
from headwater.amqp.messages.plain import FORMS_MAX, PlainEvents, form_of, read_plain
from headwater.amqp.protocol.types import Symbol, Timestamp, ULong
from headwater.core import LogSettings
from headwater.core.limits import EventColumns, check_append
from tests.amqp.streams.messages import (
    application_properties,
    cloud_event,
    data,
    delivery_annotations,
    header,
    message_annotations,
    messages,
    properties,
    value,
)

SETTINGS = LogSettings()
AROUND = {
    "nothing": b"",
    "header": header(True),
    "header that says nothing": header(),
    "group key": message_annotations(event_streams_group_key="k"),
    "properties": properties(subject="OrderPlaced", content_type=Symbol("text/plain")),
    "creation time": header(True) + properties(creation_time=Timestamp(1)),
    "trace": application_properties({"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "a": 1}),
}
STRUCTURED = b'{"specversion":"1.0","id":"1","source":"/","type":"t"}'
IDS = [ULong(7), ULong(2**40), "id", "id-2", "i" * 300, b"id", uuid.UUID(int=5), None]


def columns_of(given_messages: list[bytes], settings: LogSettings = SETTINGS) -> EventColumns:
    """Of each message, read by itself."""
    return check_append([read_message(each, settings).event for each in given_messages], settings.event_bytes_max)


def assert_same(found: EventColumns, expected: EventColumns) -> None:
    for name in EventColumns.__slots__:
        if name not in ("ids", "bytes", "count", "is_gated"):
            assert list(getattr(found, name)) == list(getattr(expected, name)), name
    assert (found.count, found.bytes) == (expected.count, expected.bytes)
    assert found.is_gated
    assert len({uuid.UUID(id) for id in found.ids}) == found.count


_ids = st.sampled_from(IDS) | st.integers(0, 2**64 - 1).map(ULong) | st.text(max_size=3)
_alike = st.builds(
    lambda before, id, behind, content: before + properties(message_id=id, subject=behind) + data(content),
    st.sampled_from([b"", header(True), message_annotations(event_streams_group_key="k")]),
    _ids,
    st.sampled_from(["OrderPlaced", None]),
    st.binary(max_size=4) | st.sampled_from([bytes(255), bytes(256)]),
)


@given(st.lists(_alike | messages, min_size=1, max_size=6), st.sampled_from([100, 260, 1 << 20]))
def test_what_is_read_as_plain_is_what_each_message_is(given_messages: list[bytes], bytes_max: int) -> None:
    settings = LogSettings(event_bytes_max=max(bytes_max, 1024))
    events = PlainEvents()
    before = data(b"before")
    assert read_plain([before], None, settings, events) is not None
    if read_plain(given_messages, None, settings, events) is None:
        assert_same(events.columns(settings), columns_of([before], settings))
    else:
        assert_same(events.columns(settings), columns_of([before, *given_messages], settings))


@pytest.mark.parametrize("around", AROUND.values(), ids=list(AROUND))
def test_messages_that_differ_in_their_data_alone_have_one_form(around: bytes) -> None:
    given_messages = [around + data(bytes(size)) for size in (0, 1, 200, 255)]
    form, events = form_of(given_messages[0], SETTINGS), PlainEvents()
    assert form is not None
    assert read_plain(given_messages, form, SETTINGS, events) is form
    assert_same(events.columns(SETTINGS), columns_of(given_messages))


@pytest.mark.parametrize(
    "first, second", [(ULong(256), ULong(2**63)), ("a1", "b2"), (uuid.UUID(int=1), uuid.UUID(int=2))]
)
def test_messages_that_differ_in_their_id_too_have_one_form(first: object, second: object) -> None:
    given_messages = [properties(message_id=each, subject="A") + data(bytes(300)) for each in (first, second)]
    form, events = form_of(given_messages[0], SETTINGS), PlainEvents()
    assert read_plain(given_messages, form, SETTINGS, events) is form
    assert_same(events.columns(SETTINGS), columns_of(given_messages))


@pytest.mark.parametrize("message", [
    cloud_event() + data(b"x"), value("text"), data(b"a") + data(b"b"), b"", b"\x00\x53\x75", data(b"abc")[:-1],
    delivery_annotations(event_streams_target_partition="0") + data(b"x"), header(1) + data(b"x"),
    properties(content_type=Symbol("application/cloudevents+json")) + data(STRUCTURED),
    message_annotations(x="y" * 5000) + data(b"x"),
])  # fmt: skip
def test_other_messages_are_left_to_be_read_one_by_one(message: bytes) -> None:
    events = PlainEvents()
    assert read_plain([data(b"x"), message], None, SETTINGS, events) is None
    assert (events.count, events.bytes, events.types, events.data, events.envelopes) == (0, 0, [], [], [])


def test_a_document_that_is_no_event_gives_those_behind_it_no_form() -> None:
    before = properties(content_type=Symbol("application/cloudevents+json"))
    run = [before + data(b"{" * len(STRUCTURED)), before + data(STRUCTURED)]
    assert read_plain(run, None, SETTINGS, PlainEvents()) is None
    assert form_of(run[0], SETTINGS) is None
    assert [read_message(each).event.id for each in run] == ["", "1"]


def test_a_message_over_the_limit_of_the_log_is_not_plain() -> None:
    settings = LogSettings(event_bytes_max=1024)
    form = form_of(data(b"x"), settings)
    with pytest.raises(MessageFault):
        read_message(data(bytes(1024)), settings)
    assert read_plain([data(bytes(1024))], form, settings, PlainEvents()) is None


def test_messages_of_many_forms_are_read_one_by_one() -> None:
    given_messages = [properties(subject="s" * size) + data(b"x") for size in range(1, FORMS_MAX + 2)]
    assert read_plain(given_messages[:-1], None, SETTINGS, PlainEvents()) is not None
    assert read_plain(given_messages, None, SETTINGS, PlainEvents()) is None


def test_a_message_id_that_cannot_be_decoded_makes_its_run_no_plain_one() -> None:
    good = properties(message_id="abcd", subject="S") + data(b"x")
    poison = good.replace(b"abcd", b"ab\xff\xfe")
    events = PlainEvents()
    form = read_plain([good], None, SETTINGS, events)
    assert read_plain([good, poison, good], form, SETTINGS, events) is None
    assert read_plain([good.replace(b"abcd", "čč".encode()), good], form, SETTINGS, events) is form
    assert events.count == len(events.data) == len(events.envelopes) == len(events.types) == 3
    with pytest.raises(MessageFault, match="message-id: a string is not UTF-8"):
        read_message(poison, SETTINGS)
