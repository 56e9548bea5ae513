"""Copy logs to Delta tables, so that the server can drop old events.

The archiver is the registered consumer ARCHIVER of the log. It acknowledges events once they are durable in the table;
with `headwater logs set LOG --until-acknowledged` or --trim, the log then drops them. It can be killed and restarted at
any time: the table stores the progress. Of two archivers of a log, the one started last continues.

A table contains one log. With --tables DIR, several logs are archived in turn, each into the table of its name in DIR.
If one cannot be archived, the run archives the others and then ends with an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import EventLogError, InvalidInput
from ...core.extent import Extent
from ...core.settings import check_log_name
from ..options import is_meant, is_pattern
from ..pipeline.option import check_directory, option
from ..pipeline.run import Ending, Run, Summary
from ..session.session import require_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...core.consumer import Consumer
    from ...core.log import LogInfo
    from ...flight.client import BulkClient
    from ..archive.archiver import Keeping
    from ..archive.batches import Batches
    from ..archive.snapshot import Snapshot
    from ..archive.upkeep import Tended

NEEDS_CHECKPOINT = False
OWNER = "spark"
"""The owner of the consumer on a server without users."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """What to archive, the target tables, and what stays in the log."""

    log: tuple[str, ...] = option("The log. With --tables also a pattern such as 'orders-*'. Repeatable.",
                                  metavar="LOG")  # fmt: skip
    table: str | None = option("Directory of the log's Delta table; created if missing.", default=None,
                               metavar="DIR")  # fmt: skip
    tables: str | None = option("Instead of --table: parent directory of one table per log.", default=None,
                                metavar="DIR")  # fmt: skip
    owner: str | None = option("The owner of the consumer.  [default: the user, or spark]", default=None)
    component: str = option("The component of the consumer; a second archive of the log needs a different one.",
                            default="ARCHIVER")  # fmt: skip
    events_per_batch: int = option("Maximum number of events per batch.", default=1_000_000, minimum=1)
    bytes_per_batch: str = option("Approximate maximum size of a batch.", default="1g", metavar="SIZE")
    keep_numbers: int = option("Do not acknowledge this many of the newest archived numbers.", default=0, minimum=0)
    keep_s: float = option("Do not acknowledge events newer than this many seconds.", default=0.0, minimum=0)
    trim: bool = option("Have the server drop acknowledged events, regardless of its retention.", default=False)
    compact: bool = option("Merge small files of past dates, at the start and after each day.", default=False)
    vacuum_hours: int | None = option(
        "With --compact, remove files that no table version newer than this many hours uses.", default=None, minimum=1
    )
    accept_gap: bool = option(
        "Continue even if events that are not in the table are missing from the log.", default=False
    )

    def __post_init__(self) -> None:
        if isinstance(self.log, str):
            object.__setattr__(self, "log", (self.log,))  # one name, as it is
        for name in self.log:
            if not is_pattern(name):
                check_log_name(name)
        if (self.table is None) == (self.tables is None):
            raise InvalidInput("use either --table or --tables", "table")
        if self.table is not None:
            if len(self.log) != 1 or is_pattern(self.log[0]):
                raise InvalidInput("a table contains one log; use --tables for several logs or patterns", "table")
            check_directory(self.table, "table")
        if self.tables is not None:
            if not self.log:
                raise InvalidInput("expected at least one log, got none", "log")
            check_directory(self.tables, "tables")
        if self.vacuum_hours is not None and not self.compact:
            raise InvalidInput("requires --compact", "vacuum_hours")


OPTIONS = Archive
EXAMPLES = (
    "--log orders --table /data/archive/orders --once",
    "--log orders --table /data/archive/orders --follow --every-s 60 --keep-s 3600 --compact",
    "--log orders --table /data/archive/orders --dry-run",
    "--log orders --log 'shop-*' --tables /data/archive --follow --every-s 60",
)


def plan(options: Archive, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    with run.server.client() as client:
        logs = _logs(options, client)
        lines = [line for log in logs for line in _plan(options, run, client, log)]
    if missing := [name for name in options.log if is_pattern(name) and not any(is_meant(log, [name]) for log in logs)]:
        lines.append(f"no log matches {', '.join(missing)}")
    return [*lines, run.until]


def _plan(options: Archive, run: Run, client: BulkClient, log: str) -> list[str]:
    from ..archive.snapshot import snapshot
    from ..archive.state import is_archive
    from ..archive.steps import events_left

    info = client.info(log)
    consumer = client.consumer(log, _owner(options, run), options.component)
    path = _path(options, log)
    there = snapshot(path) if is_archive(path) else None
    archived = info.first_retained - 1 if there is None else there.archived
    left = events_left(client, log, archived, Extent(info.head, info.first_retained, info.incarnation))
    lines = [
        run.server.log_line(info),
        f"table {path}: will be created, starting at {info.first_retained}"
        if there is None
        else f"table {path}: {there.events:,} events, {there.first} to {there.archived}, in {len(there.files):,} files",
        *_obstacles(options, path, there, info, consumer),
        f"archive events after {archived}: {left:,} events so far, "
        f"at most {options.events_per_batch:,} events in a batch",
        f"register consumer {_owner(options, run)}/{options.component}; the log then keeps unacknowledged events"
        if consumer is None
        else f"take over consumer {consumer.owner}/{consumer.component}, which has acknowledged up to "
        f"{consumer.acknowledged} (epoch {consumer.epoch}); a running archiver is fenced off",
        _release_line(options, info),
    ]
    if options.compact:
        lines.append("merge small files of past dates")
    return lines


def _obstacles(
    options: Archive, path: Path, there: Snapshot | None, info: LogInfo, consumer: Consumer | None
) -> Iterator[str]:
    """Problems that would end a run before it begins. Raises NotAnArchive."""
    from ..archive.archiver import check_consumer, missing
    from ..archive.state import check_log

    archived = info.first_retained - 1 if there is None else there.archived
    if there is not None:
        check_log(path, there.log, info.name)
        if problem := missing(archived, there.incarnation, info):
            yield f"{problem}: {'continue with a gap' if options.accept_gap else 'refused, unless --accept-gap'}"
    if consumer is not None:
        try:
            check_consumer(path, archived, info, consumer)
        except EventLogError as error:
            yield f"refused: {error}"


def run(spark: SparkSession, options: Archive, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    from ..archive.batches import Batches

    require_driver(spark, "the archive runs")
    batches = Batches(spark, run, options.events_per_batch, options.bytes_per_batch)
    with run.server.client() as client:
        if options.tables is not None:
            return _run_rounds(options, client, batches)
        return _run_one(options, client, batches)


def _run_one(options: Archive, client: BulkClient, batches: Batches) -> Summary:
    from ..archive.steps import events_left
    from ..archive.upkeep import Tending

    run = batches.run
    tended = archiver, compacting = _open(options, run, client, options.log[0])
    if run.is_once:
        to_do = events_left(client, archiver.log, archiver.after, client.head(archiver.log))
        run.expect(to_do, options.events_per_batch)
        ending = batches.follow(archiver, is_once=True) if to_do > 0 else None
        released = archiver.release()
        if compacting is not None and not run.stop.is_asked:
            compacting.compact(archiver.path, run.say)
    else:
        with Tending(run, tended):
            ending = batches.follow(archiver, is_once=False)
        released = archiver.release()
    return run.summary(ending, table=str(archiver.path), archived=archiver.archived, acknowledged=released)


def _run_rounds(options: Archive, client: BulkClient, batches: Batches) -> Summary:
    from ..archive.rounds import Rounds

    run = batches.run
    rounds = Rounds(client, batches, lambda: _logs(options, client), lambda log: _open(options, run, client, log))
    ending = rounds.once() if run.is_once else rounds.follow()
    summary = run.summary(
        None if ending is Ending.DONE else ending,
        tables=str(Path(options.tables or "").absolute()),
        archived=dict(rounds.reached()),
    )
    return replace(summary, behind=rounds.behind)


def _open(options: Archive, run: Run, client: BulkClient, log: str) -> Tended:
    from ..archive.archiver import Archiver
    from ..archive.upkeep import Compacting, Tended

    archiver = Archiver.open(
        client,
        log,
        _path(options, log),
        owner=_owner(options, run),
        component=options.component,
        keeping=_keeping(options),
        accepts_gap=options.accept_gap,
    )
    return Tended(archiver, Compacting(options.vacuum_hours) if options.compact else None)


def _logs(options: Archive, client: BulkClient) -> list[str]:
    """The logs named in full, whether they exist or not, and those that match a pattern now."""
    named = [name for name in options.log if not is_pattern(name)]
    if len(named) == len(options.log):
        return list(dict.fromkeys(named))
    return list(dict.fromkeys([*named, *(log for log in sorted(client.logs()) if is_meant(log, options.log))]))


def _path(options: Archive, log: str) -> Path:
    return (Path(options.table) if options.table is not None else Path(options.tables or "") / log).absolute()


def _owner(options: Archive, run: Run) -> str:
    """On a server with users, a consumer belongs to the user who registers it, as in FutoIn."""
    return options.owner or run.server.user or OWNER


def _keeping(options: Archive) -> Keeping:
    from ..archive.archiver import Keeping

    return Keeping(options.keep_numbers, options.keep_s, options.trim)


def _release_line(options: Archive, info: LogInfo) -> str:
    kept = [f"the newest {options.keep_numbers:,} numbers"] if options.keep_numbers else []
    kept += [f"the last {options.keep_s:g} s"] if options.keep_s else []
    but = f", except {' and '.join(kept)}" if kept else ""
    if options.trim:
        then = "have the server drop acknowledged events"
    elif info.settings.retention_until_acknowledged:
        then = "the log drops them when all its consumers have acknowledged them (retention_until_acknowledged)"
    elif info.settings.retention_ms or info.settings.retention_bytes:
        then = "the log drops them by age or size"
    else:
        then = f"the log keeps them anyway; see `headwater logs set {info.name} --until-acknowledged`, and --trim"
    return f"acknowledge the archived events{but}: {then}"
