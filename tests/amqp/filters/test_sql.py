"""The SQL filter (FILTEX 6), production by production."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.amqp.filters.messages import NOW, SQL, Message, described, refusal, sql, sql_of, value_of
from tests.every import every

from headwater.amqp.protocol.types import (
    Array,
    Char,
    Decimal64,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)

EVERYWHERE = Message(
    {"color": "red", "a-b": 7, "odd [name]": 8},
    header={"priority": UByte(9), "durable": True},
    properties={"message-id": "m-1", "group-sequence": UInt(3), "creation-time": Timestamp(1_500)},
    message_annotations={Symbol("x-opt-kind"): "gold"},
    footer={Symbol("checksum"): b"\x01\xab"},
    number=17,
)


@every(
    "text",
    [
        "header.priority = 9",
        "h.priority = 9",
        "properties.message-id = 'm-1'",
        "p.message-id = 'm-1'",
        "application-properties.color = 'red'",
        "application_properties.color = 'red'",
        "a.color = 'red'",
        "delivery-annotations.event-streams-timestamp = 1000",
        "delivery_annotations.event-streams-timestamp = 1000",
        "d.event-streams-timestamp = 1000",
        "message-annotations.x-opt-kind = 'gold'",
        "message_annotations.x-opt-kind = 'gold'",
        "m.x-opt-kind = 'gold'",
        "footer.checksum = 0x01AB",
        "f.checksum = 0x01ab",
    ],
)
def test_every_section_has_its_names(text):
    assert sql_of(text, EVERYWHERE)


def test_a_bare_identifier_is_an_application_property():
    assert sql("color = 'red'", color="red")
    assert sql("a = 1 AND header = 2 AND _x = 3 AND $y = 4 AND été = 5", a=1, header=2, _x=3, **{"$y": 4, "été": 5})


def test_identifiers_are_case_sensitive():
    assert not sql("Color = 'red'", color="red")
    assert sql("Color = 'blue' AND color = 'red'", color="red", Color="blue")


def test_delimited_identifiers_hold_any_characters():
    assert sql_of("[odd [name]]] = 8 AND a.[odd [name]]] = 8", EVERYWHERE)
    assert sql_of("d.[event-streams-timestamp] = 1000 AND [AND] IS NULL", EVERYWHERE)


def test_hyphens_belong_to_a_name_after_its_section():
    assert sql_of("a.a-b = 7 AND p.group-sequence = 3", EVERYWHERE)


def test_a_hyphen_in_a_bare_name_subtracts():
    assert sql("a-b = 3", a=5, b=2)


def test_underscores_stand_for_hyphens_in_well_known_fields():
    assert sql_of("p.message_id = 'm-1' AND p.group_sequence = 3", EVERYWHERE)


@pytest.mark.parametrize("text", ["h.colour = 1", "p.colour = 1", "p.[x] = 1", "properties.Message-Id = 1"])
def test_unknown_field_of_header_or_properties_is_a_syntax_error(text):
    error = refusal(described(SQL, text))
    assert "has no field" in error.problem and error.position == 1


def test_unknown_section_is_a_syntax_error():
    assert refusal(described(SQL, "color = 'red' AND x.y = 1")).position == 20


def test_header_fields_that_are_absent_have_their_defaults():
    assert sql("h.priority = 4 AND h.durable = FALSE AND h.delivery-count = 0 AND h.ttl IS NULL")


@every(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        ('"it\'s"', "it's"),
        ('"say ""so"""', 'say "so"'),
        ("''", ""),
        ("42", 42),
        ("042", 42),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("4.25", 4.25),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1.5E-1", 0.15),
        ("0x", b""),
        ("0xDEADbeef", b"\xde\xad\xbe\xef"),
        ("TRUE", True),
        ("false", False),
        ("INF", float("inf")),
        ("-inf", -float("inf")),
    ],
)
def test_constants(text, value):
    assert sql(f"x = {text}", x=value)
    assert not sql(f"x <> {text}", x=value)


