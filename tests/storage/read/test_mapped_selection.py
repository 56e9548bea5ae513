"""Queries over many events at once: they say what a query says of each event, and what a walk over postings finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import Query
from headwater.storage.index.matches import PostingsPiece, matching
from headwater.storage.index.postings import FilePostings, write_postings
from headwater.storage.read.selection import matching_numbers, matching_rows

from ..index.test_matches import queries
from ..index.test_postings import Row, active, rows


@settings(max_examples=200, deadline=None)
@given(rows, queries, st.integers(0, 3))
def test_rows_match_as_events_do(content: list[Row], query: Query, skipped: int) -> None:
    types = pa.array([type for type, _, _ in content], pa.string()).slice(skipped)
    tags = pa.array([list(tags) for _, tags, _ in content], pa.list_(pa.string())).slice(skipped)
    expected = [query.matches(type, tags) for type, tags, _ in content[skipped:]]
    assert matching_rows(types, tags, query).tolist() == expected


@settings(max_examples=200, deadline=None)
@given(rows, queries, st.sampled_from([None, None, 0, 1, 7]), st.integers(1, 500), st.data())
def test_numbers_match_as_walks_find_them(
    tmp_path_factory: pytest.TempPathFactory,
    content: list[Row],
    query: Query,
    partition: int | None,
    first: int,
    data: st.DataObject,
) -> None:
    run = active(content, first)
    postings = FilePostings(write_postings(tmp_path_factory.mktemp("index"), run.first, run.last, run.encoded_terms()))
    low = data.draw(st.integers(run.first, run.last))
    high = data.draw(st.integers(low, run.last))
    found = matching_numbers(postings, low, high, query, partition)
    assert found.dtype == np.int64
    assert found.tolist() == list(matching([PostingsPiece(postings, low, high)], query, partition))
