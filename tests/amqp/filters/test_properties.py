"""Property filters (FILTEX 4) and groups of filters (FILTEX 3, 5)."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.amqp.filters.messages import SQL, Message, described, filter_of, passes, refusal

from headwater.amqp.filters import format_offset
from headwater.amqp.protocol.types import Array, Float, Long, Symbol, Timestamp, UByte, UInt, ULong

HEADER, DELIVERY, MESSAGE, PROPERTIES, APPLICATION, FOOTER = 0x170, 0x171, 0x172, 0x173, 0x174, 0x178
ALL, ANY, NOT, TRUE, FALSE = 0x100, 0x101, 0x102, 0x110, 0x111


def lets(filter: object, message: Message | None = None, **fields: object) -> bool:
    return passes(filter_of(filter), message or Message(fields))


def application(**fields: object) -> object:
    return described(APPLICATION, fields)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (HEADER, "amqp:header-filter"),
        (DELIVERY, "amqp:delivery-annotations-filter"),
        (MESSAGE, "amqp:message-annotations-filter"),
        (PROPERTIES, "amqp:properties-filter"),
        (APPLICATION, "amqp:application-properties-filter"),
        (FOOTER, "amqp:footer-filter"),
    ],
)
def test_every_section_has_its_property_filter(code, name):
    message = Message(
        {"to": 1},
        header={"priority": UByte(1)},
        properties={"to": 1},
        message_annotations={Symbol("to"): 1},
        delivery_annotations={Symbol("to"): 1},
        footer={Symbol("to"): 1},
    )
    field = Symbol("priority" if code == HEADER else "to")
    for descriptor in (ULong(code), Symbol(name)):
        assert lets(described(descriptor, {field: 1}), message)
        assert not lets(described(descriptor, {field: 2}), message)


def test_every_field_must_match():
    assert lets(application(x=1, y=2), x=1, y=2)
    assert not lets(application(x=1, y=2), x=1, y=3)
    assert lets(application())


def test_null_reference_matches_anything():
    assert lets(application(x=None), x=1) and lets(application(x=None))


def test_absent_field_is_null_and_matches_no_other_reference():
    assert not lets(application(x=1)) and not lets(application(x=""), x=None)


def test_absent_header_field_has_its_default():
    assert lets(described(HEADER, {Symbol("priority"): UByte(4), Symbol("durable"): False}))


@pytest.mark.parametrize("reference", [UByte(5), Long(5), 5.0, Float(5), Timestamp(5)])
def test_numbers_match_whatever_their_width(reference):
    assert lets(application(x=reference), x=UInt(5)) and not lets(application(x=reference), x=UInt(6))


def test_symbol_matches_string():
    assert lets(application(x=Symbol("red")), x="red") and lets(application(x="red"), x=Symbol("red"))


def test_text_is_case_sensitive():
    assert not lets(application(x="Red"), x="red")


@pytest.mark.parametrize("value", [True, b"\x01", UUID(int=7), Timestamp(3)])
def test_other_simple_values_match_their_equals(value):
    assert lets(application(x=value), x=value) and not lets(application(x=value), x="other")


@pytest.mark.parametrize(
    ("reference", "text", "expected"),
    [
        ("&p:re", "red", True),
        ("&p:re", "are", False),
        ("&p:", "", True),
        ("&p:100%", "100% sure", True),
        ("&p:100%", "1000", False),
        ("&s:ed", "red", True),
        ("&s:ed", "edy", False),
        ("&s:_d", "red", False),
        ("&&p:re", "&p:re", True),
        ("&&", "&", True),
    ],
)
def test_prefixes_of_a_reference(reference, text, expected):
    assert lets(application(x=reference), x=text) is expected
    assert (
        lets(described(PROPERTIES, {Symbol("subject"): reference}), Message(properties={"subject": text})) is expected
    )


def test_prefix_of_what_is_no_text_does_not_match():
    assert not lets(application(x="&p:1"), x=1) and not lets(application(x="&p:"))


@pytest.mark.parametrize(
    ("code", "given"),
    [
        (PROPERTIES, {Symbol("colour"): "red"}),
        (HEADER, {Symbol("subject"): "red"}),
        (APPLICATION, {"x": "&x:red"}),
        (APPLICATION, {"x": "&"}),
        (APPLICATION, {"x": [1]}),
        (APPLICATION, {"x": {"a": 1}}),
        (APPLICATION, {"x": "x" * 4097}),
        (APPLICATION, {5: 1}),
        (APPLICATION, {str(number): 1 for number in range(257)}),
        (APPLICATION, "x = 1"),
        (APPLICATION, None),
    ],
)
def test_malformed_property_filter_is_refused(code, given):
    assert refusal(described(code, given)).position is None


def test_offset_in_a_property_filter_is_a_position():
    found = filter_of(described(DELIVERY, {Symbol("event-streams-offset"): format_offset(5)}))
    assert (found.after, found.upto, found.matches, found.names_position) == (4, 5, None, True)


RED, BIG = application(color="red"), application(size="big")


@pytest.mark.parametrize("names", [False, True])
def test_groups_combine_filters(names):
    all_, any_, not_ = ("amqp:all-filter", "amqp:any-filter", "amqp:not-filter") if names else (ALL, ANY, NOT)
    cases = [
        ({"color": color, "size": size}, color == "red", size == "big")
        for color in ("red", "blue")
        for size in ("big", "small")
    ]
    for fields, is_red, is_big in cases:
        assert lets(described(all_, [RED, BIG]), **fields) is (is_red and is_big)
        assert lets(described(any_, [RED, BIG]), **fields) is (is_red or is_big)
        assert lets(described(not_, [RED]), **fields) is not is_red
        assert lets(described(not_, RED), **fields) is not is_red


def test_empty_groups():
    assert lets(described(ALL, [])) and not lets(described(ANY, []))


def test_group_may_be_an_array():
    assert lets(described(ALL, Array([RED, BIG])), color="red", size="big")


@pytest.mark.parametrize("value", [None, [], True])
def test_true_and_false_filters(value):
    assert lets(described(TRUE, value)) and not lets(described(FALSE, value))
    assert lets(described("amqp:true-filter", value)) and not lets(described("amqp:false-filter", value))
    assert filter_of(described(TRUE, value)).matches is None
    assert filter_of(described(FALSE, value)).upto == 0


def test_not_of_an_absent_property_matches():
    assert lets(described(NOT, [RED]))


def test_not_of_an_unknown_predicate_is_unknown():
    unknown = described(SQL, "missing = 1")
    assert not lets(described(NOT, [unknown])) and not lets(unknown)


def test_filters_of_any_kind_stand_in_groups():
    group = described(ANY, [described(SQL, "weight > 5"), described(ALL, [RED, described(NOT, [BIG])])])
    assert lets(group, weight=6) and lets(group, color="red") and not lets(group, color="red", size="big")


@pytest.mark.parametrize(
    ("code", "given"),
    [
        (ALL, None),
        (ALL, {}),
        (ANY, "x"),
        (NOT, []),
        (NOT, [RED, BIG]),
        (NOT, None),
        (ALL, [5]),
        (ANY, [None]),
        (ALL, [RED] * 257),
    ],
)
def test_malformed_group_is_refused(code, given):
    assert refusal(described(code, given)).filter_name == "my-filter"


def test_invalid_member_makes_the_group_invalid():
    assert refusal(described(ALL, [RED, described(SQL, "a =")])).position == 4


def test_groups_nest_only_so_deep():
    group: object = RED
    for _ in range(32):
        group = described(NOT, [group])
    assert lets(group, color="red")
    assert "32 levels" in refusal(described(NOT, [group])).problem