def test_nan_equals_nothing():
    assert sql("x <> NAN AND NOT x = NAN AND NOT x < NAN AND NOT x >= NaN", x=float("nan"))


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("x = 18446744073709551616", 5),
        ("x = " + "9" * 4000, 5),
        ("x = 1e999", 5),
        ("x = 0x123", 5),
        ("x = 12ab", 5),
        ("x = 1.2.3", 5),
        ("x = 'open", 5),
        ("x = [open", 5),
        ("x = [] ", 5),
        ("x = ?", 5),
    ],
)
def test_malformed_constant_is_refused_with_its_position(text, position):
    assert refusal(described(SQL, text)).position == position


@every(
    ("text", "expected"),
    [
        ("x = 5", True),
        ("x <> 5", False),
        ("x != 5", False),
        ("x < 6", True),
        ("x <= 5", True),
        ("x > 5", False),
        ("x >= 5", True),
        ("5 = x", True),
        ("4 < x", True),
        ("6 <= x", False),
        ("6 > x", True),
        ("5 >= x", True),
        ("x = y", False),
        ("y > x", True),
    ],
)
def test_comparison_operators(text, expected):
    assert sql(text, x=5, y=6) is expected


@pytest.mark.parametrize(
    "number", [UByte(5), Short(5), Int(5), UInt(5), Long(5), ULong(5), Float(5), 5.0, Timestamp(5)]
)
def test_numbers_of_every_width_compare(number):
    assert sql("x = 5 AND x = 5.0 AND x > 4.5 AND x < y", x=number, y=UInt(6))


@pytest.mark.parametrize("text", ["red", Symbol("red")])
def test_texts_compare_whether_string_or_symbol(text):
    assert sql("x = 'red' AND x < 'reds' AND x > 'Red' AND x = y", x=text, y=Symbol("red"))
    assert sql("c = 'x'", c=Char("x"))


def test_text_order_is_that_of_code_points():
    assert sql("x > 'Z' AND x < 'é'", x="a")


def test_timestamps_compare_with_integers_as_ms():
    assert sql_of("p.creation-time = 1500 AND p.creation-time < 1501 AND 1499 < p.creation-time", EVERYWHERE)


def test_booleans_compare_by_equality_only():
    assert sql("x = TRUE AND x <> FALSE", x=True)
    assert value_of("x >= FALSE", x=True) == "false"


def test_binaries_compare():
    assert sql("x = 0x0102 AND x < 0x02", x=b"\x01\x02")


@every("value", [1, "1", True, b"1"])
@every("constant", ["1", "'1'", "TRUE", "0x31"])
def test_unlike_kinds_are_different_and_in_no_order(value, constant):
    if sql(f"x = {constant}", x=value):
        return  # like kinds
    assert value_of(f"x <> {constant}", x=value) == "true"
    assert value_of(f"x < {constant}", x=value) == value_of(f"x >= {constant}", x=value) == "false"


def test_uuid_compares_with_its_text():
    uuid = UUID("c0ffee00-0000-4000-8000-00000000cafe")
    assert sql(
        "x = 'c0ffee00-0000-4000-8000-00000000cafe' AND x IN ('a', 'c0ffee00-0000-4000-8000-00000000cafe')", x=uuid
    )
    assert sql("x = y", x=uuid, y=uuid)


@pytest.mark.parametrize("value", [[1], {"a": 1}, Array([1]), Described("d", 1), Decimal64(bytes(8))])
def test_what_is_not_simple_compares_with_nothing(value):
    assert (
        value_of("x = 1", x=value) == value_of("x <> 0x00", x=value) == value_of("x IN ('a', 1)", x=value) == "unknown"
    )
    assert sql("x IS NOT NULL AND EXISTS(x)", x=value)


TRUTHS = {"true": "1 = 1", "false": "1 = 2", "unknown": "missing = 1"}


