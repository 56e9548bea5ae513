"""The rows of each export format, and how Spark writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ....formats.envelope import encode_event
from ....formats.files.csv_rows import COLUMNS, row_of
from ....formats.files.parquet import SPARK_WRITES
from ...columns.rows import events_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["parquet", "ndjson", "csv"]
PartitionBy = Literal["none", "date", "type"]
DIRECTORY = {"date": "date", "type": "event_type"}
"""The column for each kind of directory; the events keep their own columns."""
_TEXT = ("string", pa.string())
_NUMBERS = {"sequence_number": ("bigint", pa.int64()), "partition": ("int", pa.int32())}
"""Types of table columns, in Spark and in Arrow; all others are text."""


def shaped(events: DataFrame, format: Format, partition_by: PartitionBy) -> DataFrame:
    """The rows to write, with a column for the directory if needed; payload columns of the frame stay."""
    directory = DIRECTORY.get(partition_by)
    if directory == "date":
        events = events.selectExpr("*", "to_date(recorded_at) AS date")
    elif directory is not None:
        events = events.selectExpr("*", f"type AS {directory}")
    if format == "csv":
        further = [each for each in events.schema if each.name.startswith("payload_") or each.name == directory]
        own = ", ".join(f"{name} {_NUMBERS.get(name, _TEXT)[0]}" for name in COLUMNS)
        schema = "".join([own, *(f", `{each.name}` {each.dataType.simpleString()}" for each in further)])
        return events.mapInArrow(_rows, schema)
    if format == "ndjson":
        return events.mapInArrow(_lines, f"value string{f', {directory} string' if directory else ''}")
    return events


def _lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A line for each event, as `headwater read --json` writes it, plus the directory column, if any."""
    for batch in batches:
        lines = {"value": pa.array([encode_event(event).decode() for event in events_in(batch)], pa.string())}
        for name in DIRECTORY.values():
            if name in batch.schema.names:
                lines[name] = batch.column(name).cast(pa.string())
        yield pa.record_batch(lines)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each event, as `headwater export --format csv` writes it, plus columns that are not an event's."""
    for batch in batches:
        cells = zip(*map(row_of, events_in(batch)), strict=True) if batch.num_rows else [()] * len(COLUMNS)
        named = zip(COLUMNS, cells, strict=True)
        rows = {name: pa.array(column, _NUMBERS.get(name, _TEXT)[1]) for name, column in named}
        further = [name for name in batch.schema.names if name.startswith("payload_") or name in DIRECTORY.values()]
        yield pa.record_batch(rows | {name: batch.column(name) for name in further})


def write(rows: DataFrame, format: Format, partition_by: PartitionBy, path: str, compression: str) -> None:
    """Write the rows into a new directory."""
    writer = rows.write.options(**SPARK_WRITES).option("compression", compression)
    if (directory := DIRECTORY.get(partition_by)) is not None:
        writer = writer.partitionBy(directory)
    if format == "parquet":
        writer.parquet(path)
    elif format == "ndjson":
        writer.text(path)
    else:
        as_it_is = {"emptyValue": "", "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
        writer.options(header="true", quoteAll="true", escape='"', **as_it_is).csv(path)
