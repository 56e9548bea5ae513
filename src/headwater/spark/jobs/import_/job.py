"""Load files of events into a log, in bulk.

Reads CSV, NDJSON, CloudEvents, OCEL and Parquet, optionally compressed with gzip, with the columns and ids of
`headwater import`, so events imported by either are not imported again by the other. It can be killed and restarted at
any time. Invalid rows are written to a table with the reason; the others are imported.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ....core.errors import EventLogError, InvalidInput, LogNotFound
from ....core.mark import BATCH_MAX
from ....core.settings import LogSettings
from ....formats.files.tabular import TableMapping
from ...options import size
from ...pipeline.option import check_directory, check_file, option
from ...pipeline.run import Ending, Run, Summary
from ...pipeline.stop import StoppedAtOnce
from .files import InputFile, find_files, fingerprint, look_at, unpacked
from .pieces import PIECE_BYTES, FilePiece, batches_of, bytes_done, pieces_of
from .quarantine import check_quarantine, count_bad_rows, count_unexpected, none_upto, note_none

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ....core.mark import WriterState
    from ....flight.client import BulkClient

IS_STREAM = False
UNEXPECTED_MAX = 100
"""An import ends after this many rows on which it failed for reasons other than their content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    """What to import, and the target log."""

    file: tuple[str, ...] = option("A file, a directory, or a pattern such as 'day-*.csv'. Repeatable. All "
                                   "Spark workers must be able to read it.", metavar="FILE")  # fmt: skip
    log: str = option("The target log.", metavar="LOG")
    format: Literal["csv", "ndjson", "cloudevents", "ocel", "parquet"] | None = option(
        "Format of the files.  [default: guessed]", default=None
    )
    create: bool = option("Create the log if it does not exist.", default=False)
    source: str | None = option("The source of events that do not name one.  [default: the file's name]", default=None)
    partition: int | None = option("The partition to append to.", default=None, minimum=0)
    type_column: str | None = option("Tables: the event type.  [default: guessed by name]", default=None,
                                     metavar="COLUMN")  # fmt: skip
    time_column: str | None = option("Tables: the event's time.  [default: guessed by name]", default=None,
                                     metavar="COLUMN")  # fmt: skip
    time_format: str | None = option("Tables: strptime format of the time.  [default: ISO 8601 or seconds since 1970]",
                                     default=None, metavar="FORMAT")  # fmt: skip
    id_column: str | None = option("Tables: the event's id.  [default: derived from file, row and place]",
                                   default=None, metavar="COLUMN")  # fmt: skip
    tag: tuple[str, ...] = option("Tables: a column that becomes a tag. Repeatable.", default=(),
                                  metavar="COLUMN[=KEY]")  # fmt: skip
    delimiter: str | None = option(
        "CSV: the delimiter.  [default: guessed from the first line]", default=None, metavar="CHARACTER"
    )
    quarantine: str = option("Where to write invalid rows, as Parquet.", default="quarantine",
                             metavar="DIR")  # fmt: skip
    bad_rows_max: int | None = option(
        "Stop after more than this many invalid rows.  [default: never]", default=None, minimum=0
    )
    batch_size: str = option("Approximate size of a batch, such as 32m.", default="32m",
                             metavar="SIZE")  # fmt: skip
    work: str | None = option("Where to unpack compressed files during the import.  [default: the system's "
                              "temporary directory]", default=None, metavar="DIR")  # fmt: skip

    def __post_init__(self) -> None:
        if self.source is not None and len(self.file) > 1:
            raise InvalidInput("a source can only be set for one file: it is part of the events' identity", "--source")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InvalidInput(f"expected one character, got {self.delimiter!r}", "--delimiter")
        for file in self.file:
            check_file(file, "--file")
        for directory, flag in ((self.quarantine, "--quarantine"), (self.work, "--work")):
            if directory is not None:
                check_directory(directory, flag)
        check_quarantine(self.quarantine)
        self.batch_bytes()

    def batch_bytes(self) -> int:
        """The size of a batch. Raises InvalidInput."""
        try:
            return size(self.batch_size)
        except ValueError:
            raise InvalidInput(f"expected a size such as 32m, got {self.batch_size!r}", "--batch-size") from None

    def files(self) -> list[InputFile]:
        """The inspected files. Raises InvalidInput."""
        found = find_files(self.file)
        if self.source is not None and len(found) > 1:
            raise InvalidInput(f"a source can only be set for one file, got {len(found)}", "--source")
        return [look_at(path, self.format, self._mapping()) for path in found]

    def _mapping(self) -> TableMapping:
        tags = [(column, key if equals else column) for column, equals, key in (tag.partition("=") for tag in self.tag)]
        return TableMapping(self.source or "", self.type_column, self.time_column, self.id_column, tuple(tags),
                            self.time_format, self.delimiter)  # fmt: skip