@pytest.mark.parametrize(
    ("left", "right", "conjunction", "disjunction"),
    [
        ("true", "true", "true", "true"),
        ("true", "false", "false", "true"),
        ("true", "unknown", "unknown", "true"),
        ("false", "true", "false", "true"),
        ("false", "false", "false", "false"),
        ("false", "unknown", "false", "unknown"),
        ("unknown", "true", "unknown", "true"),
        ("unknown", "false", "false", "unknown"),
        ("unknown", "unknown", "unknown", "unknown"),
    ],
)
def test_logic_has_three_values(left, right, conjunction, disjunction):
    assert value_of(f"{TRUTHS[left]} AND {TRUTHS[right]}") == conjunction
    assert value_of(f"{TRUTHS[left]} OR {TRUTHS[right]}") == disjunction


@pytest.mark.parametrize(("operand", "expected"), [("true", "false"), ("false", "true"), ("unknown", "unknown")])
def test_not_leaves_unknown_unknown(operand, expected):
    assert value_of(f"NOT {TRUTHS[operand]}") == expected


def test_precedence_is_not_then_and_then_or():
    assert sql("x = 1 OR x = 2 AND y = 9", x=1, y=0)
    assert not sql("(x = 1 OR x = 2) AND y = 9", x=1, y=0)
    assert sql("NOT x = 2 AND y = 0", x=1, y=0)


def test_a_boolean_field_is_a_predicate_and_any_other_is_unknown():
    assert sql("x AND NOT y", x=True, y=False)
    assert value_of("x", x=1) == value_of("x", x="TRUE") == value_of("x") == "unknown"
    assert value_of("x OR y", x=1, y=True) == "true"


def test_boolean_constants_are_predicates():
    assert sql("TRUE") and sql("NOT FALSE") and not sql("FALSE")


def test_keywords_are_case_insensitive():
    assert sql("x = 1 and NoT y = 1 Or z is null AnD x iN (1) and w LIKE 'a!_' escape '!'", x=1, y=2, w="a_")


def test_there_is_no_xor():
    assert refusal(described(SQL, "a = 1 XOR b = 1")).position == 7


@every(
    ("text", "expected"),
    [
        ("x + 2 = 7", True),
        ("x - 2 = 3", True),
        ("x * 2 = 10", True),
        ("x / 2 = 2.5", True),
        ("x % 3 = 2", True),
        ("-x % 3 = -2", True),
        ("x % -3 = 2", True),
        ("7.5 % 2 = 1.5", True),
        ("-x = -5 AND +x = 5 AND - -x = 5", True),
        ("x + 2 * 3 = 11", True),
        ("(x + 2) * 3 = 21", True),
        ("10 - 3 - 2 = 5", True),
        ("100 / 10 / 2 = 5", True),
        ("x - -x = 10", True),
        ("t + 1 = 1001 AND t / 2 = 500", True),
    ],
)
def test_arithmetic(text, expected):
    assert sql(text, x=5, t=Timestamp(1000)) is expected


def test_plus_concatenates_strings():
    assert sql("x + '-' + y = 'red-blue'", x=Symbol("red"), y="blue")


@pytest.mark.parametrize("text", ["x / 0", "x % 0", "x / 0.0", "0 / 0", "x / y"])
def test_division_by_zero_is_nan(text):
    assert sql(f"{text} <> {text}", x=1, y=0)
    assert value_of(f"{text} = 1", x=1, y=0) == "false"


@pytest.mark.parametrize(
    "text", ["x + 1", "1 - x", "missing * 2", "-missing", "+x", "-x", "x - 'a'", "b + b", "TRUE + 1"]
)
def test_arithmetic_on_null_or_unlike_operands_is_null(text):
    assert sql(f"({text}) IS NULL", x="text", b=b"binary")
    assert value_of(f"{text} = 1", x="text", b=b"binary") == "unknown"


