"""The two filters of Event Stream Extensions (5.2), and the reserved comparands."""

from __future__ import annotations

import pytest
from tests.amqp.filters.messages import EVENT_STREAMS_SQL, HEAD, NAME, SQL, described, filter_of, refusal
from tests.every import every

from headwater.amqp.filters import SourceFilter, format_offset, source_filter
from headwater.amqp.protocol.types import Described, Long, Symbol, Timestamp, ULong

ANNOTATIONS = 0x200
OFFSET, TIMESTAMP = Symbol("event-streams-offset"), Symbol("event-streams-timestamp")
SEVENTEEN = format_offset(17)


def span(given: SourceFilter) -> tuple[int, int | None]:
    """The numbers that a filter lets through, which must be all that it asks for."""
    assert given.matches is None and given.query.items is None and given.names_position
    assert given.recorded_from is None and given.recorded_upto is None
    return given.after, given.upto


def span_of(text: str, descriptor: object = EVENT_STREAMS_SQL) -> tuple[int, int | None]:
    return span(filter_of(described(descriptor, text)))


@pytest.mark.parametrize("descriptor", [ULong(0x200), Symbol("amqp:event-streams-delivery-annotations-filter"), 0x200])
def test_annotations_filter_matches_what_is_greater(descriptor):
    assert span(filter_of(Described(descriptor, {OFFSET: SEVENTEEN}))) == (17, None)


def test_annotations_filter_takes_a_timestamp():
    found = filter_of(described(ANNOTATIONS, {TIMESTAMP: Timestamp(1000)}))
    assert (found.recorded_from, found.recorded_upto, found.matches) == (1001, None, None)
    assert found.names_position


def test_annotations_filter_needs_both_to_be_greater():
    found = filter_of(described(ANNOTATIONS, {"event-streams-offset": "@earliest", TIMESTAMP: Long(1000)}))
    assert (found.after, found.recorded_from, found.matches) == (0, 1001, None)
    found = filter_of(described(ANNOTATIONS, {OFFSET: SEVENTEEN, TIMESTAMP: Timestamp(1000)}))
    assert (found.after, found.recorded_from, found.matches) == (17, 1001, None)


def test_annotations_filter_knows_the_reserved_comparands():
    assert span(filter_of(described(ANNOTATIONS, {OFFSET: Symbol("@earliest")}))) == (0, None)
    assert span(filter_of(described(ANNOTATIONS, {OFFSET: Symbol("@latest")}))) == (HEAD, None)


def test_empty_annotations_filter_matches_everything():
    found = filter_of(described(ANNOTATIONS, {}))
    assert (found.after, found.upto, found.matches, found.names_position) == (0, None, None, False)


@pytest.mark.parametrize(
    "given",
    [
        {Symbol("event-streams-source-partition"): Symbol("0")},
        {OFFSET: SEVENTEEN, Symbol("color"): "red"},
        {OFFSET: 17},
        {OFFSET: None},
        {OFFSET: b"17"},
        {TIMESTAMP: "1000"},
        {TIMESTAMP: True},
        {TIMESTAMP: 1.5},
        {ULong(1): SEVENTEEN},
        [OFFSET, SEVENTEEN],
        "17",
        None,
    ],
)
def test_annotations_filter_refuses_any_other_key_or_value(given):
    assert refusal(described(ANNOTATIONS, given)).filter_name == NAME


@every("section", ["d.event-streams-offset", "delivery_annotations.event-streams-offset"])
@every("descriptor", [EVENT_STREAMS_SQL, Symbol("amqp:event-streams-sql-filter"), SQL])
@every(
    ("rest", "expected"),
    [
        (f"> '{SEVENTEEN}'", (17, None)),
        (f">= '{SEVENTEEN}'", (16, None)),
        (f"< '{SEVENTEEN}'", (0, 16)),
        (f"<= '{SEVENTEEN}'", (0, 17)),
        (f"= '{SEVENTEEN}'", (16, 17)),
        ("> '0000000000000000001'", (9, None)),
        ("> ''", (0, None)),
        ("= '17'", (0, 0)),
        ("<> '17'", (0, None)),
        ("> '@earliest'", (0, None)),
        (">= '@earliest'", (0, None)),
        ("<= '@earliest'", (0, 0)),
        ("= '@earliest'", (0, 0)),
        ("<> '@earliest'", (0, None)),
        ("> '@latest'", (HEAD, None)),
        (">= '@latest'", (HEAD, None)),
        ("< '@latest'", (0, HEAD)),
        ("<= '@latest'", (0, HEAD)),
        ("= '@latest'", (0, 0)),
        ("<> '@latest'", (0, None)),
    ],
)
def test_offset_comparisons_become_ranges(section, descriptor, rest, expected):
    assert span_of(f"{section} {rest}", descriptor) == expected


