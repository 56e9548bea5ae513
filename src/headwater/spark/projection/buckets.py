"""The files of a projection: each holds the rows of one bucket, sorted by entity.

No Spark here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from ...formats.files.parquet import NewParquet, batches_of, open_parquet, refusing_damage
from .errors import NotAProjection
from .fold import Row

BUCKET = "bucket"
"""The column by which the Delta table is partitioned."""
FILE_SCHEMA = pa.schema(
    [
        pa.field("entity", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("sequence_number", pa.int64(), nullable=False),
        pa.field("events", pa.int64(), nullable=False),
    ]
)
TABLE_SCHEMA = FILE_SCHEMA.append(pa.field(BUCKET, pa.int32(), nullable=False))
DIRECTORY = "states"
"""The directory of the files, below the table: a single one for all buckets is faster to sync at a commit."""
_ROWS = 8192
_REMEDY = "restore this file from a backup of the table, or fold the events into a new table"


def bucket_of(entity: str, buckets: int) -> int:
    """The bucket of an entity: CRC-32 of its UTF-8, modulo the bucket count (in SQL: `crc32(entity) % buckets`)."""
    return zlib.crc32(entity.encode()) % buckets


def rows_of(path: Path) -> Iterator[tuple[str, Row]]:
    """The rows of a file, by entity, in order. Raises NotAProjection if it cannot be read."""
    with refusing_damage(str(path), NotAProjection, _REMEDY), open_parquet(path) as file:
        for batch in batches_of(file, _ROWS, columns=FILE_SCHEMA.names):
            columns = [batch.column(name) for name in FILE_SCHEMA.names]
            entities, states, numbers, events = columns
            rows = map(Row, states.cast(pa.binary()).to_pylist(), numbers.to_pylist(), events.to_pylist())
            yield from zip(entities.to_pylist(), rows, strict=True)


def write(path: Path, rows: Mapping[str, Row]) -> Path:
    """Write these rows to a file. Returns its path, which has checksums in its name."""
    entities = sorted(rows)
    kept = [rows[entity] for entity in entities]
    columns = [
        pa.array(entities, pa.string()),
        pa.array([row.state for row in kept], pa.binary()).cast(pa.string()),
        pa.array([row.sequence_number for row in kept], pa.int64()),
        pa.array([row.events for row in kept], pa.int64()),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = NewParquet(path, FILE_SCHEMA, repeated=())  # entities and numbers are unique
    with new as writer:
        writer.write_table(pa.table(columns, schema=FILE_SCHEMA))
    return new.path
