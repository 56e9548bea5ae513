"""Whatever a peer sends as a filter is a filter, or an InvalidFilter: never another error, never endless work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amqp.filters.messages import EVENT_STREAMS_SQL, HEAD, NAME, SELECTOR, SQL, Message, described
from tests.every import every

from headwater.amqp.filters import FILTERS, InvalidFilter, source_filter
from headwater.amqp.filters.values import TEXT_CHARS_MAX
from headwater.amqp.protocol.types import Decimal32, Described, Float, Symbol, Timestamp, UInt, ULong

LANGUAGES = [SQL, EVENT_STREAMS_SQL, SELECTOR]
WORDS = [
    "AND",
    "OR",
    "NOT",
    "LIKE",
    "ESCAPE",
    "IN",
    "IS",
    "NULL",
    "EXISTS",
    "TRUE",
    "FALSE",
    "INF",
    "NAN",
    "BETWEEN",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "x",
    "p.subject",
    "h.priority",
    "d.event-streams-offset",
    "d.event-streams-timestamp",
    "'@latest'",
    "[a.b]",
    "a.[x]",
    "'text'",
    '"text"',
    "1",
    "2.5",
    "0x0a",
    "1e3",
    "LOWER(",
    "SUBSTRING(",
    "DATE(",
    "UTC()",
    "NOPE(",
    "amqp.subject",
    "JMSType",
    "JMSMessageID",
    "cloudEvents_type",
    "'%_'",
    "'!'",
    ".",
    "'",
    '"',
    "[",
    "]",
    "x-",
    "1a",
]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.uuids()
    | st.sampled_from([Symbol("red"), UInt(1), Timestamp(5), Float(0.5), Decimal32(bytes(4))]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "subject"]), inner, max_size=3)
    ),
    max_leaves=4,
)
fields = st.dictionaries(st.sampled_from(["x", "y", "a.b", "cloudEvents:type"]), values)
sections = st.dictionaries(st.sampled_from(["subject", "message-id", "user-id", "priority"]), values)
messages = st.builds(Message, fields, header=sections, properties=sections, message_annotations=fields, footer=fields)


def is_answered(given: dict[object, object], message: Message) -> bool:
    """Whether it is a filter; it must then say yes or no of the message."""
    try:
        found = source_filter(given, latest=HEAD)
    except InvalidFilter as error:
        assert error.problem and (error.position is None or error.position >= 1)
        return False
    assert found.matches is None or found.matches(message) in (True, False)
    return True


@pytest.mark.parametrize("language", LANGUAGES)
@given(text=st.text(max_size=60), message=messages)
def test_any_text_is_a_filter_or_an_invalid_one(language, text, message):
    is_answered({NAME: described(language, text)}, message)


@pytest.mark.parametrize("language", LANGUAGES)
@given(words=st.lists(st.sampled_from(WORDS), max_size=14), message=messages)
def test_any_words_of_the_languages_are_a_filter_or_an_invalid_one(language, words, message):
    is_answered({NAME: described(language, " ".join(words))}, message)


operands = st.sampled_from(
    ["x", "y", "p.subject", "h.priority", "p.message-id", "1", "2.5", "'red'", "0x01", "TRUE", "INF", "NAN"]
)
expressions = st.recursive(
    operands,
    lambda inner: (
        st.tuples(inner, st.sampled_from("+-*/%"), inner).map(" ".join)
        | st.tuples(st.sampled_from(["LOWER", "DATE", "-", "NOPE"]), inner).map("{0[0]}({0[1]})".format)
        | st.tuples(st.sampled_from(["LEFT", "RIGHT", "SUBSTRING"]), inner, inner).map("{0[0]}({0[1]}, {0[2]})".format)
    ),
    max_leaves=5,
)


@given(st.tuples(expressions, st.sampled_from(["=", "<>", "<", ">="]), expressions).map(" ".join), messages)
def test_any_expression_can_be_evaluated_on_any_message(text, message):
    assert is_answered({NAME: described(SQL, text)}, message)


@given(
    st.dictionaries(
        values.filter(lambda key: not isinstance(key, list | dict)) | st.sampled_from(sorted(FILTERS)),
        values
        | st.builds(Described, st.sampled_from([*FILTERS, *filter(None, FILTERS.values())]) | values, values)
        | st.builds(
            Described,
            st.sampled_from([0x100, 0x101, 0x102]).map(ULong),
            st.lists(st.builds(Described, st.sampled_from([*FILTERS]), values)),
        ),
        max_size=3,
    ),
    messages,
)
def test_any_map_is_a_filter_or_an_invalid_one(given, message):
    is_answered(given, message)


@every("language", LANGUAGES)
@every(
    "unit",
    ["(", "-", "NOT ", "'", '"', "[", "[[", "]]", "x.", "a.", "1+", "9", "0x", "1e", "x AND ", "LOWER(", "$", "é"],
)
def test_repetition_is_answered(language, unit):
    for count in (4096 // len(unit), 60):
        is_answered({NAME: described(language, unit * count)}, Message({"x": 1}))
        is_answered({NAME: described(language, unit * count + " x = 1" + ")" * 20)}, Message({"x": 1}))


def test_longest_filter_is_evaluated_on_a_large_message():
    text = "x LIKE '" + "%_a" * 1350 + "'"
    assert is_answered({NAME: described(SQL, text)}, Message({"x": "a" * TEXT_CHARS_MAX}))
    assert is_answered({NAME: described(SQL, "+".join(["x"] * 490) + " = 'a'")}, Message({"x": "a" * TEXT_CHARS_MAX}))


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of Python the work runs, loops and calls included."""
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("text", ["x LIKE '%_b%a_b%'", "x LIKE '%" + "a_" * 20 + "b%'"])
def test_evaluating_takes_steps_linear_in_the_message(text):
    matches = source_filter({NAME: described(SQL, text)}, latest=HEAD).matches
    shorter, longer = (Message({"x": "a" * chars}) for chars in (TEXT_CHARS_MAX // 8, TEXT_CHARS_MAX // 2))
    assert lines_of(lambda: matches(longer)) <= 4 * lines_of(lambda: matches(shorter)) + 100
