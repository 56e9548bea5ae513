"""Stored events as Arrow tables: the columns that Parquet files of events have."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..core.event import SequencedEvent

SCHEMA = pa.schema(
    [
        pa.field("sequence_number", pa.int64(), nullable=False),
        pa.field("recorded_at", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("tags", pa.list_(pa.string()), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("group_key", pa.string(), nullable=False),
        pa.field("envelope", pa.binary(), nullable=False),
        pa.field("encoding", pa.int8(), nullable=False),
    ]
)
"""The fields of `core.SequencedEvent`, in their order."""


def record_batch(events: Sequence[SequencedEvent]) -> pa.RecordBatch:
    """The events as one batch of that schema."""
    columns = (
        dict(zip(SCHEMA.names, zip(*events, strict=True), strict=True)) if events else dict.fromkeys(SCHEMA.names, ())
    )
    columns["attributes"] = tuple([list(attributes.items()) for attributes in columns["attributes"]])
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
