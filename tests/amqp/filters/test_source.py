"""The filter map of a source: which entries are in effect, what is refused, what the log answers of them."""

from __future__ import annotations

import json

import pytest
from tests.amqp.filters.messages import (
    EVENT_STREAMS_SQL,
    HEAD,
    NAME,
    NOW,
    SELECTOR,
    SQL,
    Message,
    described,
    filter_of,
    passes,
    refusal,
)

from headwater.amqp.filters import FILTERS, FilterLimits, InvalidFilter, format_offset, source_filter
from headwater.amqp.protocol.types import Described, Symbol, ULong
from headwater.core import ALL, Query, QueryItem

QUERY = Symbol("headwater:query-filter")


def query_of(text: str, *more: object) -> Query:
    return filter_of(described(SQL, text), *more).query


@pytest.mark.parametrize("given", [None, {}])
def test_no_filter_asks_for_everything(given):
    found = source_filter(given, latest=HEAD)
    assert (found.accepted, found.query, found.after, found.upto, found.matches) == ({}, ALL, 0, None, None)
    assert not found.names_position


def test_accepted_entries_are_echoed_as_given():
    color, offset = described(SQL, "color = 'red'"), described(EVENT_STREAMS_SQL, "d.event-streams-offset > '1'")
    found = source_filter({Symbol("a"): color, "b": offset}, latest=HEAD)
    assert found.accepted == {"a": color, "b": offset}
    assert all(type(key) is Symbol for key in found.accepted)
    assert found.accepted[Symbol("a")] is color


@pytest.mark.parametrize(
    "given",
    [
        Described(Symbol("rabbitmq:stream-offset-spec"), "first"),
        Described(ULong(0x0000468C00000003), []),
        Described(Symbol("apache.org:no-local-filter:list"), []),
        Described(ULong(0x0000468C00000005), "other"),
        Described(True, "x"),
        Described(None, "x"),
        Described([1], "x"),
        described(0x100, [described(SQL, "TRUE"), Described(Symbol("unknown"), 1)]),
        None,
        5,
        "color = 'red'",
    ],
)
def test_unsupported_entry_is_left_out_and_the_others_hold(given):
    found = source_filter({Symbol("odd"): given, NAME: described(SQL, "color = 'red'")}, latest=HEAD)
    assert list(found.accepted) == [NAME]
    assert passes(found, Message({"color": "red"})) and not passes(found, Message({"color": "blue"}))


def test_several_filters_must_all_pass():
    found = filter_of(
        described(SQL, "color = 'red'"), described(SELECTOR, "weight > 3"), described(0x174, {"size": "big"})
    )
    assert passes(found, Message({"color": "red", "weight": 4, "size": "big"}))
    for color, weight, size in (("blue", 4, "big"), ("red", 3, "big"), ("red", 4, "small")):
        assert not passes(found, Message({"color": color, "weight": weight, "size": size}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sql-filter", "color = 'red'"),
        ("amqp:sql-filter", "color = 'red'"),
        ("jms-selector", "color = 'red'"),
        ("selector-filter", "color = 'red'"),
        ("apache.org:selector-filter:string", "color = 'red'"),
        ("event-streams-sql-filter", "d.event-streams-offset > '@latest'"),
        ("amqp:event-streams-sql-filter", "d.event-streams-offset > '@latest'"),
        ("event-streams-delivery-annotations-filter", {Symbol("event-streams-offset"): Symbol("@latest")}),
        ("amqp:application-properties-filter", {"color": "red"}),
        ("headwater:query-filter", "type=A"),
    ],
)
def test_bare_value_is_taken_under_a_key_that_says_what_it_is(key, value):
    found = source_filter({Symbol(key): value}, latest=HEAD)
    assert found.accepted == {key: value}
    assert found.matches is not None or found.after == HEAD or found.query != ALL


def test_invalid_filter_says_which_what_and_where():
    with pytest.raises(InvalidFilter) as caught:
        source_filter({Symbol("good"): described(SQL, "TRUE"), Symbol("bad"): described(SQL, "a = 1 AND")}, latest=HEAD)
    assert (caught.value.filter_name, caught.value.position) == ("bad", 10)
    assert str(caught.value) == "filter 'bad', character 10: expected a field, a constant or '(', got the end"


def test_every_filter_has_its_name_and_its_number():
    assert FILTERS["amqp:sql-filter"] == 0x120
    assert FILTERS["amqp:event-streams-sql-filter"] == 0x201
    assert FILTERS["headwater:query-filter"] is None
    assert len(FILTERS) == 19


