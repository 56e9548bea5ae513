"""Message selectors (JMS 3.8.1), as apache.org:selector-filter carries them."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.amqp.filters.messages import SELECTOR, Message, described, filter_of, refusal, selector
from tests.every import every

from headwater.amqp.protocol.types import Described, Symbol, Timestamp, UByte, UInt, ULong

MESSAGE = Message(
    {"color": "red", "weight": 5, "JMS_vendor": "x", "dotted.name": 1},
    header={"durable": True, "priority": UByte(7), "ttl": UInt(10), "delivery-count": UInt(2), "first-acquirer": True},
    properties={
        "message-id": "ID:m-1",
        "user-id": b"ann",
        "to": "here",
        "subject": "greeting",
        "reply-to": "there",
        "correlation-id": "c-1",
        "content-type": Symbol("text/plain"),
        "content-encoding": Symbol("gzip"),
        "absolute-expiry-time": Timestamp(9000),
        "creation-time": Timestamp(8000),
        "group-id": "g",
        "group-sequence": UInt(3),
        "reply-to-group-id": "r",
    },
)


@pytest.mark.parametrize(
    "descriptor", [Symbol("apache.org:selector-filter:string"), ULong(0x0000468C00000004), 77567109365764]
)
def test_descriptor_is_the_symbol_or_the_number(descriptor):
    assert filter_of(Described(descriptor, "color = 'red'")).matches(MESSAGE)


@pytest.mark.parametrize(
    "text", ["color = 'red' AND weight = 5", "JMS_vendor = 'x'", "dotted.name = 1", "$x IS NULL AND _y IS NULL"]
)
def test_bare_identifier_is_an_application_property(text):
    assert selector(text, MESSAGE)


@every(
    "text",
    [
        "amqp.durable = TRUE",
        "amqp.priority = 7",
        "amqp.ttl = 10",
        "amqp.first_acquirer = TRUE",
        "amqp.delivery_count = 2",
        "amqp.message_id = 'ID:m-1'",
        "amqp.user_id IS NOT NULL",
        "amqp.to = 'here'",
        "amqp.subject = 'greeting'",
        "amqp.reply_to = 'there'",
        "amqp.correlation_id = 'c-1'",
        "amqp.content_type = 'text/plain'",
        "amqp.content_encoding = 'gzip'",
        "amqp.absolute_expiry_time = 9000",
        "amqp.creation_time = 8000",
        "amqp.group_id = 'g'",
        "amqp.group_sequence = 3",
        "amqp.reply_to_group_id = 'r'",
    ],
)
def test_amqp_names_a_field_of_header_or_properties(text):
    assert selector(text, MESSAGE)


@pytest.mark.parametrize(
    "text",
    [
        "JMSMessageID = 'ID:m-1'",
        "JMSCorrelationID = 'c-1'",
        "JMSType = 'greeting'",
        "JMSTimestamp = 8000",
        "JMSPriority = 7",
        "JMSDeliveryMode = 'PERSISTENT'",
        "JMSXGroupID = 'g'",
        "JMSXGroupSeq = 3",
        "JMSXUserID = 'ann'",
        "JMSXDeliveryCount = 3",
    ],
)
def test_jms_names(text):
    assert selector(text, MESSAGE)


def test_jms_names_of_a_bare_message():
    bare = "JMSMessageID IS NULL AND JMSCorrelationID IS NULL AND JMSType IS NULL AND JMSTimestamp IS NULL"
    assert selector(
        f"{bare} AND JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT' AND JMSXUserID IS NULL", Message()
    )
    assert selector("JMSXDeliveryCount = 1", Message(header={"delivery-count": None}))
    assert selector("JMSXUserID IS NULL", Message(properties={"user-id": b"\xff"}))


@pytest.mark.parametrize(
    ("value", "message_id", "correlation_id"),
    [
        ("plain", "ID:AMQP_NO_PREFIX:plain", "plain"),
        ("ID:x", "ID:x", "ID:x"),
        (UUID(int=1), f"ID:AMQP_UUID:{UUID(int=1)}", f"ID:AMQP_UUID:{UUID(int=1)}"),
        (ULong(42), "ID:AMQP_ULONG:42", "ID:AMQP_ULONG:42"),
        (b"\x01\xab", "ID:AMQP_BINARY:01AB", "ID:AMQP_BINARY:01AB"),
    ],
)
def test_ids_of_any_type_are_shown_as_jms_shows_them(value, message_id, correlation_id):
    message = Message(properties={"message-id": value, "correlation-id": value})
    assert selector(f"JMSMessageID = '{message_id}' AND JMSCorrelationID = '{correlation_id}'", message)


@pytest.mark.parametrize("name", ["JMSDestination", "JMSReplyTo", "JMSExpiration", "JMSRedelivered", "JMSDeliveryTime"])
def test_header_fields_that_no_selector_may_name_are_refused(name):
    assert refusal(described(SELECTOR, f"x = 1 AND {name} = 'a'")).position == 11


def test_unknown_amqp_field_is_refused():
    assert "amqp.subject" in refusal(described(SELECTOR, "amqp.colour = 'red'")).problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("weight BETWEEN 4 AND 6", True),
        ("weight between 5 and 5", True),
        ("weight NOT BETWEEN 6 AND 9", True),
        ("weight BETWEEN 6 AND 9", False),
        ("missing BETWEEN 1 AND 2", False),
        ("NOT missing BETWEEN 1 AND 2", False),
        ("weight BETWEEN 2 + 2 AND weight AND color = 'red'", True),
        ("color BETWEEN 'a' AND 's'", True),
    ],
)
def test_between(text, expected):
    assert selector(text, MESSAGE) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("color LIKE 'r_d'", True),
        ("color NOT LIKE 'b%'", True),
        ("color LIKE 'r!_d' ESCAPE '!'", False),
        ("color IN ('blue', 'red')", True),
        ("color NOT IN ('blue', 'green')", True),
        ("missing IS NULL AND color IS NOT NULL", True),
        ("weight + 1 = 6 AND weight * 2 - 3 = 7 AND weight / 2 = 2.5 AND weight % 2 = 1", True),
        ("-weight = -5 AND +weight = 5", True),
        ("weight <> 4 AND weight != 4 AND weight >= 5 AND weight <= 5 AND weight > 4 AND weight < 6", True),
        ("NOT (color = 'blue' OR weight = 6)", True),
        ("missing = 1 OR TRUE", True),
        ("NOT missing = 1", False),
        ("color = 'it''s'", False),
    ],
)
def test_operators(text, expected):
    assert selector(text, MESSAGE) is expected


def test_keywords_are_case_insensitive_and_identifiers_are_not():
    assert selector("color = 'red' anD nOt weight = 6 or false", MESSAGE)
    assert not selector("Color = 'red'", MESSAGE)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("57", 57),
        ("57L", 57),
        ("0x1F", 31),
        ("0x1FL", 31),
        ("017", 15),
        ("0", 0),
        ("7.", 7.0),
        (".5", 0.5),
        ("7E3", 7000.0),
        ("7d", 7.0),
        ("1.5F", 1.5),
        ("-95.7", -95.7),
        ("TRUE", True),
    ],
)
def test_literals_are_javas(text, value):
    assert selector(f"x = {text}", x=value)


@pytest.mark.parametrize("text", ["x = 08", "x = 1.5L", "x = 0x", "x = 0x1D.5", "x = 99999999999999999999", "x = 1LL"])
def test_malformed_literal_is_refused(text):
    assert refusal(described(SELECTOR, text)).position == 5


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('color = "red"', 9),
        ("LOWER(color) = 'red'", 1),
        ("EXISTS(color)", 1),
        ("[color] = 'red'", 1),
        ("color = ", 9),
        ("color NOT 'red'", 11),
        ("weight BETWEEN 1", 17),
        ("weight BETWEEN 1 OR 2", 18),
        ("a.b-c = 'x' =", 13),
    ],
)
def test_what_is_not_in_the_grammar_is_refused(text, position):
    assert refusal(described(SELECTOR, text)).position == position


@pytest.mark.parametrize("text", ["", "  "])
def test_blank_selector_is_no_selector(text):
    found = filter_of(described(SELECTOR, text))
    assert found.matches is None and found.upto is None and not found.names_position
