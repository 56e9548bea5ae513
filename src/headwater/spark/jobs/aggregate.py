"""Merge several logs, or some of their partitions, into one log with new numbers, exactly once.

The events of each source keep their order; there is no ordering across sources. CloudEvents attributes keep the origin
of each event: originlog, originpartition and originsequence.

Event ids may not be unique across logs. So an event gets an id derived from its origin (`orders/17`), and its original
id is kept as originid. --ids keep preserves ids: then an event whose id and source exist in the target is skipped
(--on-duplicate skip) or ends the pipeline (fail).

Types, data, tags, sources, attributes and group keys are unchanged; the target assigns its own partitions by group key.
It can be killed at any time and restarted with the same checkpoint.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...core.errors import InvalidInput
from ..pipeline.option import option
from ..pipeline.run import Run, Summary, Target

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOG, PARTITION, SEQUENCE, ID = "originlog", "originpartition", "originsequence", "originid"
"""The attributes with the origin of an event."""
SITE_CHARS_MAX = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregate:
    """What to aggregate, and the target log."""

    sources: tuple[str, ...] = option("A log, or a pattern such as 'orders-*'. Repeatable.", flag="--from",
                                      metavar="LOG")  # fmt: skip
    target: str = option("The target log; it must exist.", flag="--to", metavar="LOG")
    target_url: str | None = option("The server of the target.  [default: the same]", flag="--to-url", default=None,
                                    metavar="URL")  # fmt: skip
    partitions: str | None = option("Only these partitions of each log, such as 0,2; events are then ordered within "
                                    "each partition only.", default=None, metavar="NUMBERS")  # fmt: skip
    query: str | None = option("Only events that match; see `headwater query --help`.", default=None, metavar="QUERY")
    start: str = option("Where to start a log that is not in the checkpoint: earliest, latest or a number.",
                        default="earliest", metavar="POSITION")  # fmt: skip
    ids: Literal["origin", "keep"] = option("Derive event ids from the origin, or keep them.", default="origin")
    on_duplicate: Literal["fail", "skip"] = option(
        "What to do with an event whose id and source exist in the target.", default="skip"
    )
    site: str | None = option("Prefix log names in origins with this and a slash, to aggregate logs of several "
                              "servers.", default=None, metavar="NAME")  # fmt: skip
    events_per_batch: int = option("Maximum number of events per batch.", default=1_000_000, minimum=1)

    def __post_init__(self) -> None:
        if not self.sources:
            raise InvalidInput("expected at least one log, got none", "from")
        if any(not name or "," in name for name in self.sources):
            raise InvalidInput(f"expected log names, got {list(self.sources)}", "from")
        if self.site is not None and not (1 <= len(self.site) <= SITE_CHARS_MAX and self.site.isprintable()):
            raise InvalidInput(f"expected 1 to {SITE_CHARS_MAX} printable characters, got {self.site!r}", "site")


OPTIONS = Aggregate
EXAMPLES = (
    "--from orders-north --from orders-south --to orders --checkpoint ./aggregate --once",
    "--from 'orders-*' --to all-orders --checkpoint /var/lib/headwater/aggregate",
    "--from orders --partitions 0,2 --to some-orders --checkpoint ./aggregate --dry-run",
)


def plan(options: Aggregate, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    from ..source.options import stream_options

    reading = stream_options(_source(options, run))
    _check_target(options, run)
    with run.server.client() as client:
        logs = [log for log in client.logs() if reading.wants(log)]
        lines = [f"read from {run.server.url}, at most {options.events_per_batch:,} events in a batch:"]
        for log in logs:
            extent = client.head(log)
            lines.append(f"  log {log!r}: numbers {extent.first_retained} to {extent.head}")
    if missing := [name for name in options.sources if not any(fnmatch.fnmatchcase(log, name) for log in logs)]:
        lines.append(f"  no log matches {', '.join(missing)}")
    only = [f"of partitions {options.partitions}"] if options.partitions else []
    only += [f"that match {options.query}"] if options.query else []
    if only:
        lines.append(f"only events {' '.join(only)}")
    lines.append(f"a log that is new to {run.checkpoint} starts at {options.start}")
    url = options.target_url or run.server.url
    with run.server.client(url) as client:
        head = client.head(options.target).head
    lines.append(f"append them to log {options.target!r} on {url}, whose newest number is {head}")
    lines.append(
        "derive each id from the origin and keep the original as originid"
        if options.ids == "origin"
        else f"keep ids; for existing ids and sources: {options.on_duplicate}"
    )
    lines.append(run.until)
    return lines


def run(spark: SparkSession, options: Aggregate, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    from ..source.checkpoints import to_do

    _check_target(options, run)
    source = _source(options, run)
    if run.is_once:
        run.expect(to_do(run, source), options.events_per_batch)
    events = spark.readStream.format("headwater").options(**source).load()
    target = _target(options, run)
    sink = run.server.options(url=target.url, log=target.log, onDuplicate=options.on_duplicate)
    # No shuffle between reading and writing: the rows keep the order of the log.
    return run.follow(
        with_origin(events, options).writeStream.format("headwater").options(**sink),
        target=target,
    )


def with_origin(events: DataFrame, options: Aggregate) -> DataFrame:
    """The events as written to the target: with the attributes of their origin."""
    from pyspark.sql import functions as f

    log: Column = f.col("log") if options.site is None else f.concat(f.lit(f"{options.site}/"), f.col("log"))
    origin = {
        LOG: log,
        PARTITION: f.col("partition").cast("string"),
        SEQUENCE: f.col("sequence_number").cast("string"),
    }
    id = f.col("id")
    if options.ids == "origin":
        origin[ID] = id
        id = f.concat(log, f.lit("/"), f.col("sequence_number").cast("string"))
    names = [LOG, PARTITION, SEQUENCE, ID]  # an event aggregated before gets those of the nearer origin
    kept = f.map_filter("attributes", lambda name, _: ~name.isin(names))
    added = f.create_map(*[part for name, value in origin.items() for part in (f.lit(name), value)])
    return events.withColumns({"id": id, "attributes": f.map_concat(kept, added)})


def _target(options: Aggregate, run: Run) -> Target:
    return Target(options.target_url or run.server.url, options.target)


def _source(options: Aggregate, run: Run) -> dict[str, str]:
    return run.server.options(
        streamName=run.named(options.target if options.target_url is None else str(_target(options, run))),
        log=",".join(options.sources),
        partitions=options.partitions,
        query=options.query,
        startingPosition=options.start,
        maxEventsPerTrigger=options.events_per_batch,
    )


def _check_target(options: Aggregate, run: Run) -> None:
    """Raises InvalidInput if the target is one of the sources: it would feed itself endlessly."""
    if options.target_url not in (None, run.server.url):
        return
    for name in options.sources:
        if fnmatch.fnmatchcase(options.target, name):
            raise InvalidInput(f"{options.target!r} is one of the logs that {name!r} reads; choose another log", "to")
