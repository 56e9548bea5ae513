"""The events that a one-pass pipeline reads from a log: those of a query, between two bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.errors import InvalidInput
from ...core.limits import show
from ...formats.querytext import parse_query
from ..options import NUMBER_OR_TIME, Moment, number_or_time
from ..pipeline.option import option
from ..pipeline.run import Run

if TYPE_CHECKING:  # the help of the pipelines imports no Spark
    from pyspark.sql import DataFrame, SparkSession

    from ...core.extent import Extent
    from ...flight.client import BulkClient
    from ..archive.snapshot import Archive
    from ..archive.steps import Steps

EARLIEST, LATEST = "earliest", "latest"


class Bounds(NamedTuple):
    """The numbers in (after, upto] of one incarnation of a log."""

    after: int
    upto: int
    incarnation: str

    @property
    def numbers(self) -> int:
        """How many numbers it contains."""
        return max(0, self.upto - self.after)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The options shared by such pipelines. Raises InvalidInput for an invalid bound or query."""

    log: str = option("The log.", metavar="LOG")
    to: str
    """The output of the events; each pipeline defines it."""
    query: str | None = option("Only events that match; see `headwater query --help`.", default=None, metavar="QUERY")
    start: str = option("The first event: earliest, a number, or a recording time (ISO 8601, or ms:MILLISECONDS).",
                        default=EARLIEST, metavar="POSITION")  # fmt: skip
    end: str = option("The last event: latest or a number; or a recording time, which is not included.",
                      default=LATEST, metavar="POSITION")  # fmt: skip
    archive: str | None = option("The Delta table that contains the trimmed events.", default=None, metavar="PATH")

    def __post_init__(self) -> None:
        _bound(self.start, "--start")
        _bound(self.end, "--end")
        if self.query is not None:
            parse_query(self.query)

    def bounds(self, client: BulkClient) -> Bounds:
        """The numbers from `start` to `end`, inclusive; if `end` is a time, it is exclusive.

        Raises InvalidInput for a number outside the log; LogNotFound.
        """
        from ..archive.snapshot import Archive
        from .positions import first_retained

        extent = client.head(self.log)
        archive = Archive(self.archive) if self.archive is not None else None
        after = _number(client, self.log, extent, archive, self.start, "--start") - 1
        upto = _number(client, self.log, extent, archive, self.end, "--end")
        if isinstance(_bound(self.end, "--end"), Moment):
            upto -= 1
        first = first_retained(self.log, extent, archive)
        if isinstance(_bound(self.start, "--start"), int) and after + 1 < first:
            raise InvalidInput(f"got {self.start}, but the first event is {first}", "--start")
        return Bounds(after, max(upto, after), extent.incarnation)

    def steps(self, client: BulkClient, bounds: Bounds) -> Steps:
        """The steps through these bounds."""
        from ..archive.snapshot import Archive
        from ..archive.steps import Steps

        archive = Archive(self.archive) if self.archive is not None else None
        return Steps(client, self.log, bounds.incarnation, archive)

    def line(self, run: Run) -> str:
        """The input, as a line of a plan."""
        with run.server.client() as client:
            bounds = self.bounds(client)
        which = f" that match {self.query}" if self.query else ""
        return f"read the events {bounds.after + 1:,} to {bounds.upto:,} of log {self.log!r} on {run.server.url}{which}"

    def events(self, spark: SparkSession, run: Run, bounds: Bounds, **others: Any) -> DataFrame:
        """The events in these bounds; `others` are further options of the data source."""
        given = run.server.options(
            log=self.log,
            query=self.query,
            archive=self.archive,
            startingPosition=bounds.after + 1,
            endingPosition=bounds.upto,
            **others,
        )
        return spark.read.format("headwater").options(**given).load()


def _bound(given: str, flag: str) -> str | int | Moment:
    """`earliest`, `latest`, a number or a time. Raises InvalidInput."""
    if given in (EARLIEST, LATEST):
        return given
    try:
        return number_or_time(given)
    except (ValueError, InvalidInput):
        allowed = f"earliest, latest, {NUMBER_OR_TIME}"
        raise InvalidInput(f"expected {allowed}, got {show(given)}", flag) from None


def _number(client: BulkClient, log: str, extent: Extent, archive: Archive | None, given: str, flag: str) -> int:
    from .positions import first_retained, sequence_number_at

    bound = _bound(given, flag)
    if isinstance(bound, Moment):
        return sequence_number_at(client, log, extent, archive, bound.ms)
    if isinstance(bound, str):
        return first_retained(log, extent, archive) if bound == EARLIEST else extent.head
    if bound < 1:
        raise InvalidInput(f"expected 1 or more, got {bound}", flag)
    if bound > extent.head:
        hint = f"for a time in milliseconds write ms:{bound}"
        raise InvalidInput(f"got {bound}, but the head of log {log!r} is {extent.head}; {hint}", flag)
    return bound
