"""Copy a log into a Delta table, so that the server may forget what was copied.

The archiver is the registered consumer ARCHIVER of the log. It acknowledges events when they are in the table, durably;
a log that is set to keep events until they are acknowledged (`headwater logs set LOG --until-acknowledged`), or
--trim, then drops them. It can be killed at any time and started again: the table says how far it is. Of two archivers
of a log, the one that was started last goes on. A table holds one log; run one archive for each log.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import EventLogError, InvalidInput
from ...core.settings import check_log_name
from ..pipelines import check_directory, option
from ..running import Ending, Run, Summary
from ..sessions import require_driver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ...core.consumer import Consumer
    from ...core.log import LogInfo
    from ..archive.archiver import Archiver, Keeping
    from ..archive.snapshot import Snapshot

NEEDS_CHECKPOINT = False
OWNER = "spark"
"""The owner of the consumer, where nobody has to say who he is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """What to archive, where to, and what stays in the log."""

    log: str = option("The log.", metavar="LOG")
    table: str = option("The directory of its Delta table; a new one is made.", metavar="DIR")
    owner: str | None = option("The owner of the consumer.  [default: the user, or spark]", default=None)
    component: str = option("The component of the consumer; a second archive of a log needs another.",
                            default="ARCHIVER")  # fmt: skip
    events_per_batch: int = option("At most so many events in a batch.", default=1_000_000, minimum=1)
    bytes_per_batch: str = option("At most about so much in a batch.", default="1g", metavar="SIZE")
    keep_numbers: int = option("Do not acknowledge the newest so many archived numbers.", default=0, minimum=0)
    keep_s: float = option("Do not acknowledge events of the last so many seconds.", default=0.0, minimum=0)
    trim: bool = option("Ask the server to drop what is acknowledged, whatever its retention says.", default=False)
    compact: bool = option("Join small files of dates that are over: at the start, and after each day.", default=False)
    vacuum_hours: int | None = option("With --compact, remove files that no version of so many hours needs.",
                                      default=None, minimum=1)  # fmt: skip
    accept_gap: bool = option("Go on although the log lacks events that the table does not have.", default=False)

    def __post_init__(self) -> None:
        check_log_name(self.log)
        check_directory(self.table, "table")
        if self.vacuum_hours is not None and not self.compact:
            raise InvalidInput("it goes with --compact", "vacuum_hours")


OPTIONS = Archive
EXAMPLES = (
    "--log orders --table /data/archive/orders --once",
    "--log orders --table /data/archive/orders --follow --every-s 60 --keep-s 3600 --compact",
    "--log orders --table /data/archive/orders --dry-run",
)


