"""Converts rows of a DataFrame, as tasks receive them from Spark, to events.

No Spark here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...core.event import NO_ATTRIBUTES, Encoding, SequencedEvent
from ...formats.arrow.tables import SCHEMA, events_of, record_batch

_EMPTY = record_batch([SequencedEvent(0, 0, 0, "", b"", (), "", "", NO_ATTRIBUTES, "", b"", Encoding.DATA)])


def events_in(batch: pa.RecordBatch) -> list[SequencedEvent]:
    """The events in rows with columns of the data source. Missing columns are empty; other columns are dropped."""
    columns = [_column(batch, field) for field in SCHEMA]
    return events_of(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type, safe=False)
    return _EMPTY.column(field.name).take(pa.array(np.zeros(batch.num_rows, np.int32)))
