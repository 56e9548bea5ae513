"""Folds one batch in Spark: events go to the tasks of their entities' buckets, each task rewrites its files.

A task holds one bucket at a time in memory. Each attempt names its files differently, so none is ever overwritten; a
later vacuum removes uncommitted ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ...core.event import SequencedEvent
from ..columns.rows import events_in
from .buckets import DIRECTORY, rows_of, write
from .fold import Fold, Row, folded
from .table import BucketFile, StateTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_COLUMNS = SequencedEvent._fields
DEFAULT_COLUMNS = tuple(name for name in EVENT_COLUMNS if name != "envelope")
NEEDED = ("sequence_number", "tags")
_RESULT = "bucket int, path string, bytes long, rows long, events long"
_RESULT_SCHEMA = pa.schema(
    {"bucket": pa.int32(), "path": pa.string(), "bytes": pa.int64(), "rows": pa.int64(), "events": pa.int64()}
)


class Folded(NamedTuple):
    """The result of a batch."""

    files: list[BucketFile]
    events: int
    """The number of events that have an entity."""


def fold_batch(events: DataFrame, table: StateTable, fold: Fold, tasks: int) -> Folded:
    """Fold the events, which are those after the table's position, into new files. Nothing is committed yet."""
    from pyspark.sql import functions as f

    prefix, buckets = f"{table.definition.tag}:", table.definition.buckets
    tags = f.filter("tags", lambda tag: tag.startswith(prefix))
    entities = f.transform(tags, lambda tag: f.substring(tag, len(prefix) + 1, 2**31 - 1))
    by_bucket = (
        events.select("*", f.posexplode(entities).alias("index", "entity"))
        .withColumn("bucket", (f.crc32(f.col("entity").cast("binary")) % buckets).cast("int"))
        .repartition(tasks, "bucket")
        .sortWithinPartitions("bucket", "sequence_number")
    )
    task = FoldTask(str(table.path), table.files(), fold)
    found = by_bucket.mapInArrow(task, _RESULT).collect()
    files = [BucketFile(row.bucket, row.path, row.bytes, row.rows) for row in found]
    return Folded(sorted(files), sum(row.events for row in found))


@dataclass(frozen=True)
class FoldTask:
    """A task that folds the events of some buckets; they arrive sorted by bucket and number."""

    root: str
    files: dict[int, str]
    fold: Fold

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A row for every bucket that has events. Raises FoldFailed, NotAProjection."""
        function, name = self.fold.load(), self.fold.name
        bucket, rows, events = -1, dict[str, Row](), 0
        for batch in batches:
            for next_bucket, entity, index, event in _events_of(batch):
                if next_bucket != bucket:
                    if bucket >= 0:
                        yield self._write(bucket, rows, events)
                    bucket, rows, events = next_bucket, self._read(next_bucket), 0
                events += index == 0
                row = folded(name, function, rows.get(entity), entity, event)
                if row is None:
                    rows.pop(entity, None)
                else:
                    rows[entity] = row
        if bucket >= 0:
            yield self._write(bucket, rows, events)

    def _read(self, bucket: int) -> dict[str, Row]:
        file = self.files.get(bucket)
        return {} if file is None else dict(rows_of(Path(self.root) / file))

    def _write(self, bucket: int, rows: dict[str, Row], events: int) -> pa.RecordBatch:
        path, size = "", 0
        if rows:
            root = Path(self.root)
            file = write(root / DIRECTORY / f"{bucket:04d}-{uuid.uuid4()}.parquet", rows)
            path, size = file.relative_to(root).as_posix(), file.stat().st_size
        written = {"bucket": bucket, "path": path, "bytes": size, "rows": len(rows), "events": events}
        return pa.RecordBatch.from_pylist([written], schema=_RESULT_SCHEMA)


def _events_of(batch: pa.RecordBatch) -> Iterator[tuple[int, str, int, SequencedEvent]]:
    """Bucket, entity, the entity's index in the event, and the event."""
    others = [batch.column(name).to_pylist() for name in ("bucket", "entity", "index")]
    return zip(*others, events_in(batch), strict=True)
