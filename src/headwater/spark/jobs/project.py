"""Fold events by a tag, with your Python function, into a table of the latest state of every entity.

The function is `fold(state, event) -> state`, where a state is a JSON-compatible dict or None, and the event a
headwater.core.SequencedEvent. An entity is the value of a tag with the key --tag: an event with several such tags is
folded into each. Events of an entity are folded in log order.

The Delta table has the columns entity, state (JSON with sorted names), sequence_number (of the last event) and events
(their count). It stores its own progress, so there is no checkpoint. The pipeline can be killed and restarted at any
time; the table is byte for byte the same as after one uninterrupted run.

Decisions can start from it: headwater.spark.projection.snapshot returns the states and the number to continue after. A
changed function needs a new table. The module is searched in the current directory first; on a cluster, ship it with
--conf spark.submit.pyFiles=... and use a table on a shared file system.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import InvalidInput, PositionOfOtherIncarnation
from ...core.limits import SEQUENCE_NUMBER_MAX, check_tag_key
from ...core.settings import check_log_name
from ...formats.files.new_file import check_place, new_file
from ..pipeline.option import check_directory, check_file, option
from ..pipeline.run import Ending, Run, Summary
from ..pipeline.stop import StoppedAtOnce
from ..session.session import require_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...core.extent import Extent
    from ...core.log import LogInfo
    from ...flight.client import BulkClient
    from ..archive.steps import Steps
    from ..projection.fold import Fold
    from ..projection.folding import Folded
    from ..projection.table import Definition, StateTable

NEEDS_CHECKPOINT = False
VACUUM_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """What to fold, how, and into which table."""

    log: str = option("The log.", metavar="LOG")
    tag: str = option("The key of the tags whose values are the entities.", metavar="KEY")
    fold: str = option("The function.", metavar="MODULE:FUNCTION")
    table: str = option("Directory of the table; created if missing.", metavar="DIR")
    query: str | None = option("Only events that match; see `headwater query --help`.", default=None, metavar="QUERY")
    start: int = option("Skip events below this number.", default=1, minimum=1, maximum=SEQUENCE_NUMBER_MAX)
    columns: str | None = option("The event fields that the function uses; the others are left empty, for speed.  "
                                 "[default: all but envelope]", default=None, metavar="NAMES")  # fmt: skip
    events_per_batch: int = option("Maximum number of events per batch.", default=1_000_000, minimum=1)
    buckets: int = option("Number of files of a new table; a batch rewrites the files that it touches.", default=64,
                          minimum=1, maximum=4096)  # fmt: skip
    archive: str | None = option("The log's archive, for trimmed events.", default=None, metavar="PATH")
    keep_hours: int = option("Remove files that no table version newer than this many hours uses.", default=24,
                             minimum=1)  # fmt: skip
    dump: str | None = option("At the end, write the table to this file as JSON lines, sorted by entity.", default=None,
                              metavar="FILE")  # fmt: skip
    overwrite: bool = option("Replace the file of --dump if it exists.", default=False)

    def __post_init__(self) -> None:
        check_log_name(self.log)
        if check_tag_key(self.tag):
            raise InvalidInput(f"expected a tag key, got {self.tag!r}", "tag")
        check_directory(self.table, "table")
        if self.dump is not None:
            check_file(self.dump, "dump")
            check_place(Path(self.dump), overwrite=self.overwrite)


OPTIONS = Project
EXAMPLES = (
    "--log orders --tag customer --fold shop:customer --table ./customers --once",
    "--log orders --tag order --fold shop:order --table /data/orders --query 'type=OrderPlaced,OrderPaid' --every-s 10",
    "--log orders --tag customer --fold shop:customer --table ./customers --once --dump customers.ndjson",
)


def plan(options: Project, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    from ..delta.table import is_table
    from ..projection.fold import fold_of
    from ..projection.table import StateTable

    fold_of(options.fold)
    columns = _columns(options)
    with run.server.client() as client:
        info = client.info(options.log)
    path = Path(options.table).absolute()
    is_there = is_table(path)
    position = options.start - 1
    lines = [run.server.log_line(info)]
    if is_there:
        table = StateTable.create(path, _definition(options, info))
        position = table.position
        lines.append(f"table {path}: the events up to {position} are folded into it, in {len(table.files())} files")
    else:
        lines.append(f"table {path}: will be created, with {options.buckets} files, starting at {options.start}")
    which = f"the events that match {options.query}" if options.query else "the events"
    lines.append(
        f"fold {which} after {position} with {options.fold}, by the values of tag {options.tag!r}, "
        f"at most {options.events_per_batch:,} in a batch"
    )
    lines.append(f"the function gets {', '.join(columns)}")
    if position + 1 < info.first_retained:
        lines.append(
            f"events before {info.first_retained} are read from {options.archive or 'a missing archive: set --archive'}"
        )
    if options.dump is not None:
        lines.append(f"write the table to {options.dump}")
    lines.append(run.until)
    return lines


def run(spark: SparkSession, options: Project, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    from ..projection.fold import fold_of
    from ..projection.table import StateTable
    from ..source.position_reports import PositionReports

    require_driver(spark, "a projection runs")
    if run.checkpoint is not None:
        raise InvalidInput("a projection has none: its table stores the progress", "checkpoint")
    fold = fold_of(options.fold)
    _columns(options)
    name = run.named(options.tag)
    reports = None if name is None else PositionReports(name)
    with run.server.client() as client:
        definition = _definition(options, client.info(options.log))
        table = StateTable.create(Path(options.table).absolute(), definition)
        table.vacuum(options.keep_hours)
        vacuumed_at = time.monotonic()
        ending = None
        steps = _steps(options, client, definition.incarnation)
        upto_last = client.head(options.log).head
        if run.is_once:
            run.expect(steps.count(table.position, upto_last), options.events_per_batch)
        while not run.stop.is_asked:
            extent = client.head(options.log)
            if extent.incarnation != definition.incarnation:
                raise PositionOfOtherIncarnation(table.position, extent.incarnation, extent.first_retained)
            _check_there(options, table.position, extent)
            if reports is not None:
                reports.tell(client, {options.log: table.position})
            head = min(extent.head, upto_last) if run.is_once else extent.head
            upto = head
            if head > table.position:
                upto = steps.end(table.position, head, options.events_per_batch)
                if not _fold(spark, options, run, table, fold, upto, steps.count(upto, extent.head)):
                    ending = Ending.INTERRUPTED
                    break
            elif run.is_once:
                break
            if not run.is_once and upto == head:
                run.pause(run.every_s)
            if time.monotonic() - vacuumed_at > VACUUM_S:
                table.vacuum(options.keep_hours)
                vacuumed_at = time.monotonic()
    details = {} if options.dump is None else {"dump": options.dump, "entities": _dump(options)}
    return run.summary(ending, table=str(table.path), position=table.position, **details)


def _fold(spark: SparkSession, options: Project, run: Run, table: StateTable, fold: Fold, upto: int, left: int) -> bool:
    """Fold the events up to there, after which so many are left, and commit; False if it was interrupted."""
    begun = time.monotonic()

    def work() -> Folded:
        from ..projection.folding import fold_batch

        source = run.server.options(
            log=options.log,
            query=options.query,
            columns=",".join(_columns(options)),
            startingPosition=table.position + 1,
            endingPosition=upto,
            archive=options.archive,
            minPartitions=spark.sparkContext.defaultParallelism,
        )
        events = spark.read.format("headwater").options(**source).load()
        return fold_batch(events, table, fold, spark.sparkContext.defaultParallelism)

    try:
        found = run.watched(spark, work)
    except StoppedAtOnce:
        return False
    table.commit(found.files, table.position, upto)
    run.advance(found.events, round((time.monotonic() - begun) * 1000), left)
    return True


def _check_there(options: Project, position: int, extent: Extent) -> None:
    """Raises InvalidInput if the log has lost the next events and no archive is given. (The read checks archives.)"""
    first = extent.first_retained
    if options.archive is None and position + 1 < first and position < extent.head:
        raise InvalidInput(
            f"events {position + 1} to {first - 1} are no longer in log {options.log!r}; set --archive PATH, or fold "
            f"into a new table with --start {first}",
            "archive",
        )


def _steps(options: Project, client: BulkClient, incarnation: str) -> Steps:
    from ..archive.snapshot import Archive
    from ..archive.steps import Steps

    archive = Archive(options.archive) if options.archive is not None else None
    return Steps(client, options.log, incarnation, archive)


def _columns(options: Project) -> tuple[str, ...]:
    """The event fields to read: the requested ones, and those needed for the entity and the order."""
    from ..projection.folding import DEFAULT_COLUMNS, EVENT_COLUMNS, NEEDED

    if options.columns is None:
        return DEFAULT_COLUMNS
    asked = [name.strip() for name in options.columns.split(",")]
    for name in asked:
        if name not in EVENT_COLUMNS:
            raise InvalidInput(f"expected some of {', '.join(EVENT_COLUMNS)}, got {name!r}", "columns")
    return tuple([name for name in EVENT_COLUMNS if name in asked or name in NEEDED])


def _definition(options: Project, info: LogInfo) -> Definition:
    from ..projection.table import Definition

    query, first = options.query or "", options.start
    return Definition(options.log, info.incarnation, options.tag, options.fold, query, first, options.buckets)


def _dump(options: Project) -> int:
    from ..projection.snapshot import dump

    assert options.dump is not None
    with new_file(Path(options.dump), overwrite=options.overwrite) as file:
        return dump(options.table, file)
