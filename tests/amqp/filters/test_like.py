"""LIKE against a model that tries everything, and against what makes others slow."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.amqp.filters import source_filter
from headwater.amqp.filters.values import TEXT_CHARS_MAX, Pattern
from headwater.amqp.protocol.types import Described, Symbol

from .messages import Message


def naive(pattern: str, text: str, escape: str | None) -> bool:
    """LIKE by its definition."""
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == escape:
        return text[:1] == rest[0] and naive(rest[1:], text[1:], escape)
    if first == "%":
        return any(naive(rest, text[start:], escape) for start in range(len(text) + 1))
    return bool(text) and first in ("_", text[0]) and naive(rest, text[1:], escape)


@settings(max_examples=300)
@given(st.text("ab_%", max_size=8), st.text("ab_%", max_size=10))
@example("%_", "")
@example("a%a", "a")
@example("%a_b%", "aaab")
def test_like_is_what_the_definition_says(pattern, text):
    assert Pattern(pattern).matches(text) is naive(pattern, text, None)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%ab%", "xxabyy", True),
        ("%ab%ba%", "aba", False),
        ("%ab%ba%", "abba", True),
        ("%__%", "ab", True),
        ("%__%", "a", False),
        ("a%__%b", "a12b", True),
        ("a%__%b", "a1b", False),
        ("%a_c%", "abxabc", True),
        ("%a_c%", "ab", False),
        ("%a%a%", "a", False),
        ("_%_", "ab", True),
        ("_%_", "a", False),
    ],
)
def test_pieces_between_percents_are_found_one_after_the_other(pattern, text, expected):
    assert Pattern(pattern).matches(text) is expected


@given(st.text("ab_%!", max_size=8), st.text("ab_%!", max_size=10))
def test_an_escape_takes_the_next_character_literally(pattern, text):
    try:
        found = Pattern(pattern, "!")
    except ValueError:
        assert pattern.replace("!!", "").endswith("!")
    else:
        assert found.matches(text) is naive(pattern, text, "!")


def test_an_escape_with_nothing_to_escape_is_refused():
    with pytest.raises(ValueError, match="ends with its escape"):
        Pattern("100!", "!")


@pytest.mark.parametrize("special", [".*", "^$", "a|b", "(a)", "[a]", "\\", "a+?", "\n"])
def test_characters_of_regular_expressions_are_literal(special):
    assert Pattern(special).matches(special)
    assert Pattern(f"%{special}_").matches(f"..{special}x")
    assert not Pattern(special).matches("a")


def test_underscore_is_one_character_whatever_its_bytes():
    assert Pattern("_").matches("é") and Pattern("a_c").matches("a\U0001f955c") and not Pattern("_").matches("éé")


@pytest.mark.parametrize(
    "pattern",
    ["%" + "a%" * 2000 + "b", "%" + "a_" * 2000 + "b%", "%_" * 2000 + "b", "_%" * 2047 + "b", "%" + "a" * 4000 + "b%"],
)
def test_patterns_that_make_others_backtrack_are_answered(pattern):
    assert Pattern(pattern).matches("a" * TEXT_CHARS_MAX) is False


@given(st.text("ab%_\\&", max_size=6), st.text("ab%_\\&", max_size=8))
def test_prefix_and_suffix_are_literal(text, subject):
    assert Pattern.prefix(text).matches(subject) is subject.startswith(text)
    assert Pattern.suffix(text).matches(subject) is subject.endswith(text)


def test_a_text_that_is_too_long_is_unknown():
    assert Pattern("%").matches("x" * TEXT_CHARS_MAX) is True
    assert Pattern("%").matches("x" * (TEXT_CHARS_MAX + 1)) is None


def test_patterns_that_search_share_what_they_look_at() -> None:
    def matches(searches: int, chars: int) -> bool:
        text = " AND ".join("[x] LIKE '%a_c%'" for _ in range(searches))
        found = source_filter({Symbol("f"): Described(Symbol("amqp:sql-filter"), text)}, latest=0).matches
        assert found is not None
        return found(Message({"x": "abc".rjust(chars)}))

    assert matches(1, 16_384) and matches(2, 16_384) and matches(16, 2048)
    assert not matches(1, 16_385) and not matches(3, 16_384) and not matches(16, 2049)