# What is bounded


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        (FilterLimits(expression_chars_max=20), described(SQL, "color = 'red'" + " " * 20)),
        (FilterLimits(terms_max=2), described(SQL, "color = 'red'")),
        (FilterLimits(terms_max=2), described(0x174, {"a": 1, "b": 2, "c": 3})),
        (FilterLimits(terms_max=2), described(0x101, [described(0x100, [described(0x110, None)])] * 2)),
        (FilterLimits(searches_max=1), described(SQL, "x LIKE '%_a%' OR x LIKE '%_b%'")),
        (FilterLimits(depth_max=2), described(SQL, "(((TRUE)))")),
        (FilterLimits(depth_max=2), described(SQL, "NOT NOT NOT TRUE")),
        (FilterLimits(depth_max=2), described(SQL, "- - -x = 1")),
        (FilterLimits(depth_max=2), described(SQL, "LOWER(LOWER(LOWER(x))) = 'a'")),
        (FilterLimits(list_items_max=2), described(SQL, "x IN (1, 2, 3)")),
        (FilterLimits(list_items_max=2), described(0x174, {"a": 1, "b": 2, "c": 3})),
        (FilterLimits(list_items_max=2), described(0x100, [described(0x110, None)] * 3)),
        (FilterLimits(query_chars_max=10), described(QUERY, "type=A or type=B")),
    ],
)
def test_limits(limits, given):
    source_filter({NAME: given}, latest=HEAD)
    with pytest.raises(InvalidFilter, match=f"{NAME}"):
        source_filter({NAME: given}, latest=HEAD, limits=limits)


def test_number_of_filters_is_limited():
    given = {Symbol(f"f{number}"): described(0x110, None) for number in range(257)}
    with pytest.raises(InvalidFilter, match="at most 256"):
        source_filter(given, latest=HEAD)


def test_limits_hold_for_all_filters_together():
    given = {Symbol(f"f{number}"): described(SQL, " OR ".join(["x = 1"] * 100)) for number in range(3)}
    with pytest.raises(InvalidFilter, match=r"filter 'f2'.*1000 words"):
        source_filter(given, latest=HEAD)


def test_only_patterns_that_search_are_counted():
    prefixes = " OR ".join(f"x LIKE '%{number}%'" for number in range(100))
    assert passes(filter_of(described(SQL, f"x LIKE '_%_' AND ({prefixes})")), Message({"x": "a99"}))


@pytest.mark.parametrize("function", ["LOWER", "UPPER"])
def test_functions_that_go_through_whole_texts_are_few(function):
    def given(count):
        return described(SQL, " OR ".join([f"{function}(x) = 'a'"] * count))

    filter_of(given(30))
    with pytest.raises(InvalidFilter, match="each LOWER and UPPER counts as 25 more"):
        filter_of(given(40))


def test_long_chains_are_no_deep_nesting():
    assert passes(filter_of(described(SQL, " AND ".join(["x = 1"] * 249))), Message({"x": 1}))
    assert passes(filter_of(described(SQL, "+".join(["x"] * 490) + " = 490")), Message({"x": 1}))


# Queries


@pytest.mark.parametrize(
    "value",
    [
        "type=A tag=order:17",
        json.dumps({"items": [{"types": ["A"], "tags": ["order:17"]}]}),
        b'{"items": [{"types": ["A"], "tags": ["order:17"]}]}',
    ],
)
def test_query_is_answered_by_the_index(value):
    found = filter_of(described(QUERY, value))
    assert (found.query, found.matches) == (Query.where(types=["A"], tags=["order:17"]), None)
    assert not found.names_position


def test_query_of_everything():
    found = filter_of(described(QUERY, '{"all": true}'))
    assert (found.query, found.matches) == (ALL, None)


@pytest.mark.parametrize("value", ["", "color=red", "{", '{"items": []}', '{"items": [{}]}', b"\xff", 5, None, "tag='"])
def test_malformed_query_is_refused(value):
    assert refusal(described(QUERY, value)).filter_name == NAME


def test_queries_together_are_intersected():
    found = filter_of(described(QUERY, "type=A type=B tag=x or tag=y"), described(QUERY, "type=B type=C or tag=z"))
    expected = Query((
        QueryItem(("B",), ("x",)),
        QueryItem(("A", "B"), ("x", "z")),
        QueryItem(("B", "C"), ("y",)),
        QueryItem((), ("y", "z")),
    ))  # fmt: skip
    assert (found.query, found.matches) == (expected, None)


def test_queries_that_have_nothing_in_common_let_nothing_through():
    assert filter_of(described(QUERY, "type=A"), described(QUERY, "type=B")).upto == 0


def test_queries_with_too_many_alternatives_together_are_refused():
    many = " or ".join(f"tag=a:{number}" for number in range(20))
    assert "alternatives" in refusal(described(QUERY, many), described(QUERY, many.replace("a:", "b:"))).problem


