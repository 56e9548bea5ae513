"""The filter of a QUERY."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.management.entities import CONSUMER, LINK, LOG, PARTITION, USER
from headwater.management.query_filter import CHARS_MAX, TERMS_MAX, selection
from headwater.management.statuses import OperationRefused

from .asking import CONSUMER_TYPE, LOG_TYPE, Node

SHOWN: dict[str, Any] = {
    "name": "a,b=c\\d",
    "partitions": 4,
    "retentionMs": None,
    "keepsHistory": True,
    "partitionBy": "",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("partitions=4", True),
        ("partitions==4", True),
        ("partitions!=4", False),
        ("partitions=04", False),
        ("retentionMs=null", True),
        ("retentionMs!=null", False),
        ("keepsHistory=true,partitions=4", True),
        ("keepsHistory=true,partitions=5", False),
        ("keepsHistory=True", False),
        ("partitionBy=", True),
        ("partitionBy=,partitions=4", True),
        (r"name=a\,b\=c\\d", True),
    ],
)
def test_terms_are_compared_with_what_is_shown(text: str, expected: bool) -> None:
    chosen = selection(text, [LOG])
    assert chosen is not None and chosen.takes(LOG, SHOWN) is expected


def test_a_list_is_equal_to_each_of_its_elements() -> None:
    chosen = selection("grants=read:*", [USER])
    assert chosen is not None
    assert chosen.takes(USER, {"grants": ["all:a", "read:*"]})
    assert not chosen.takes(USER, {"grants": ["all:a"]})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "NAME=VALUE"),
        ("partitions", "NAME=VALUE"),
        ("partitions=4,", "NAME=VALUE"),
        ("partitions>4", "NAME=VALUE"),
        ("name=a=b", "NAME=VALUE"),
        (r"name=a\b", "NAME=VALUE"),
        ("nothing=4", "not an attribute"),
        ("password=secret", "not an attribute"),
        ("partitions=4," * TERMS_MAX + "partitions=4", "terms"),
        ("name=" + "x" * CHARS_MAX, "characters"),
    ],
)
def test_what_is_no_filter_is_refused(text: str, told: str) -> None:
    with pytest.raises(OperationRefused, match=told):
        selection(text, [LOG, USER])


def test_a_map_is_not_compared() -> None:
    with pytest.raises(OperationRefused, match="map"):
        selection("filter=x", [LINK])


def test_of_several_types_one_must_have_the_attribute() -> None:
    chosen = selection("log=orders", [LOG, PARTITION, CONSUMER])
    assert chosen is not None and not chosen.takes(LOG, {"name": "orders"})


def test_a_query_is_filtered_before_its_page_is_taken() -> None:
    node = Node()
    for name in ("a", "b", "c"):
        node.store.create(name)
        node.store.open(name).register_consumer("alice", name)
    assert node.query("name", entityType=LOG_TYPE, filter="name!=a", offset=1) == [["c"]]
    assert node.query("name", entityType=LOG_TYPE, filter="name!=a", count=1) == [["b"]]
    assert node.query("log", entityType=CONSUMER_TYPE, filter="component=b,owner=alice") == [["b"]]
    assert node.ask("QUERY", entityType=LOG_TYPE, filter=5).status == 400
