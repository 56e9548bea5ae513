"""Bindings of older AMQP's exchanges as filters (Apache's registered filters): direct, topic, headers."""

from __future__ import annotations

import itertools

import pytest
from tests.every import every

from headwater.amqp.filters import FILTERS, FilterLimits, InvalidFilter, source_filter
from headwater.amqp.filters.property_filters import Topic
from headwater.amqp.protocol.types import Described, Symbol, UInt

from .messages import Message, filter_of, passes

DIRECT, TOPIC, HEADERS = (
    "apache.org:legacy-amqp-direct-binding:string",
    "apache.org:legacy-amqp-topic-binding:string",
    "apache.org:legacy-amqp-headers-binding:map",
)


def matches(name: str, value: object, message: Message) -> bool:
    return passes(filter_of(Described(Symbol(name), value)), message)


def subject(text: str | None, **properties: object) -> Message:
    return Message(properties, properties={} if text is None else {"subject": text})


@pytest.mark.parametrize(
    ("value", "given", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.B", False),
        ("a.b", "a.b.c", False),
        ("*", "a", False),
        ("#", None, False),
        ("", "", True),
        ("", None, False),
        ("a", None, False),
    ],
)
def test_direct_matches_the_very_subject(value: str, given: str | None, expected: bool) -> None:
    assert matches(DIRECT, value, subject(given)) is expected


@every(
    ("pattern", "given", "expected"),
    [
        ("*.stock.#", "usd.stock", True),
        ("*.stock.#", "eur.stock.db", True),
        ("*.stock.#", "eur.stock.db.x", True),
        ("*.stock.#", "stock.nasdaq", False),
        ("*.stock.#", "a.b.stock", False),
        ("#", "a.b", True),
        ("#", "", True),
        ("#", None, True),
        ("#.#", None, False),
        ("#.#", "a", True),
        ("*", None, False),
        ("*", "a", True),
        ("*", "", True),
        ("*", "a.b", False),
        ("a.*", "a", False),
        ("a.#", "a", True),
        ("#.a", "a", True),
        ("#.a", "b.c.a", True),
        ("#.a", "a.b", False),
        ("a.#.b", "a.b", True),
        ("a.#.b", "a.x.y.b", True),
        ("a.#.b", "a.x.y", False),
        ("a.#.#.b", "a.b", True),
        ("#.*", "a", True),
        ("#.*.#", "a.b.c", True),
        ("*.#.*", "a", False),
        ("*.#.*", "a.b", True),
        ("a", "a", True),
        ("a", "A", False),
        ("a*", "ab", False),
        ("a#", "ab", False),
        ("io.headwater.log.*", "io.headwater.log.created", True),
        ("io.headwater.#", "io.headwater.log.created", True),
    ],
)
def test_topic_matches_words_between_dots(pattern: str, given: str | None, expected: bool) -> None:
    assert matches(TOPIC, pattern, subject(given)) is expected


def naive(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(naive(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and naive(pattern[1:], words[1:])


def test_topic_agrees_with_the_definition_on_all_small_patterns() -> None:
    subjects = [list(each) for size in (1, 2, 3) for each in itertools.product("ab", repeat=size)]
    for size in (1, 2, 3, 4):
        for pattern in itertools.product("ab*#", repeat=size):
            topic = Topic(".".join(pattern))
            for words in subjects:
                assert topic.matches(".".join(words)) == naive(list(pattern), words), (pattern, words)


def test_a_long_topic_is_answered() -> None:
    pattern = ".".join(["#", "*", "a"] * 300)
    assert matches(TOPIC, pattern, subject(".".join("a" * 6000)))
    assert not matches(TOPIC, pattern, subject(".".join("a" * 6000) + ".b"))
    assert not matches(TOPIC, "*", subject("a" * 20_000))


@every(
    ("value", "expected"),
    [
        ({"a": 1, "b": "x"}, True),
        ({"a": 1, "b": "y"}, False),
        ({"x-match": "all", "a": 1, "b": "y"}, False),
        ({"x-match": "any", "a": 1, "b": "y"}, True),
        ({"x-match": "any", "a": 2, "b": "y"}, False),
        ({"a": UInt(1)}, True),
        ({"a": 1.0}, True),
        ({"a": "1"}, False),
        ({"c": None}, False),
        ({"a": None}, True),
        ({"n": None}, True),
        ({"x-other": 1}, True),
        ({"x-match": "all"}, True),
        ({"x-match": "any"}, False),
        ({}, True),
    ],
)
def test_headers_match_all_or_any_of_the_properties(value: dict[str, object], expected: bool) -> None:
    assert matches(HEADERS, value, subject("s", a=1, b="x", n=None)) is expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (DIRECT, 5),
        (DIRECT, None),
        (TOPIC, b"a"),
        (TOPIC, "a" * 4097),
        (HEADERS, "a"),
        (HEADERS, {"x-match": "some"}),
        (HEADERS, {5: 1}),
        (HEADERS, {"a": [1]}),
        (HEADERS, {f"k{n}": 1 for n in range(257)}),
    ],
)
def test_what_is_no_binding_is_invalid(name: str, value: object) -> None:
    with pytest.raises(InvalidFilter):
        matches(name, value, subject("a"))


def test_words_of_a_topic_count_as_terms() -> None:
    given = {Symbol("f"): Described(Symbol(TOPIC), "a.b.c.d")}
    with pytest.raises(InvalidFilter):
        source_filter(given, latest=0, limits=FilterLimits(terms_max=3))


def test_bindings_have_their_numbers_and_bare_values_their_keys() -> None:
    assert [FILTERS[name] for name in (DIRECT, TOPIC, HEADERS)] == [0x468C00000000, 0x468C00000001, 0x468C00000002]
    for key in ("legacy-amqp-topic-binding", TOPIC):
        found = source_filter({Symbol(key): "a.*"}, latest=0)
        assert found.matches is not None and found.matches(subject("a.b")) and not found.matches(subject("b"))


def test_a_binding_is_two_valued_in_groups() -> None:
    """NOT of a binding that does not match is true, also where there is no subject."""
    negated = {Symbol("f"): Described(0x102, Described(Symbol(TOPIC), "a"))}
    found = source_filter(negated, latest=0)
    assert found.matches is not None and found.matches(subject(None))
