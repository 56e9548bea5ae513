"""Copy the events of a log to another log, exactly once.

Events keep their ids, sources, types, data, tags, attributes and group keys, but get numbers and times of the target,
which may be on another server. It can be killed at any time and restarted with the same checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...core.errors import InvalidLogName
from ...core.settings import check_log_name
from ...formats.querytext import parse_query
from ..pipeline.option import option
from ..pipeline.run import Run, Summary, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """What to copy, and the target log."""

    source: str = option("The log to copy.", flag="--from", metavar="LOG")
    target: str = option("The target log; it must exist.", flag="--to", metavar="LOG")
    target_url: str | None = option("The server of the target.  [default: the same]", flag="--to-url", default=None,
                                    metavar="URL")  # fmt: skip
    query: str | None = option("Only events that match; see `headwater query --help`.", default=None, metavar="QUERY")
    start: str = option("Where a new copy starts: earliest, latest or a number.", flag="--start", default="earliest",
                        metavar="POSITION")  # fmt: skip
    on_duplicate: Literal["fail", "skip"] = option(
        "What to do with an event whose id exists in the target.", default="skip"
    )
    events_per_batch: int = option("Maximum number of events per batch.", default=1_000_000, minimum=1)

    def __post_init__(self) -> None:
        """Raises InvalidInput, before Spark is started."""
        for flag, log in (("--from", self.source), ("--to", self.target)):
            try:
                check_log_name(log)
            except InvalidLogName as error:
                raise InvalidLogName(error.problem, flag) from None
        if self.query is not None:
            parse_query(self.query)


OPTIONS = Copy
EXAMPLES = (
    "--from orders --to orders-copy --checkpoint ./copy --once",
    "--from orders --to orders --to-url grpc://backup:8815 --checkpoint /var/lib/headwater/copy",
)


def plan(options: Copy, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    which = "the events" + (f" that match {options.query}" if options.query else "")
    url = options.target_url or run.server.url
    with run.server.client() as client, run.server.client(url) as other:
        source, target = client.info(options.source), other.info(options.target)
    return [
        run.server.log_line(source),
        f"read {which}, at most {options.events_per_batch:,} in a batch",
        f"a new checkpoint starts at {options.start}; {run.checkpoint} shows whether it is new",
        f"append them to log {target.name!r} on {url}, whose newest number is {target.head}; for existing "
        f"ids: {options.on_duplicate}",
        run.until,
    ]


def run(spark: SparkSession, options: Copy, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    from ..source.checkpoints import to_do

    target = Target(options.target_url or run.server.url, options.target)
    source = run.server.options(
        log=options.source,
        streamName=run.named(options.target if options.target_url is None else str(target)),
        query=options.query,
        startingPosition=options.start,
        maxEventsPerTrigger=options.events_per_batch,
    )
    if run.is_once:
        run.expect(to_do(run, source), options.events_per_batch)
    events = spark.readStream.format("headwater").options(**source).load()
    sink = run.server.options(url=target.url, log=target.log, onDuplicate=options.on_duplicate)
    return run.follow(events.writeStream.format("headwater").options(**sink), target=target)
