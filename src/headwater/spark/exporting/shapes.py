"""What a row of each format of an export is, and how Spark writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ...formats.envelope import encode_event
from ..rows import events_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["parquet", "ndjson", "csv"]
PartitionBy = Literal["none", "date", "type"]
DIRECTORY = {"date": "date", "type": "event_type"}
"""The column of each kind of directory; the events keep their own columns."""
_TABLE = (
    "sequence_number",
    "date_format(recorded_at, \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\") AS recorded_at",
    "partition",
    "type",
    "concat_ws(',', transform(tags, tag -> replace(replace(tag, '%', '%25'), ',', '%2C'))) AS tags",
    "id",
    "source",
    "coalesce(attributes['time'], '') AS time",
    "if(is_valid_utf8(cast(data AS string)), cast(data AS string), '') AS data",
    "if(is_valid_utf8(cast(data AS string)), '', base64(data)) AS data_base64",
)
"""The columns of `headwater export --format csv`."""


def shaped(events: DataFrame, format: Format, partition_by: PartitionBy) -> DataFrame:
    """The rows to write, with a column for the directory if there are such; payload columns of the frame stay."""
    directory = DIRECTORY.get(partition_by)
    if directory == "date":
        events = events.selectExpr("*", "to_date(recorded_at) AS date")
    elif directory is not None:
        events = events.selectExpr("*", f"type AS {directory}")
    if format == "csv":
        further = [f"`{name}`" for name in events.columns if name.startswith("payload_") or name == directory]
        return events.selectExpr(*_TABLE, *further)
    if format == "ndjson":
        return events.mapInArrow(_lines, f"value string{f', {directory} string' if directory else ''}")
    return events


def _lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A line for each event, as `headwater read --json` writes it; a last column of directories goes along."""
    for batch in batches:
        lines = {"value": pa.array([encode_event(event).decode() for event in events_in(batch)], pa.string())}
        for name in DIRECTORY.values():
            if name in batch.schema.names:
                lines[name] = batch.column(name).cast(pa.string())
        yield pa.record_batch(lines)


def write(rows: DataFrame, format: Format, partition_by: PartitionBy, path: str, compression: str) -> None:
    """Write the rows into a new directory."""
    writer = rows.write.option("compression", compression)
    if (directory := DIRECTORY.get(partition_by)) is not None:
        writer = writer.partitionBy(directory)
    if format == "parquet":
        writer.parquet(path)
    elif format == "ndjson":
        writer.text(path)
    else:
        writer.options(header="true", quoteAll="true", escape='"', emptyValue="").csv(path)
