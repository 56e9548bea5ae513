"""Queries against an oracle that is too simple to be wrong, and their checks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import ALL, Query, QueryItem
from headwater.core.errors import InvalidQuery
from headwater.core.limits import QUERY_ITEMS_MAX, QUERY_TERMS_MAX, QUERY_TERMS_TOTAL_MAX
from tests.every import every

from ..builders import refusal

types = st.sampled_from(["A", "B", "C", "a"])
tags = st.sampled_from(["k", "k:1", "k:2", "k:1:2", "l:1", "l", "kk:1", "K:1"])
items = st.tuples(st.lists(types, max_size=3), *[st.lists(tags, max_size=3)] * 2).filter(any)


def oracle(wanted: list[tuple[list[str], list[str], list[str]]], type: str, tags: list[str]) -> bool:
    """The definition, word by word: any item; type is one of types; every tag is there, or some tag of that key; every
    exact tag is there."""
    for item_types, item_tags, item_exact_tags in wanted:
        type_fits = item_types == [] or type in item_types
        tags_fit = all(
            any(have == want or (":" not in want and have.startswith(want + ":")) for have in tags)
            for want in item_tags
        )
        if type_fits and tags_fit and all(want in tags for want in item_exact_tags):
            return True
    return False


@given(st.lists(items, min_size=1, max_size=4), types, st.lists(tags, max_size=4))
def test_a_query_matches_what_its_definition_says(
    wanted: list[tuple[list[str], list[str], list[str]]], type: str, have: list[str]
) -> None:
    query = Query.of(*[QueryItem(*map(tuple, item)) for item in wanted])
    assert query.matches(type, have) == oracle(wanted, type, have)


@given(types, st.lists(tags))
def test_all_matches_everything(type: str, have: list[str]) -> None:
    assert ALL.matches(type, have)
    assert Query.all() is ALL


def test_tags_may_come_from_an_iterator() -> None:
    query = Query.of(QueryItem(("B",)), QueryItem((), ("x:1",)))
    assert query.matches("A", iter(["x:1"]))


def test_terms_are_kept_sorted_and_distinct_so_that_equal_queries_are_equal() -> None:
    one = Query.where(types=["B", "A", "B"], tags=["y", "x:1"])
    assert one == Query.where(types=("A", "B"), tags=("x:1", "y", "y"))
    assert hash(one) == hash(Query.where(types=("A", "B"), tags=("x:1", "y")))
    assert Query.of(QueryItem(tags=["x:1"])) == Query.where(tags=["x:1"])  # type: ignore[arg-type]
    assert Query.where(exact_tags=["x:1"]) == Query.where(tags=["x:1"]) != Query.where(exact_tags=["x"])
    assert Query.where(tags=["y"], exact_tags=["x:1", "x"]) == Query.of(QueryItem(tags=("x:1", "y"), exact_tags=("x",)))


@every(
    ("items", "where", "problem"),
    [
        ((), "items", "a query needs at least one item; use Query.all() for every event"),
        ((QueryItem(("A",)), QueryItem()), "items[1]",
         "an item needs types or tags; an item without both would match every event"),
        ((QueryItem(("A", "")),), "items[0].types[1]", "a type must have 1 to 200 characters, got 0"),
        ((QueryItem((), ("a\nb",)),), "items[0].tags[0]", "a tag must not contain control characters, got '\\n'"),
        ((QueryItem((), ("",)),), "items[0].tags[0]", "a tag must have 1 to 1100 bytes of UTF-8, got 0"),
        ((QueryItem((), (), ("a", "\u00e9" * 551)),), "items[0].exact_tags[1]",
         "a tag must have 1 to 1100 bytes of UTF-8, got 1102"),
        ((QueryItem((), (), "ab"),), "items[0].exact_tags", "expected a tuple of strings, got 'ab'"),
        ((QueryItem((1,)),), "items[0].types[0]", "a type must be a string, got 1"),
        ((QueryItem((["A"],)),), "items[0].types[0]", "a type must be a string, got ['A']"),
        ((QueryItem("AB"),), "items[0].types", "expected a tuple of strings, got 'AB'"),
        ((QueryItem((), "ab"),), "items[0].tags", "expected a tuple of strings, got 'ab'"),
        ((QueryItem(None, ("a",)),), "items[0].types", "expected a tuple of strings, got None"),
        (("A",), "items[0]", "expected a QueryItem, got 'A'"),
        ((QueryItem(("A",)),) * (QUERY_ITEMS_MAX + 1), "items",
         f"{QUERY_ITEMS_MAX + 1} items given, at most {QUERY_ITEMS_MAX} are allowed"),
        ((QueryItem(("A",) * 200, ("a",) * 57),), "items[0]",
         f"257 types and tags given, at most {QUERY_TERMS_MAX} are allowed"),
    ],
)  # fmt: skip
def test_a_malformed_query_is_refused_with_its_place(items: Any, where: str, problem: str) -> None:
    with refusal(InvalidQuery(problem, where)):
        Query.of(*items)


@pytest.mark.parametrize("name", ["types", "tags"])
def test_a_string_is_not_taken_for_its_characters(name: str) -> None:
    with refusal(InvalidQuery("expected a tuple of strings, got 'room:1'", f"items[0].{name}")):
        Query.where(**{name: "room:1"})  # type: ignore[arg-type]


def test_the_largest_query_is_taken() -> None:
    each = QUERY_TERMS_TOTAL_MAX // QUERY_ITEMS_MAX
    item = QueryItem(("A",) * (each - 1), ("a",))
    assert Query.of(*[item] * QUERY_ITEMS_MAX).matches("A", ["a:1"])


def test_all_items_together_have_a_limit_because_each_term_is_checked_and_looked_up_in_one_step() -> None:
    items = [QueryItem(("A",) * QUERY_TERMS_MAX)] * (QUERY_TERMS_TOTAL_MAX // QUERY_TERMS_MAX)
    assert Query.of(*items)
    with pytest.raises(InvalidQuery, match="all items together have more than 16384 types and tags"):
        Query.of(*items, QueryItem(("A",)))