def test_query_stands_in_an_all_group_but_not_in_any_or_not():
    assert filter_of(described(0x100, [described(QUERY, "type=A")])).query == Query.where(types=["A"])
    for code in (0x101, 0x102):
        assert "index" in refusal(described(code, [described(QUERY, "type=A")])).problem
        assert refusal(described(code, [described(0x100, [described(QUERY, "type=A")])]))


def test_query_and_predicates_hold_together():
    found = filter_of(described(QUERY, "tag=order:17"), described(SQL, "[cloudEvents:type] = 'A' AND weight > 3"))
    assert found.query == Query.where(types=["A"], tags=["order:17"])
    assert found.matches is not None


def test_derived_query_gives_way_to_a_given_one():
    many = " or ".join(f"tag=a:{number}" for number in range(200))
    tags = " OR ".join(f"[cloudEvents:tags] = 'b:{number}'" for number in range(9))
    found = filter_of(described(SQL, tags), described(QUERY, many))
    assert found.query.items is not None and len(found.query.items) == 200 and found.matches is not None


# What the index answers of predicates


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("[cloudEvents:type] = 'A'", ["A"]),
        ("cloudEvents_type = 'A'", ["A"]),
        ("'A' = a.[cloudEvents:type]", ["A"]),
        ("[cloudEvents:type] IN ('A', 'B', 3)", ["A", "B"]),
        ("[cloudEvents:type] = 'A' OR cloudEvents_type = 'B'", ["A", "B"]),
        ("NOT ([cloudEvents:type] <> 'A')", ["A"]),
        ("NOT (NOT [cloudEvents:type] = 'A' OR x = 1)", ["A"]),
        ("[cloudEvents:type] IN ('A', 'B') AND [cloudEvents:type] <> 'B' AND x = 1", ["A", "B"]),
        ("[cloudEvents:type] IN ('A', 'B') AND [cloudEvents:type] IN ('C', 'B')", ["B"]),
    ],
)
def test_types_are_asked_of_the_index(text, types):
    found = filter_of(described(SQL, text))
    assert found.query == Query.where(types=types) and found.matches is not None


def test_selectors_and_property_filters_ask_the_index_too():
    assert filter_of(described(SELECTOR, "cloudEvents_type = 'A'")).query == Query.where(types=["A"])
    assert filter_of(described(0x174, {"cloudEvents:type": "A"})).query == Query.where(types=["A"])


def test_tags_are_asked_of_the_index():
    assert query_of("[cloudEvents:tags] = 'order:17,customer:a%2Cb'") == Query.where(tags=["order:17", "customer:a,b"])
    assert query_of("cloudEvents_tags = 'a' OR cloudEvents_tags = 'b'") == Query.of(
        QueryItem(exact_tags=("a",)), QueryItem(exact_tags=("b",))
    )
    assert query_of("[cloudEvents:tags] = '?'") == Query.where(exact_tags=["?"])
    assert query_of("[cloudEvents:type] = 'A' AND [cloudEvents:tags] = 'a,b'") == Query.of(
        QueryItem(("A",), exact_tags=("a", "b"))
    )


@pytest.mark.parametrize(
    "text",
    [
        "[cloudEvents:type] <> 'A'",
        "NOT [cloudEvents:type] = 'A'",
        "[cloudEvents:type] NOT IN ('A')",
        "[cloudEvents:type] = 'A' OR x = 1",
        "[cloudEvents:type] > 'A'",
        "[cloudEvents:type] = x",
        "[cloudEvents:type] IN ('A', x)",
        "[cloudEvents:type] = ''",
        "[cloudEvents:type] = 5",
        "[cloudEvents:tags] = ''",
        "[cloudEvents:tags] = '\x7f'",
        "[cloudEvents:tags] = 'a,b%FF'",
        "p.subject = 'A'",
        "[cloudEvents:source] = 'A'",
    ],
)
def test_what_the_index_cannot_answer_is_evaluated(text):
    found = filter_of(described(SQL, text))
    assert found.query == ALL and found.matches is not None and found.upto is None


@pytest.mark.parametrize("text", ["FALSE", "1 = 2", "TRUE AND NOT TRUE", "d.event-streams-offset < '0'", "NOPE()"])
def test_contradiction_lets_nothing_through_and_evaluates_nothing(text):
    found = filter_of(described(SQL, text))
    assert (found.upto, found.matches) == (0, None)


