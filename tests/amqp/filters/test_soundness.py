"""Whatever is asked of whatever events: the plan and what is evaluated after it give what the whole filter says."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, note
from hypothesis import strategies as st
from tests.amqp.filters.messages import Message

from headwater.amqp.filters import FilterLimits, format_offset, source_filter
from headwater.amqp.filters.context import Budget, Context
from headwater.amqp.filters.entries import read_entry
from headwater.amqp.filters.evaluation import matcher
from headwater.amqp.filters.syntax import And, IndexQuery, Node
from headwater.amqp.protocol.types import Described, Symbol, Timestamp, ULong

LATEST, ATTACHED_AT = 6, 5
TYPES, TAGS = ["A", "B", "C"], ["a:1", "a:2", "b"]


class Stored(NamedTuple):
    """An event as the index knows it, and its message."""

    number: int
    recorded_at: int
    type: str
    tags: tuple[str, ...]
    message: Message


@st.composite
def stored_events(draw: st.DrawFn) -> Stored:
    number, recorded_at = draw(st.integers(1, 12)), draw(st.integers(0, 12))
    type, tags = draw(st.sampled_from(TYPES)), draw(st.lists(st.sampled_from(TAGS), unique=True, max_size=2))
    properties: dict[str, object] = draw(
        st.dictionaries(st.sampled_from("xy"), st.sampled_from([None, 0, 1, 2.5, "A", True]))
    )
    if draw(st.booleans()):
        properties[draw(st.sampled_from(["cloudEvents:type", "cloudEvents_type"]))] = draw(
            st.sampled_from([str, Symbol])
        )(type)
    if tags and draw(st.booleans()):
        properties[draw(st.sampled_from(["cloudEvents:tags", "cloudEvents_tags"]))] = draw(
            st.sampled_from([",", ", "])
        ).join(tags)
    message = Message(properties, properties={"subject": type}, number=number, recorded_at=recorded_at)
    return Stored(number, recorded_at, type, tuple(sorted(tags)), message)


operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
offsets = st.integers(0, 13).map(format_offset) | st.sampled_from(
    ["@latest", "@earliest", "0000", "", "a4", "00000000000000000005x"]
)
times = st.integers(-1, 13).map(str) | st.sampled_from(
    ["4.5", "-2", "NAN", "INF", "-INF", "'5'", "TRUE", "UTC()", "UTC() - 3 + 1", "UTC() * 2", "DATE(7)", "2 * 3"]
)
TYPE, TAG_LIST = (
    st.sampled_from(["[cloudEvents:type]", "cloudEvents_type"]),
    st.sampled_from(["[cloudEvents:tags]", "cloudEvents_tags"]),
)
type_names = st.sampled_from([*TYPES, ""]).map(repr)


def text(*parts: object) -> st.SearchStrategy[str]:
    """The parts, some of them strategies, one after the other."""
    return st.tuples(*[part if isinstance(part, st.SearchStrategy) else st.just(part) for part in parts]).map(" ".join)


leaves = st.one_of(
    text("d.event-streams-offset", operators, offsets.map(repr)),
    text(offsets.map(repr), operators, "d.event-streams-offset"),
    text("d.event-streams-timestamp", operators, times),
    text(times, operators, "d.event-streams-timestamp"),
    text(TYPE, operators, type_names),
    text(
        TYPE,
        st.sampled_from(["IN (", "NOT IN ("]),
        st.lists(type_names | st.sampled_from(["x", "1"]), min_size=1).map(",".join),
        ")",
    ),
    text(TAG_LIST, operators, st.sampled_from(["'a:1'", "'a:1,b'", "'b, a:1'", "''", "'?'"])),
    text(st.sampled_from("xy"), operators, st.sampled_from(["0", "1", "'A'", "TRUE", "missing", "y / 0"])),
    st.sampled_from(
        ["TRUE", "FALSE", "x", "x IS NULL", "NOT x", "x LIKE '_%'", "EXISTS(y)", "NOPE()", "1 = 1", "1 = 2"]
    ),
)
predicates = st.recursive(
    leaves,
    lambda inner: text("(", inner, st.sampled_from(["AND", "OR"]), inner, ")") | text("NOT (", inner, ")"),
    max_leaves=8,
)
annotations = st.fixed_dictionaries({}, optional={
    Symbol("event-streams-offset"): offsets.map(Symbol),
    Symbol("event-streams-timestamp"): st.integers(-1, 13).map(Timestamp),
})  # fmt: skip
references = st.sampled_from([None, "A", "&p:A", "&s:", "&&A", 1, True, 2.5])
application = st.dictionaries(
    st.sampled_from(["x", "cloudEvents:type", "cloudEvents_type", "cloudEvents:tags"]), references
)
queries = st.sampled_from(["all", "type=A", "tag=a", "type=A type=B tag=a:1 or type=C", "tag=a:1 tag=b or type=B"])


def described(code: int, values: st.SearchStrategy[object]) -> st.SearchStrategy[Described]:
    return values.map(lambda value: Described(ULong(code), value))


simple = st.one_of(
    described(0x120, predicates),
    described(0x200, annotations),
    described(0x174, application),
    described(0x171, annotations),
    described(0x110, st.none()),
    described(0x111, st.none()),
    described(
        0x468C00000004, st.sampled_from(["cloudEvents_type = 'A'", "x BETWEEN 0 AND 1", "JMSType = 'B' OR x = 1", ""])
    ),
)
groups = st.recursive(
    simple,
    lambda inner: (
        described(0x100, st.lists(inner, max_size=3))
        | described(0x101, st.lists(inner, max_size=3))
        | described(0x102, inner)
    ),
    max_leaves=5,
)
query_filters = queries.map(lambda query: Described(Symbol("headwater:query-filter"), query))
maps = st.lists(groups | query_filters, max_size=3).map(
    lambda filters: {Symbol(str(number)): each for number, each in enumerate(filters)}
)


def is_true(node: Node, stored: Stored, now: int) -> bool:
    """The whole predicate, without any planning."""
    if isinstance(node, And):
        return all(is_true(each, stored, now) for each in node.operands)
    if isinstance(node, IndexQuery):
        return node.query.matches(stored.type, stored.tags)
    return matcher([node], lambda: now)(stored.message)


@given(maps, st.lists(stored_events(), min_size=1, max_size=12), st.integers(3, 9))
def test_plan_and_evaluation_together_are_the_whole_filter(filters, events, now):
    found = source_filter(filters, latest=LATEST, now=iter([ATTACHED_AT] + [now] * 10_000).__next__)
    note(f"{found}")
    nodes = [
        read_entry(key, each, Context(key, LATEST, ATTACHED_AT, FilterLimits(), Budget()))
        for key, each in filters.items()
    ]
    for stored in events:
        planned = (
            found.after < stored.number
            and (found.upto is None or stored.number <= found.upto)
            and (found.recorded_from is None or found.recorded_from <= stored.recorded_at)
            and found.query.matches(stored.type, stored.tags)
        )
        passed = planned and (found.matches is None or found.matches(stored.message))
        assert passed == all(is_true(node, stored, now) for node in nodes), stored
        if passed and found.recorded_upto is not None:
            assert stored.recorded_at <= found.recorded_upto
