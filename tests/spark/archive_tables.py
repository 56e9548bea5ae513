"""Archives for tests, written without Spark: the same staging, checks and commits, with Parquet files of pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.flight.client import BulkClient
from headwater.flight.wire import Ticket
from headwater.spark.archive.archiver import Archiver
from headwater.spark.archive.columns import FILE_SCHEMA
from headwater.spark.archive.staging import Staged, batch_directory, inspect
from headwater.spark.archive.table import ArchiveTable

CLAIM = 7
NOON = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp() * 1000)
"""ms; what event 0 would have been recorded at."""


def rows(
    numbers: Sequence[int],
    each_ms: int = 1000,
    data: bytes = b"{}",
    type_of: Callable[[int], str] = lambda number: "Placed" if number % 2 else "Paid",
) -> pa.Table:
    """Events with these numbers, recorded so many ms apart."""
    count = len(numbers)
    columns = {
        "log": ["orders"] * count,
        "sequence_number": list(numbers),
        "recorded_at": [1000 * (NOON + each_ms * number) for number in numbers],
        "partition": [0] * count,
        "type": [type_of(number) for number in numbers],
        "data": [data] * count,
        "tags": [[f"order:{number}"] for number in numbers],
        "id": [f"id-{number}" for number in numbers],
        "source": [""] * count,
        "attributes": [[("subject", str(number))] for number in numbers],
        "group_key": [""] * count,
        "envelope": [b""] * count,
        "encoding": [0] * count,
    }
    return pa.table(columns, schema=FILE_SCHEMA)


def stage(
    root: Path,
    after: int,
    numbers: Sequence[int],
    *,
    claim: int = CLAIM,
    files: int = 1,
    each_ms: int = 1000,
    count: Callable[[int, int], int] | None = None,
    **of_rows: Any,
) -> Staged | None:
    """Write events where an archiver of that claim would, so many files to a date, and read them back."""
    directory = batch_directory(root, after, claim)

    def date_of(number: int) -> str:
        return datetime.fromtimestamp((NOON + each_ms * number) / 1000, UTC).date().isoformat()

    for date, group in groupby(sorted(numbers), key=date_of):
        each = list(group)
        size = -(-len(each) // files)
        for index in range(files):
            target = directory / f"date={date}"
            target.mkdir(parents=True, exist_ok=True)
            part = rows(each[index * size : (index + 1) * size], each_ms, **of_rows)
            pq.write_table(
                part, target / f"part-{index:05d}.zstd.parquet", compression="zstd", write_page_checksum=True
            )
    return inspect(root, directory, after, count or (lambda after, upto: upto - after))


def data_files(root: Path) -> list[str]:
    """Every Parquet file that lies there, whether the table knows it or not; Delta's own checkpoints apart."""
    return sorted(str(path) for path in root.rglob("*.parquet") if "_delta_log" not in path.parts)


def stage_next(archiver: Archiver, client: BulkClient, upto: int | None = None) -> None:
    """What Spark does for an archiver: the next events of log `orders` as Parquet, by date."""
    for batch in client.read(Ticket("orders", after=archiver.after, upto=upto, schema="spark")):
        dates = pc.cast(batch["recorded_at"], pa.date32())
        for date in dates.unique():
            rows = batch.filter(pc.equal(dates, date))
            target = archiver.directory / f"date={date}"
            target.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_batches([rows]), target / f"part-{rows['sequence_number'][0]}.parquet")


def step(archiver: Archiver, client: BulkClient, upto: int | None = None) -> None:
    """A batch, whole: staged, committed, acknowledged."""
    with archiver.adding():
        stage_next(archiver, client, upto)
        archiver.commit()
    archiver.release()


def add(table: ArchiveTable, events: int, *, claim: int = CLAIM, **of_stage: Any) -> None:
    """The next so many events, staged and committed."""
    after = table.refresh().archived
    staged = stage(table.path, after, range(after + 1, after + 1 + events), claim=claim, **of_stage)
    assert staged is not None
    table.commit(staged.files, after, staged.last, claim)


def archive(root: Path, events: int = 0, *, batches: int = 1, files: int = 1, each_ms: int = 1000) -> ArchiveTable:
    """An archive of log `orders` with that many events, claimed."""
    table = ArchiveTable.create(root, "orders", "first-life", 1)
    table.claim(CLAIM)
    for _ in range(batches if events else 0):
        add(table, events // batches, files=files, each_ms=each_ms)
    return table