def test_evaluation_error_is_unknown_so_that_the_message_is_not_delivered():
    large = "x" + " * x" * 20 + " / 2 > 0"
    assert value_of(large, x=2**63) == "unknown"
    assert value_of("x + x > ''", x="y" * 10_000) == "unknown"
    assert value_of("x LIKE '%'", x="y" * 16_385) == "unknown"
    assert value_of("LOWER(x) > ''", x="y" * 16_385) == value_of("UPPER(x) > ''", x="y" * 16_385) == "unknown"
    assert value_of("x = 18446744073709551615" + " * 18446744073709551615" * 20 + " / 2", x=1) == "unknown"


def test_infinities_compute():
    assert sql("INF - INF <> INF - INF AND INF % 2 <> 1 AND 1 % INF = 1 AND -INF < x AND x < INF", x=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x LIKE 'red'", "true"),
        ("x LIKE 'r%'", "true"),
        ("x LIKE '_ed'", "true"),
        ("x LIKE 'R%'", "false"),
        ("x NOT LIKE 'b%'", "true"),
        ("x NOT LIKE 'r%'", "false"),
        ("y LIKE '50!%' ESCAPE '!'", "true"),
        ("x LIKE 're!d' ESCAPE '!'", "true"),
        ("missing LIKE '%'", "unknown"),
        ("missing NOT LIKE '%'", "unknown"),
        ("n LIKE '5'", "unknown"),
        ("x + y LIKE 'red%0!%' ESCAPE '!'", "true"),
    ],
)
def test_like(text, expected):
    assert value_of(text, x="red", y="50%", n=5) == expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("x LIKE y", 8),
        ("x LIKE 5", 8),
        ("x LIKE 'a' ESCAPE 'ab'", 19),
        ("x LIKE 'a' ESCAPE ''", 19),
        ("x LIKE 'a!' ESCAPE '!'", 8),
    ],
)
def test_malformed_like_is_refused(text, position):
    assert refusal(described(SQL, text)).position == position


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x IN ('blue', 'red')", "true"),
        ("x IN ('blue')", "false"),
        ("x NOT IN ('blue')", "true"),
        ("n IN (4, 5.0)", "true"),
        ("n IN ('5')", "false"),
        ("n IN (y, x)", "false"),
        ("x IN ('a', missing)", "unknown"),
        ("x IN ('red', missing)", "true"),
        ("x NOT IN ('a', missing)", "unknown"),
        ("missing IN ('a')", "unknown"),
        ("n + 1 IN (3 * 2)", "true"),
        ("flag IN (1, TRUE)", "true"),
        ("flag IN (1)", "false"),
    ],
)
def test_in(text, expected):
    assert value_of(text, x="red", n=5, y=7, flag=True) == expected


@pytest.mark.parametrize("text", ["x IN ()", "x IN (1,)", "x IN 1", "x IN (1", "x NOT (1)"])
def test_malformed_in_is_refused(text):
    assert refusal(described(SQL, text)).position > 1


def test_is_null_and_is_not_null():
    assert sql("missing IS NULL AND null_one IS NULL AND x IS NOT NULL AND p.subject IS NULL", null_one=None, x=0)
    assert value_of("x IS NULL", x=0) == "false"


def test_exists_asks_whether_a_field_is_there():
    assert sql("EXISTS(x) AND exists ( a.x ) AND NOT EXISTS(missing) AND EXISTS(null_one)", x=0, null_one=None)
    assert sql("EXISTS(h.priority) AND NOT EXISTS(p.subject) AND EXISTS([x])", x=0)
    assert refusal(described(SQL, "EXISTS('x')")).position == 8


