"""The columns of an archive: those of the data source, and the date by which the table is partitioned."""

from __future__ import annotations

import pyarrow as pa

from ...formats.arrow.tables import SCHEMA

DATE = "date"
"""The UTC date of recorded_at. It is in the file paths and the Delta log, not in the files."""


def _archived(field: pa.Field) -> pa.Field:
    """The field in a table: Spark and Delta use microseconds, and cannot declare a column non-null."""
    return pa.field(field.name, pa.timestamp("us", tz="UTC") if field.name == "recorded_at" else field.type)


FILE_SCHEMA = pa.schema([pa.field("log", pa.string()), *map(_archived, SCHEMA)])
"""The columns of each Parquet file."""

REPEATED = (
    "log", "partition", "type", "tags.list.element", "source", "attributes.key_value.key", "attributes.key_value.value",
    "group_key", "envelope", "encoding",
)  # fmt: skip
"""Columns with repeated values, by Parquet path. Numbers, times, ids and most data are unique."""

TABLE_SCHEMA = FILE_SCHEMA.append(pa.field(DATE, pa.date32()))
"""The columns of the table."""
