"""Measure Cloud Native Events: numbers in windows, or the time that resources spent in states.

--measure values: average, minimum, maximum and count of every metric of every resource, in windows of event time.
--measure states: seconds of every window that a resource spent in each state (such as LOCKED, HOLDOVER, FREERUN), and
how often it entered the state. A state lasts until the resource reports another one.

Times are those of the notifications. A window is reported once, when the newest time of any notification is later than
its end by --late. Later numbers are dropped; a later state that is the newest of its resource counts from the
first open window on. Windows left open by --once are reported by a later run.

Windows are appended to a Delta table, each exactly once; without a table they are JSON lines on stdout, where some may
repeat after a crash.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ....core.errors import InvalidInput
from ....core.settings import check_log_name
from ...pipeline.option import check_directory, option
from ...pipeline.run import Run, Summary
from ...session.session import require_driver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """What to measure, the length of the windows, and the target table."""

    log: str = option("The log with the notifications.", metavar="LOG")
    measure: Literal["values", "states"] = option("Aggregate numbers, or durations of states.", default="values")
    window: str = option("The length of a window, such as 30s, 5m or 1h.", default="1m", metavar="DURATION")
    late: str = option("How late a notification may arrive and still count.", default="1m", metavar="DURATION")
    table: str | None = option("Directory of the Delta table; created if missing.  [default: lines of JSON on stdout]",
                               default=None, metavar="DIR")  # fmt: skip
    query: str | None = option("Only events that match, such as 'tag=node:node1'.", default=None, metavar="QUERY")
    start: str = option("Where a new checkpoint starts: earliest, latest or a number.", default="earliest",
                        metavar="POSITION")  # fmt: skip
    events_per_batch: int = option("Maximum number of events per batch.", default=100_000, minimum=1)

    def __post_init__(self) -> None:
        check_log_name(self.log)
        if self.window_ms < 1:
            raise InvalidInput(f"expected a duration above 0, got {self.window!r}", "window")
        _ = self.late_ms
        if self.table is not None:
            check_directory(self.table, "table")

    @property
    def window_ms(self) -> int:
        """The length of a window."""
        return _duration_ms(self.window, "window")

    @property
    def late_ms(self) -> int:
        """How late a notification may be."""
        return _duration_ms(self.late, "late")

    def definition(self) -> dict[str, str]:
        """The fixed properties of its table."""
        return {"log": self.log, "measure": self.measure, "window": str(self.window_ms), "filter": self.query or ""}


OPTIONS = Metrics
EXAMPLES = (
    "--log cne --measure values --window 1m --table ./values --checkpoint ./values-checkpoint --once",
    "--log cne --measure states --window 1h --late 5m --table /data/states --checkpoint /data/states-checkpoint",
    "--log cne --measure states --window 10s --late 0s --checkpoint ./checkpoint --once",
)


def plan(options: Metrics, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    from .table import check

    with run.server.client() as client:
        info = client.info(options.log)
    if options.table is not None:
        check(Path(options.table).absolute(), options.definition())
    which = f"events that match {options.query}" if options.query else "events"
    what = {
        "values": "average, minimum, maximum and count of each metric of each resource",
        "states": "time that each resource spent in each state",
    }
    where = "as lines of JSON to stdout" if options.table is None else f"to table {Path(options.table).absolute()}"
    return [
        run.server.log_line(info),
        f"read {which}, at most {options.events_per_batch:,} in a batch; "
        f"a new checkpoint starts at {options.start}; {run.checkpoint} shows whether it is new",
        f"{what[options.measure]}, in windows of {options.window}",
        f"write each window {where}, {options.late} after its end",
        run.until,
    ]


def run(spark: SparkSession, options: Metrics, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    from ...source.checkpoints import to_do
    from .samples import COLUMNS
    from .table import check
    from .windows import samples, stays, values

    require_driver(spark, "metrics run")
    if options.table is not None:
        check(Path(options.table).absolute(), options.definition())
    source = run.server.options(
        log=options.log,
        streamName=run.named(f"{options.measure}:{options.window}"),
        query=options.query,
        columns=",".join(COLUMNS),
        startingPosition=options.start,
        maxEventsPerTrigger=options.events_per_batch,
    )
    if run.is_once:
        run.expect(to_do(run, source), options.events_per_batch)
    events = spark.readStream.format("headwater").options(**source).load()
    measure = values if options.measure == "values" else stays
    measured = measure(samples(events, options.late_ms), options.window_ms)
    before = spark.conf.get(STATE_STORE)
    spark.conf.set(STATE_STORE, ROCKSDB)  # timelines need it, and it keeps windows out of Java's memory
    try:
        return run.follow(measured.writeStream.outputMode("append"), Writing(options))
    finally:
        if before is not None:
            spark.conf.set(STATE_STORE, before)


class Writing:
    """Writes the windows that a batch has closed. There are only a few of them."""

    def __init__(self, options: Metrics) -> None:
        self._options = options

    def __call__(self, windows: DataFrame, batch: int) -> None:
        """Write them. Raises NotAMetricsTable."""
        from .table import append

        rows = windows.orderBy("window_start", "resource", "type").toArrow()
        if self._options.table is None:
            for row in rows.to_pylist():
                print(_line(row))
            sys.stdout.flush()
        elif rows.num_rows:
            query = windows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
            assert query is not None, "Spark provides the query id"
            append(Path(self._options.table).absolute(), rows, self._options.definition(), query, batch)


def _line(row: dict[str, Any]) -> str:
    import msgspec

    return msgspec.json.encode(row).decode()


def _duration_ms(given: str, where: str) -> int:
    from ...options import duration_ms

    try:
        return duration_ms(given)
    except ValueError:
        raise InvalidInput(f"expected a duration such as 30s, 5m or 1h, got {given!r}", where) from None