def test_empty_ranges_are_contradictions():
    later, earlier = format_offset(9), format_offset(5)
    text = f"d.event-streams-offset > '{later}' AND d.event-streams-offset <= '{earlier}' AND x = 1"
    assert filter_of(described(SQL, text)).upto == 0
    assert filter_of(described(SQL, "d.event-streams-timestamp > 5 AND d.event-streams-timestamp < 5")).upto == 0
    assert filter_of(described(SQL, "cloudEvents_type = 'A' AND cloudEvents_type = 'B'")).upto == 0


def test_what_the_ranges_decide_is_not_evaluated_again():
    text = f"d.event-streams-offset > '{format_offset(5)}' AND NOT d.event-streams-offset > '{format_offset(9)}'"
    found = filter_of(described(SQL, text))
    assert (found.after, found.upto, found.matches) == (5, 9, None)
    found = filter_of(described(SQL, f"{text} AND x = 1"))
    assert (found.after, found.upto) == (5, 9) and found.matches(Message({"x": 1}, number=1))


def test_either_of_two_ranges_is_their_hull():
    low, mid, high = (format_offset(number) for number in (3, 5, 9))
    touching = f"d.event-streams-offset <= '{mid}' OR d.event-streams-offset > '{low}'"
    assert (filter_of(described(SQL, touching)).upto, filter_of(described(SQL, touching)).matches) == (None, None)
    apart = f"d.event-streams-offset = '{low}' OR d.event-streams-offset = '{high}'"
    found = filter_of(described(SQL, apart))
    assert (found.after, found.upto) == (2, 9)
    assert found.matches(Message(number=9)) and not found.matches(Message(number=5))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d.event-streams-offset > '@latest'", True),
        ("d.event-streams-offset > '@latest' OR x = 1", True),
        ("EXISTS(d.event-streams-timestamp)", True),
        ("d.event-streams-offset <> 5", True),
        ("d.event-streams-source-partition = '0'", False),
        ("[event-streams-offset] = 'x'", False),
        ("m.event-streams-offset = 'x'", False),
        ("x = 1", False),
    ],
)
def test_naming_a_position_is_noticed(text, expected):
    assert filter_of(described(SQL, text)).names_position is expected


def test_groups_notice_positions_too():
    group = described(
        0x101, [described(0x102, [described(SQL, "d.event-streams-offset > '5'")]), described(SQL, "x = 1")]
    )
    assert filter_of(group).names_position


def test_upper_bound_of_time_is_evaluated_too():
    found = filter_of(described(SQL, "d.event-streams-timestamp <= 1000"))
    assert found.recorded_upto == 1000
    assert found.matches(Message(recorded_at=1000)) and not found.matches(Message(recorded_at=1001))


@pytest.mark.parametrize("constant", ["NAN", "INF", "'1000'", "TRUE"])
def test_time_bounds_that_are_no_finite_numbers_are_evaluated(constant):
    found = filter_of(described(SQL, f"d.event-streams-timestamp < {constant}"))
    assert (found.recorded_from, found.recorded_upto) == (None, None)
    assert found.matches(Message()) is (constant == "INF")


def test_fractions_of_a_millisecond_bound_whole_ones():
    found = filter_of(described(SQL, "d.event-streams-timestamp > 1000.5 AND d.event-streams-timestamp < 2000.5"))
    assert (found.recorded_from, found.recorded_upto) == (1001, 2000)
    found = filter_of(described(SQL, "d.event-streams-timestamp >= 1000.5 AND 2000.5 >= d.event-streams-timestamp"))
    assert (found.recorded_from, found.recorded_upto) == (1001, 2000)


def test_constant_expressions_bound_too():
    text = "d.event-streams-timestamp >= DATE('1970-01-01T00:00:10Z') AND d.event-streams-timestamp < 60 * 1000"
    found = filter_of(described(SQL, text))
    assert (found.recorded_from, found.recorded_upto) == (10_000, 59_999)


def test_time_before_now_bounds_from_what_it_was_at_attach():
    found = filter_of(described(SQL, "d.event-streams-timestamp > UTC() - 60000"))
    assert (found.recorded_from, found.recorded_upto) == (NOW - 59_999, None)
    assert found.matches(Message(recorded_at=NOW - 59_999)) and not found.matches(Message(recorded_at=NOW - 60_000))
    assert filter_of(described(SQL, "UTC() - 60000 <= d.event-streams-timestamp")).recorded_from == NOW - 60_000
    for text in ("< UTC()", "= UTC()", "> UTC() * 1", "> UTC() - x", "> x"):
        assert filter_of(described(SQL, f"d.event-streams-timestamp {text}")).recorded_from is None


def test_clock_that_goes_back_stays_at_the_time_of_attach():
    times = iter([5_000, 4_000, 6_000])
    found = source_filter({NAME: described(SQL, "UTC() = 5000")}, latest=HEAD, now=lambda: next(times))
    assert found.matches(Message()) and not found.matches(Message())
