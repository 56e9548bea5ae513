"""The columns of an archive: the data source's, and the date by which the table is partitioned."""

from __future__ import annotations

import pyarrow as pa

from ...formats.arrow.tables import SCHEMA

DATE = "date"
"""The UTC date of recorded_at. It is in the paths of the files and in the Delta log, not in the files."""


def _archived(field: pa.Field) -> pa.Field:
    """As the table has it: Spark and Delta count microseconds, and know no column that is never null for sure."""
    return pa.field(field.name, pa.timestamp("us", tz="UTC") if field.name == "recorded_at" else field.type)


FILE_SCHEMA = pa.schema([pa.field("log", pa.string()), *map(_archived, SCHEMA)])
"""What is in each Parquet file."""

REPEATED = (
    "log", "partition", "type", "tags.list.element", "source", "attributes.key_value.key", "attributes.key_value.value",
    "group_key", "envelope", "encoding",
)  # fmt: skip
"""Those whose values repeat, by Parquet's paths: numbers, times, ids and mostly data are there once each."""

TABLE_SCHEMA = FILE_SCHEMA.append(pa.field(DATE, pa.date32()))
"""What the table shows."""
