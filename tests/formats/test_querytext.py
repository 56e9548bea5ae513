import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Query, QueryItem
from headwater.core.errors import InvalidQuery
from headwater.formats.querytext import parse_query
from tests.odd_tags import ODD_TAGS

types = st.text(st.characters(categories=["L", "N", "P", "Zs", "S"]), min_size=1, max_size=20)
tags = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20) | st.sampled_from(ODD_TAGS)
terms = st.lists(types, max_size=3).map(tuple), *[st.lists(tags, max_size=3).map(tuple)] * 2
items = st.builds(QueryItem, *terms).filter(lambda item: item.count > 0)


@given(st.lists(items, min_size=1, max_size=4))
def test_what_is_said_of_a_query_is_parsed_back(items: list[QueryItem]) -> None:
    query = Query.of(*items)
    assert parse_query(" or ".join(map(said, items))) == query


def said(item: QueryItem) -> str:
    terms = [f"type={type}" for type in item.types] + [f"tag={tag}" for tag in item.tags]
    terms += [f"exact_tag={tag}" for tag in item.exact_tags]
    return " ".join(map(shlex.quote, terms))


def test_all_is_every_event() -> None:
    assert parse_query("all") == Query.all()


def test_terms_join_into_items_and_items_are_alternatives() -> None:
    assert parse_query("type=A type=B and tag=x:1 OR tag='y:two words'") == Query.of(
        QueryItem(("A", "B"), ("x:1",)), QueryItem((), ("y:two words",))
    )


def test_json_is_taken_as_well() -> None:
    assert parse_query('{"items": [{"types": ["A"]}, {"tags": ["x:1"]}]}') == parse_query("type=A or tag=x:1")
    assert parse_query('{"items": [{"exact_tags": ["x"]}]}') == Query.where(exact_tags=["x"])
    assert parse_query(' {"all": true}') == Query.all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "items"),
        ("tag=a or", r"items\[1\]"),
        ("order:17", "got 'order:17'"),
        ("type='A", "No closing quotation"),
        ('{"items": [{"type": "A"}]}', "unknown field `type`"),
        ('{"all": false}', "expected"),
        ("tag=", r"items\[0\]\.tags\[0\]"),
        ("exact_tag=", r"items\[0\]\.exact_tags\[0\]"),
    ],
)
def test_a_text_that_is_no_query_is_refused_with_the_word(text: str, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        parse_query(text)