def plan(options: Archive, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    from ..archive.snapshot import snapshot
    from ..archive.state import is_archive

    with run.server.client() as client:
        info = client.info(options.log)
        consumer = client.consumer(options.log, _owner(options, run), options.component)
    path = Path(options.table).absolute()
    there = snapshot(path) if is_archive(path) else None
    archived = info.first_retained - 1 if there is None else there.archived
    lines = [
        run.server.log_line(info),
        f"table {path}: will be made, and begin at {info.first_retained}"
        if there is None
        else f"table {path}: {there.events:,} events, {there.first} to {there.archived}, in {len(there.files):,} files",
        *_obstacles(options, path, there, info, consumer),
        f"archive what follows {archived}: {max(0, info.head - archived):,} numbers until now, "
        f"at most {options.events_per_batch:,} events in a batch",
        f"register consumer {_owner(options, run)}/{options.component}; from then on the log keeps the rest"
        if consumer is None
        else f"take over consumer {consumer.owner}/{consumer.component}, which has acknowledged up to "
        f"{consumer.acknowledged} (epoch {consumer.epoch}); an archiver that is running is fenced off",
        _release_line(options, info),
    ]
    if options.compact:
        lines.append("join the small files of dates that are over")
    return [*lines, run.until]


def _obstacles(
    options: Archive, path: Path, there: Snapshot | None, info: LogInfo, consumer: Consumer | None
) -> Iterator[str]:
    """Why a run would end before it has begun. Raises NotAnArchive."""
    from ..archive.archiver import check_consumer, missing
    from ..archive.state import check_log

    archived = info.first_retained - 1 if there is None else there.archived
    if there is not None:
        check_log(path, there.log, options.log)
        if problem := missing(archived, there.incarnation, info):
            yield f"{problem}: {'go on with a gap' if options.accept_gap else 'refused, unless --accept-gap'}"
    if consumer is not None:
        try:
            check_consumer(path, archived, info, consumer)
        except EventLogError as error:
            yield f"refused: {error}"


def run(spark: SparkSession, options: Archive, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    from ..archive.archiver import Archiver
    from ..archive.tending import Compacting, Tending

    require_driver(spark, "the archive runs")
    with run.server.client() as client:
        archiver = Archiver.open(
            client,
            options.log,
            Path(options.table).absolute(),
            owner=_owner(options, run),
            component=options.component,
            keeping=_keeping(options),
            accepts_gap=options.accept_gap,
        )
        compacting = Compacting(options.vacuum_hours) if options.compact else None
        if run.is_once:
            to_do = client.head(options.log).head - archiver.after
            run.expect(max(0, to_do), options.events_per_batch)
            ending = _follow(spark, options, run, archiver) if to_do > 0 else None
            released = archiver.release()
            if compacting is not None and not run.stop.is_asked:
                compacting.compact(archiver.path, run.say)
        else:
            with Tending(archiver, compacting, run):
                ending = _follow(spark, options, run, archiver)
            released = archiver.release()
        return run.summary(ending, table=str(archiver.path), archived=archiver.archived, acknowledged=released)


def _follow(spark: SparkSession, options: Archive, run: Run, archiver: Archiver) -> Ending:
    """Batch after batch. Spark's checkpoint lives no longer than this run: the table says where the next one begins.

    An older checkpoint would make Spark read its last batch again, which the log may have trimmed since.
    """
    from ..archive.writing import stage

    problems: list[EventLogError] = []

    def archive(events: DataFrame, _: int) -> None:
        try:
            with archiver.adding():
                stage(events, archiver.after, archiver.directory)
                staged = archiver.commit()
            if staged is not None:
                archiver.release()
        except EventLogError as error:
            problems.append(error)  # it says more than what Spark makes of it
            raise

    checkpoint = archiver.begin_checkpoint(Path(run.checkpoint) if run.checkpoint else None)
    run.checkpoint = checkpoint.as_uri()
    source = run.server.options(
        log=options.log,
        streamName=run.stream_name,  # its consumer shows how far it is, unless somebody asks for this too
        startingPosition=archiver.after + 1,
        maxEventsPerTrigger=options.events_per_batch,
        maxBytesPerTrigger=options.bytes_per_batch,
        minPartitions=spark.sparkContext.defaultParallelism,
    )
    try:
        events = spark.readStream.format("headwater").options(**source).load()
        return run.follow(events.writeStream, archive, needs_checkpoint=False).ending
    except EventLogError as error:
        raise (problems[0] if problems else error) from error
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _owner(options: Archive, run: Run) -> str:
    """Where users exist, a consumer belongs to the one who registers it: so it is in FutoIn, too."""
    return options.owner or run.server.user or OWNER


def _keeping(options: Archive) -> Keeping:
    from ..archive.archiver import Keeping

    return Keeping(options.keep_numbers, options.keep_s, options.trim)


def _release_line(options: Archive, info: LogInfo) -> str:
    kept = [f"the newest {options.keep_numbers:,} numbers"] if options.keep_numbers else []
    kept += [f"the last {options.keep_s:g} s"] if options.keep_s else []
    but = f", but for {' and '.join(kept)}" if kept else ""
    if options.trim:
        then = "ask the server to drop what is acknowledged"
    elif info.settings.retention_until_acknowledged:
        then = "the log drops it when all its consumers have (retention_until_acknowledged)"
    elif info.settings.retention_ms or info.settings.retention_bytes:
        then = "the log drops it by its age or size"
    else:
        then = f"the log keeps it all the same; see `headwater logs set {info.name} --until-acknowledged`, and --trim"
    return f"acknowledge what is in the table{but}: {then}"
