"""Queries on Arrow columns: which rows match, decided for all rows at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.query import Query, QueryItem
from .arrow_columns import numbers_of

Mask = npt.NDArray[np.bool_]


def query_columns(query: Query) -> tuple[str, ...]:
    """The columns that the query looks at: none of, or some of `type` and `tags`."""
    items = query.items or ()
    columns = {"type": any(item.types for item in items), "tags": any(item.has_tags for item in items)}
    return tuple([name for name, is_needed in columns.items() if is_needed])


def matching_rows(query: Query, batch: pa.RecordBatch) -> Mask:
    """Which rows of a batch match; it has the columns of `query_columns`, as strings and lists of strings."""
    if query.items is None:
        return np.ones(batch.num_rows, np.bool_)
    found = np.zeros(batch.num_rows, np.bool_)
    rows_of: dict[tuple[str, bool], Mask] = {}  # items of one query often share tags
    for item in query.items:
        found |= _matching_item(item, batch, rows_of)
    return found


def _matching_item(item: QueryItem, batch: pa.RecordBatch, rows_of: dict[tuple[str, bool], Mask]) -> Mask:
    rows = _is_in(batch.column("type"), item.types) if item.types else np.ones(batch.num_rows, np.bool_)
    wanted = [(tag, ":" not in tag) for tag in item.tags] + [(tag, False) for tag in item.exact_tags]
    for tag, is_key in wanted:
        if not rows.any():
            break
        if (tag, is_key) not in rows_of:
            rows_of[tag, is_key] = _tagged(batch.column("tags"), tag, is_key=is_key)
        rows &= rows_of[tag, is_key]
    return rows


def _is_in(column: pa.Array, values: Sequence[str]) -> Mask:
    return _mask(pc.is_in(column, value_set=pa.array(values, column.type)))


def _tagged(tags: pa.ListArray, wanted: str, *, is_key: bool) -> Mask:
    """The rows with that tag; a key stands for all tags with that key as well."""
    values = tags.flatten()
    hits = pc.equal(values, wanted)
    if is_key:
        hits = pc.or_(hits, pc.starts_with(values, f"{wanted}:"))
    rows = np.zeros(len(tags), np.bool_)
    rows[numbers_of(pc.list_parent_indices(tags).filter(hits))] = True
    return rows


def _mask(array: pa.Array) -> Mask:
    mask: Mask = numbers_of(array.fill_null(False)).astype(np.bool_, copy=False)
    return mask
