"""Create a self-contained HTML page with charts of a log.

It shows rates and types over time, tags, sizes, hours of the week, states of resources, consumers and gaps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ....core.errors import InvalidInput
from ....core.limits import check_tag_key, show
from ....formats.files.new_file import check_place, new_file
from ...pipeline.option import check_file, option
from ...pipeline.run import Run, Summary
from ...source.selection import Bounds, Selection
from .page import page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .facts import Facts

IS_STREAM = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Report(Selection):
    """What to show, and the file to write."""

    to: str = option("The HTML file to write.", metavar="FILE")
    time: Literal["event", "recorded"] | None = option(
        "Which times to use.  [default: event times if nearly all events have one]", default=None
    )
    overwrite: bool = option("Replace the file if it exists.", default=False)
    states: str | None = option("The key of a tag whose values are shown over time, with event types as states.  "
                                "[default: only Cloud Native Events]", default=None, metavar="KEY")  # fmt: skip

    def __post_init__(self) -> None:
        Selection.__post_init__(self)
        if self.states is not None and check_tag_key(self.states):
            raise InvalidInput(f"expected a tag key, got {show(self.states)}", "--states")
        check_file(self.to, "--to")
        check_place(self.path, overwrite=self.overwrite)

    @property
    def path(self) -> Path:
        """The file to write."""
        return Path(self.to).absolute()


OPTIONS = Report
EXAMPLES = (
    "--log orders --to orders.html",
    "--log flights --to flights.html --query 'type=FlightDeparted'",
    "--log permits --to permits.html --states case",
)


def plan(options: Report, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    return [options.line(run), f"write a report to {options.path}"]


def run(spark: SparkSession, options: Report, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    began = time.monotonic()
    facts = run.step(spark, lambda: facts_of(spark, options, run))
    content = page(facts).encode(errors="replace")
    with new_file(options.path, overwrite=options.overwrite) as file:
        file.write(content)
    run.advance(facts.events, round((time.monotonic() - began) * 1000), left=0)
    return run.summary(to=str(options.path), bytes=len(content))


def facts_of(spark: SparkSession, options: Report, run: Run) -> Facts:
    """The facts for the page. Raises the errors of the log, and Spark's."""
    from pyspark import StorageLevel

    from .gather import COLUMNS, gather, kept
    from .states import CNE_TYPES, notifications, resources_of, tagged

    with run.server.client() as client:
        bounds = options.bounds(client)
        info, consumers = client.info(options.log), client.consumers(options.log)
    run.expect(bounds.numbers, bounds.numbers)
    events = _events(spark, options, run, bounds, COLUMNS)
    slim = kept(events).persist(StorageLevel.MEMORY_AND_DISK)
    axis = None if options.time is None else {"event": "time", "recorded": "recorded_at"}[options.time]
    try:
        facts = gather(slim, info, consumers, query=options.query, axis_of=axis)
        run.say(f"report: {facts.events:,} events read")
        if options.states is not None:
            changes = tagged(events, options.states)
        elif not slim.where(CNE_TYPES).isEmpty():
            changes = notifications(events)
        else:
            return facts
        resources, total = resources_of(changes, facts.last_ms)
        return replace(facts, resources=resources, resources_total=total)
    finally:
        slim.unpersist()


def _events(spark: SparkSession, options: Report, run: Run, bounds: Bounds, columns: str) -> DataFrame:
    from ...columns.schema import EVENT_SCHEMA

    if not bounds.numbers:
        return spark.createDataFrame([], EVENT_SCHEMA)
    return options.events(spark, run, bounds, columns=columns)
