"""What a caller gives to be written - tables, batches, an iterator of them - as batches that a server takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from ..core.errors import InvalidInput
from ..core.limits import APPEND_EVENTS_MAX, show

PIECE_BYTES = 16 * 1024 * 1024
"""Larger batches go in pieces: a server takes four times as much, but has it in memory at once."""

Batches: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]


def schema_and_batches(given: Batches) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema, and the batches one by one. Raises InvalidInput: nothing there, or something else."""
    if isinstance(given, pa.RecordBatch):
        return given.schema, iter([given])
    if isinstance(given, pa.Table):
        return given.schema, iter(given.to_batches())
    if isinstance(given, pa.RecordBatchReader):
        return given.schema, iter(given)
    batches = iter(given)
    first = next(batches, None)
    if first is None:
        raise InvalidInput("at least one batch is expected (it may have no rows), none given", "batches")
    if not isinstance(first, pa.RecordBatch):
        raise InvalidInput(f"batches of pyarrow are expected, {show(first)} given", "batches")
    return first.schema, chain((first,), batches)


def pieces_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, those cut that are too large for one append."""
    for batch in batches:
        rows = batch.num_rows
        most = max(1, min(APPEND_EVENTS_MAX, rows * PIECE_BYTES // max(batch.nbytes, 1)))
        if rows <= most:
            yield batch
        else:
            for start in range(0, rows, most):
                yield batch.slice(start, most)
