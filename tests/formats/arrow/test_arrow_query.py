"""Queries on Arrow columns say the same as queries on events."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.query import ALL, Query, QueryItem
from headwater.spark.archive.slices import matching_rows, query_columns

TAGS = st.lists(
    st.sampled_from(["order:1", "order:2", "order", "ordering:1", "vip", "vip:yes"]), unique=True, max_size=4
)
TYPES = st.sampled_from(["Placed", "Paid", "Sent"])
ITEMS = st.builds(
    lambda types, tags, exact_tags: QueryItem(tuple(types), tuple(tags), tuple(exact_tags)),
    st.lists(TYPES, max_size=2),
    TAGS,
    TAGS,
).filter(lambda item: item.count > 0)


@given(
    rows=st.lists(st.tuples(TYPES, TAGS), max_size=8),
    items=st.lists(ITEMS, min_size=1, max_size=3),
    skip=st.integers(0, 3),
)
def test_a_query_matches_the_same_rows_as_it_does_events(
    rows: list[tuple[str, list[str]]], items: list[QueryItem], skip: int
) -> None:
    query = Query.of(*items)
    batch = pa.record_batch(
        {
            "type": pa.array([type for type, _ in rows], pa.string()),
            "tags": pa.array([tags for _, tags in rows], pa.list_(pa.string())),
        }
    ).slice(skip)

    assert list(matching_rows(query, batch)) == [query.matches(type, tags) for type, tags in rows[skip:]]


def test_every_row_matches_the_query_for_all_events() -> None:
    assert list(matching_rows(ALL, pa.record_batch({"number": pa.array([1, 2])}))) == [True, True]


def test_only_the_columns_that_a_query_looks_at_are_needed() -> None:
    assert query_columns(ALL) == ()
    assert query_columns(Query.where(types=["Paid"])) == ("type",)
    assert query_columns(Query.of(QueryItem(("Paid",)), QueryItem((), ("vip",)))) == ("type", "tags")
    assert query_columns(Query.where(exact_tags=["vip"])) == ("tags",)
    assert list(matching_rows(Query.where(types=["Paid"]), pa.record_batch({"type": pa.array(["Paid"])}))) == [True]
