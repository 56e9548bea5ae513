"""Converts a caller's tables, batches, or iterator of batches into batches that a server accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from ...core.errors import InvalidInput
from ...core.limits import APPEND_EVENTS_MAX, show

PIECE_BYTES = 16 * 1024 * 1024
"""Larger batches are sent in pieces: a server accepts four times as much, but holds it all in memory."""

Batches: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]


def schema_and_batches(given: Batches) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema, and the batches one by one. Raises InvalidInput if `given` is empty or of another type."""
    schema, batches = _opened(given)
    plain = pa.schema([field.with_type(_plain(field.type)) for field in schema])
    return plain, batches if plain.equals(schema) else (_cast(batch, plain) for batch in batches)


def _opened(given: Batches) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if isinstance(given, pa.RecordBatch):
        return given.schema, iter([given])
    if isinstance(given, pa.Table):
        return given.schema, iter(given.to_batches())
    if isinstance(given, pa.RecordBatchReader):
        return given.schema, iter(given)
    batches = iter(given)
    first = next(batches, None)
    if first is None:
        raise InvalidInput("expected at least one batch (it may have no rows), got none", "batches")
    if not isinstance(first, pa.RecordBatch):
        raise InvalidInput(f"expected pyarrow record batches, got {show(first)}", "batches")
    return first.schema, chain((first,), batches)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The plain type: a server accepts no dictionaries and no views."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def pieces_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, split where too large for one append, without empty ones."""
    for batch in batches:
        rows = batch.num_rows
        if not rows:
            continue
        most = max(1, min(APPEND_EVENTS_MAX, rows * PIECE_BYTES // max(batch.nbytes, 1)))
        if rows <= most:
            yield batch
        else:
            for start in range(0, rows, most):
                yield batch.slice(start, most)