@every(
    "text",
    [
        "LOWER(x) = 'straße 1'",
        "UPPER(x) = 'STRASSE 1'",
        "LEFT(x, 3) = 'Str'",
        "LEFT(x, 99) = x AND LEFT(x, 0) = '' AND LEFT(x, -1) = ''",
        "RIGHT(x, 2) = ' 1'",
        "RIGHT(x, 99) = x AND RIGHT(x, 0) = '' AND RIGHT(x, -1) = ''",
        "SUBSTRING(x, 2, 3) = 'tra'",
        "SUBSTRING(x, 8) = '1' AND SUBSTRING(x, 1) = x AND SUBSTRING(x, 99) = '' AND SUBSTRING(x, 1, 0) = ''",
        "SUBSTRING(x, -1, 4) = 'St' AND SUBSTRING(x, 0, 1) = ''",
        "DATE('1970-01-01T00:00:01.500Z') = 1500 AND DATE('1970-01-02') = 86400000",
        "DATE('1970-01-01T01:00:00+01:00') = 0 AND DATE(1500) = 1500 AND DATE('1969-12-31T23:59:59.9999Z') = -1",
        f"UTC() = {NOW}",
        "UTC() - 3600000 < UTC()",
        "lower(upper(x)) = 'strasse 1'",
    ],
)
def test_functions(text):
    assert sql(text, x="Straße 1")


@pytest.mark.parametrize("name", ["LOWER", "UPPER", "DATE"])
def test_function_of_what_it_cannot_take_is_null(name):
    assert sql(f"{name}(missing) IS NULL AND {name}(TRUE) IS NULL AND {name}(b) IS NULL", b=b"x")


def test_functions_of_text_and_number_are_null_where_either_is_not():
    assert sql("LEFT(1, 1) IS NULL AND LEFT('a', 'b') IS NULL AND RIGHT('a', 1.5) IS NULL AND LEFT('ab', 1.0) = 'a'")
    assert sql("SUBSTRING('a', 'b') IS NULL AND SUBSTRING('a', 1, 'x') IS NULL AND DATE('never') IS NULL")


def test_unknown_function_is_null():
    assert sql("NOPE(1, x) IS NULL AND Nope() IS NULL")
    assert value_of("NOPE() = 1") == "unknown"


@pytest.mark.parametrize("text", ["LOWER() = 'a'", "LEFT('a') = 'a'", "SUBSTRING('a', 1, 2, 3) = 'a'", "UTC(1) = 1"])
def test_wrong_number_of_arguments_is_refused(text):
    assert "argument" in refusal(described(SQL, text)).problem


@every(
    ("text", "position"),
    [
        ("", 1),
        ("   ", 4),
        ("AND", 1),
        ("a =", 4),
        ("a = = b", 5),
        ("a = b = c", 7),
        ("(a = 1", 7),
        ("a = 1)", 6),
        ("a = 1 b = 2", 7),
        ("a = NULL", 5),
        ("a IS TRUE", 6),
        ("a BETWEEN 1 AND 2", 3),
        ("a.b.c = 1", 4),
        ("LOWER(a = 1) = 'x'", 9),
        ("a ; b", 3),
    ],
)
def test_syntax_error_is_refused_with_its_position(text, position):
    error = refusal(described(SQL, text))
    assert error.filter_name == "my-filter"
    assert error.position == position
    assert f"character {position}" in str(error)


def test_what_is_no_string_is_refused():
    assert refusal(described(SQL, 5)).position is None
    assert refusal(described(SQL, None)).problem == "expected a string, got None"


def test_cloudevents_attributes_are_found_under_either_prefix():
    assert sql("cloudEvents_type = 'Placed' AND EXISTS(cloudEvents_type)", **{"cloudEvents:type": "Placed"})
    assert sql("[cloudEvents:type] = 'Placed' AND EXISTS([cloudEvents:type])", **{"cloudEvents_type": "Placed"})
    assert sql("cloudEvents_x = 1 AND [cloudEvents:x] = 2", **{"cloudEvents_x": 1, "cloudEvents:x": 2})
    assert sql("cloudEventsType IS NULL", **{"cloudEvents:type": "Placed"})
