"""Archives for tests: tables as the archiver makes them, written with deltalake from what a log holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction, write_deltalake

from headwater.core import SequencedEvent
from headwater.core.local import LocalLog
from headwater.formats.arrow.tables import record_batch
from headwater.spark.archive.state import archive_transaction
from headwater.spark.columns.schema import COLUMNS, arrow_schema


def archive(
    log: LocalLog,
    path: Path,
    first: int,
    last: int,
    *,
    events_per_file: int = 25,
    properties: dict[str, str | None] | None = None,
) -> None:
    """Append the log's events from `first` to `last` to the table, a commit for each file."""
    events = [event for event in log.read() if first <= event.sequence_number <= last]
    for at in range(0, len(events), events_per_file):
        some = events[at : at + events_per_file]
        after = Transaction(archive_transaction(log.name), some[-1].sequence_number + 1)
        write_deltalake(
            path,
            rows(log.name, some),
            mode="append",
            partition_by=["date"],
            configuration=properties,
            commit_properties=CommitProperties(app_transactions=[after]),
        )


def rows(log: str, events: Iterable[SequencedEvent]) -> pa.Table:
    """The events with the columns of an archive."""
    batch = record_batch(list(events))
    columns = {"log": pa.repeat(log, batch.num_rows), **{name: batch[name] for name in batch.schema.names}}
    schema = arrow_schema(COLUMNS)
    table = pa.table({field.name: columns[field.name].cast(field.type) for field in schema}, schema=schema)
    return table.append_column("date", pc.cast(table["recorded_at"], pa.date32()))


def trimmings(log: LocalLog, path: Path, *borders: int) -> Iterator[None]:
    """At each step archive up to the next border, and trim the log there."""
    for border in borders:
        archive(log, path, log.info().first_retained, border)
        log.trim(border + 1)
        yield