OPTIONS = Import
EXAMPLES = (
    "--file receipt.csv.gz --log permits --create --type-column concept:name --tag case:concept:name=case",
    "--file 'day-*.ndjson' --log orders --master spark://host:7077",
    "--file ./exported --log orders-copy",
)


def plan(options: Import, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    files = options.files()
    with run.server.client() as client:
        state = _state(client, options, run)
    return [
        *(f"read {file.said()}" for file in files[:20]),
        *([f"and {len(files) - 20:,} more files"] if len(files) > 20 else []),
        f"append the events to {state}, in the order of the files, skipping existing ones",
        f"write invalid rows to {options.quarantine}",
    ]


def _state(client: BulkClient, options: Import, run: Run) -> str:
    """The state of the log, in words. Raises LogNotFound if it does not exist and must not be created."""
    try:
        return run.server.log_line(client.info(options.log))
    except LogNotFound:
        if not options.create:
            raise
        return f"log {options.log!r} on {run.server.url}, which does not exist and will be created"


def run(spark: SparkSession, options: Import, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    files = options.files()
    writer = f"import/{options.log}/{fingerprint(files, options.batch_bytes())}"
    with (
        run.server.client() as client,
        tempfile.TemporaryDirectory(prefix="headwater-import-", dir=options.work) as work,
    ):
        settings = _settings(client, options)
        loading = _Loading(spark, options, run, client, settings, writer)
        return loading.load(files, _pieces(files, Path(work), options.batch_bytes()))


def _settings(client: BulkClient, options: Import) -> LogSettings:
    try:
        return client.info(options.log).settings
    except LogNotFound:
        if not options.create:
            raise
        return client.create_log(options.log).settings


def _pieces(files: Sequence[InputFile], work: Path, batch_bytes: int) -> Iterator[FilePiece]:
    for number, file in enumerate(files):
        yield from pieces_of(unpacked(file, work, number), min(PIECE_BYTES, batch_bytes))


class _Loading:
    """Runs the import, batch by batch. Each batch is committed once, under its number."""

    def __init__(
        self, spark: SparkSession, options: Import, run: Run, client: BulkClient, settings: LogSettings, writer: str
    ) -> None:
        self._spark, self._options, self._run, self._client = spark, options, run, client
        self._settings, self._writer = settings, writer
        self._key = writer.rpartition("/")[2]
        self._quarantine = str(Path(options.quarantine).absolute())
        self._appended = self._stored = self._unexpected = 0
        self._has_events = False
        """Whether any row was an event, in this run or an earlier one."""

    def load(self, files: Sequence[InputFile], pieces: Iterator[FilePiece]) -> Summary:
        state = self._client.writer(self._options.log, self._writer)
        done = -1 if state is None else state.batch if state.is_complete else state.batch - 1
        self._has_events = self._had_events(state)
        if state is not None and state.is_ended:
            self._run.say("import: already completed by an earlier run")
        elif done >= 0:
            self._run.say(f"import: {done + 1} batches were already imported by an earlier run")
        sizes = {file.name: os.path.getsize(file.path) for file in files}
        self._run.expect(sum(sizes.values()), self._options.batch_bytes())
        ending = None
        for number, batch in enumerate(batches_of(pieces, self._options.batch_bytes())):
            if number <= done:
                continue
            if self._run.stop.is_asked:
                break
            try:
                self._load(number, batch, sum(sizes.values()) - bytes_done(sizes, batch[-1]))
            except StoppedAtOnce:
                ending = Ending.INTERRUPTED
                break
        if ending is None and not self._run.stop.is_asked:
            self._check_some_event()
            if state is None or not state.is_ended:
                # No batch follows, so the log need not remember it, besides ids, for longer than an hour. It does for
                # that time: if the import is started again, it finds that it is done without reading all files.
                self._client.commit(self._options.log, self._writer, BATCH_MAX, ())
        return self._run.summary(
            ending,
            appended=self._appended,
            there_already=self._stored,
            quarantined=(bad := count_bad_rows(self._quarantine, self._key)),
            quarantine=self._quarantine if bad else None,
        )

    def _load(self, number: int, pieces: list[FilePiece], left: int) -> None:
        began = time.monotonic()
        try:
            self._run.step(self._spark, lambda: self._save(number, pieces))
        except StoppedAtOnce:
            with contextlib.suppress(EventLogError), self._run.server.client(retries=0) as client:
                self._count(client, number, began, left)  # the log may contain all of it, or a part
            raise
        state = self._count(self._client, number, began, left)
        assert state is not None and state.batch == number, state
        self._has_events = self._has_events or state.rows > 0
        if not self._has_events:
            note_none(self._quarantine, self._key, number)
        self._check_unexpected(number)
        self._check_bad_rows()

    def _count(self, client: BulkClient, number: int, began: float, left: int) -> WriterState | None:
        """Count the events of that batch that are in the log."""
        state = client.writer(self._options.log, self._writer)
        if state is not None and state.batch == number:
            self._appended += state.events
            self._stored += state.rows - state.events
            self._run.advance(state.rows, round((time.monotonic() - began) * 1000), left=left)
        return state

    def _save(self, number: int, pieces: list[FilePiece]) -> None:
        from ...columns.schema import select
        from .reader import COLUMNS, Reading

        reading = Reading(pieces, self._settings, self._quarantine, self._key, number)
        frame = self._spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(reading, select(COLUMNS))
        target = self._run.server.options(log=self._options.log, partition=self._options.partition,
                                          onDuplicate="skip", writerId=self._writer, batchId=number)  # fmt: skip
        frame.write.format("headwater").mode("append").options(**target).save()

    def _had_events(self, state: WriterState | None) -> bool:
        """Whether earlier runs may have found an event. The log only knows their newest batch."""
        if state is None or state.rows > 0:
            return state is not None
        return state.batch > 0 and none_upto(self._quarantine, self._key) < state.batch

    def _check_some_event(self) -> None:
        """Raises InvalidInput if no row at all was an event, because that indicates a wrong column or format rather
        than an odd row.
        """
        if not self._has_events and (bad := count_bad_rows(self._quarantine, self._key)):
            raise InvalidInput(
                f"none of {bad:,} rows is a valid event; see the reasons in {self._quarantine}, set --format or "
                "the columns, then run it again",
                "--file",
            )

    def _check_unexpected(self, batch: int) -> None:
        self._unexpected += count_unexpected(self._quarantine, self._key, batch)
        if self._unexpected >= UNEXPECTED_MAX:
            raise InvalidInput(
                f"{self._unexpected:,} rows failed because of an internal error; report the contents of "
                f"{self._quarantine}",
                "--file",
            )

    def _check_bad_rows(self) -> None:
        most = self._options.bad_rows_max
        if most is not None and (bad := count_bad_rows(self._quarantine, self._key)) > most:
            raise InvalidInput(
                f"{bad:,} rows are not valid events, but at most {most:,} are allowed; see "
                f"{self._quarantine}, then run the import again",
                "--bad-rows-max",
            )