def test_comparisons_may_be_written_either_way_round():
    assert span_of(f"'{SEVENTEEN}' < d.event-streams-offset AND '@latest' >= d.[event-streams-offset]") == (17, HEAD)


def test_examples_of_the_working_draft():
    assert span_of("d.event-streams-offset > 'a4c5'") == (10**18 - 1, None)
    assert span_of("d.event-streams-offset >= 'a4c5'") == (10**18 - 1, None)
    found = filter_of(described(EVENT_STREAMS_SQL, "d.event-streams-timestamp > 1585672841"))
    assert found.recorded_from == 1_585_672_842  # ms: the 19th of January 1970


@pytest.mark.parametrize(
    ("rest", "recorded"),
    [
        ("> 1000", (1001, None)),
        (">= 1000", (1000, None)),
        ("< 1000", (None, 999)),
        ("<= 1000", (None, 1000)),
        ("= 1000", (1000, 1000)),
        ("> -5", (-4, None)),
        ("> +5", (6, None)),
    ],
)
def test_timestamp_comparisons_become_ranges_of_time(rest, recorded):
    found = filter_of(described(EVENT_STREAMS_SQL, f"d.event-streams-timestamp {rest}"))
    assert (found.recorded_from, found.recorded_upto) == recorded
    assert (found.matches is None) == (found.recorded_upto is None)
    assert found.names_position and (found.after, found.upto) == (0, None)


def test_latest_is_what_it_was_at_attach():
    text = described(EVENT_STREAMS_SQL, "d.event-streams-offset > '@latest'")
    assert source_filter({NAME: text}, latest=5).after == 5
    assert source_filter({NAME: text}, latest=0).after == 0


def test_constrained_grammar_has_and_or_and_boolean_constants():
    both = f"d.event-streams-offset > '{SEVENTEEN}' and d.event-streams-offset < '@latest'"
    assert span_of(f"FALSE OR {both}") == (17, HEAD)
    assert span_of(f"d.event-streams-offset >= '@earliest' OR {both}") == (0, None)


def test_and_binds_more_tightly_than_or():
    assert span_of("d.event-streams-offset >= '@earliest' OR d.event-streams-offset > '@latest' AND FALSE") == (0, None)


def test_integer_is_no_offset():
    assert span_of("d.event-streams-offset > 17") == (0, 0)


@every(
    ("text", "position"),
    [
        ("", 1),
        ("NOT d.event-streams-offset > '1'", 1),
        ("(d.event-streams-offset > '1')", 1),
        ("d.event-streams-offset LIKE '1%'", 24),
        ("d.event-streams-offset IN ('1')", 24),
        ("d.event-streams-offset IS NULL", 24),
        ("d.event-streams-offset", 23),
        ("d.event-streams-timestamp > 1 + 1", 31),
        ("d.event-streams-timestamp > 1.5", 29),
        ("d.event-streams-timestamp > 0x00", 29),
        ("d.event-streams-timestamp > -'1'", 30),
        ("d.event-streams-timestamp > -d.x", 30),
        ("d.event-streams-timestamp = TRUE", 29),
        ("TRUE = TRUE", 6),
        ("UTC() > 1", 1),
        ("p.subject = 'a'", 1),
        ("color = 'a'", 1),
        ("[event-streams-offset] > '1'", 1),
        ("d.event-streams-offset > '1' d.x = 1", 30),
    ],
)
def test_what_the_constrained_grammar_leaves_out_is_refused(text, position):
    assert refusal(described(EVENT_STREAMS_SQL, text)).position == position


def test_any_delivery_annotation_may_be_compared():
    found = filter_of(described(EVENT_STREAMS_SQL, "d.event-streams-source-partition = '3'"))
    assert found.matches is not None and not found.names_position
