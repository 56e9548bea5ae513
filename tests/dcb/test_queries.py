"""Queries of requests: they become the core's, in every spelling, and a fault is found where it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Query, QueryItem
from headwater.core.errors import InvalidInput
from headwater.dcb.queries import query_of
from headwater.dcb.wire import QueryIn

texts = st.sampled_from(["a", "b:1", "größe:9", "A"])
pairs = st.sampled_from([{"key": "k", "value": "1"}, {"key": "k"}])
types = st.lists(texts, min_size=1, max_size=3)
tags = st.lists(texts | pairs, min_size=1, max_size=3)
spelled = st.sampled_from(["types", "event_types", "eventTypes"])
items = st.tuples(spelled, st.none() | types, st.none() | tags, st.none() | tags, st.booleans()).filter(
    lambda item: any(item[1:4])
)
Item = tuple[str, list[str] | None, list[Any] | None, list[Any] | None, bool]


def written(item: Item) -> dict[str, Any]:
    name, its_types, its_tags, exact, is_inside = item
    lists = {name: its_types, "tags": its_tags, "exact_tags": exact}
    lists = {key: value for key, value in lists.items() if value is not None}
    return {"properties": lists} if is_inside else lists


def text(tag: str | dict[str, str]) -> str:
    return tag if isinstance(tag, str) else ":".join(tag.values())


def asked(found: list[dict[str, Any]], name: str) -> Query:
    return query_of(msgspec.convert({name: found}, QueryIn), "query")


@given(st.lists(items, min_size=1, max_size=4), st.sampled_from(["items", "criteria", "criterias"]))
def test_a_query_is_the_same_in_all_spellings(given: list[Item], name: str) -> None:
    expected = [
        QueryItem(tuple(its_types or ()), tuple(map(text, its_tags or ())), tuple(map(text, exact or ())))
        for _, its_types, its_tags, exact, _ in given
    ]
    assert asked([written(item) for item in given], name) == Query.of(*expected)


@given(st.lists(items, min_size=1, max_size=4), st.sampled_from(["items", "criteria"]), st.data())
def test_a_fault_is_found_where_it_is(given: list[Item], name: str, data: st.DataObject) -> None:
    found = [written(item) for item in given]
    index = data.draw(st.integers(0, len(found) - 1))
    inside, lists = (".properties", found[index]["properties"]) if given[index][4] else ("", found[index])
    of = data.draw(st.sampled_from(sorted(lists)))
    at = data.draw(st.integers(0, len(lists[of]) - 1))
    is_pair = of.endswith("tags") and data.draw(st.booleans())
    lists[of] = [*lists[of]]
    lists[of][at] = {"key": "b:1", "value": "c"} if is_pair else ""
    with pytest.raises(InvalidInput) as caught:
        asked(found, name)
    assert caught.value.where == f"query.{name}[{index}]{inside}.{of}[{at}]{'.key' if is_pair else ''}"
    assert str(caught.value).startswith(f"{caught.value.where}: ")
