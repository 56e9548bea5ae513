"""Export the events of a log to a directory of Parquet, NDJSON or CSV files.

The directory appears when it is complete, with a manifest of the exported events. Every format is lossless: `headwater
pipeline import` recreates the same events, except from CSV with payload columns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from ....core.errors import InvalidInput
from ...pipeline.option import option
from ...pipeline.run import Run, Summary
from ...source.selection import Bounds, Selection
from .directory import NewDirectory, check_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from ...archive.steps import Steps

IS_STREAM = False
MANIFEST_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Export(Selection):
    """What to export, and the target directory."""

    to: str = option("The directory to create.", metavar="DIR")
    format: Literal["parquet", "ndjson", "csv"] = option("Format of the files.", default="parquet")
    partition_by: Literal["none", "date", "type"] = option(
        "One directory per recording day or per event type.", default="none"
    )
    flatten: bool = option("Also write fields of JSON payloads as columns `payload_NAME`.", default=False)
    payload_schema: str | None = option("The payload columns, such as 'total double, lines array<string>'.  [default: "
                                        "inferred from all payloads]", default=None, metavar="COLUMNS")  # fmt: skip
    compression: Literal["zstd", "snappy", "gzip", "none"] | None = option(
        "Compression of the files.  [default: zstd for Parquet, otherwise none]", default=None
    )
    events_per_step: int = option("Number of events between checks for a stop request.",
                                  default=2_000_000, minimum=1)  # fmt: skip

    def __post_init__(self) -> None:
        Selection.__post_init__(self)
        if self.flatten and self.format == "ndjson":
            raise InvalidInput("NDJSON contains the payload unchanged; use flatten with parquet or csv", "--flatten")
        if self.payload_schema is not None and not self.flatten:
            raise InvalidInput("requires --flatten", "--payload-schema")
        if self.format != "parquet" and self.compression not in (None, "none", "gzip"):
            raise InvalidInput(f"{self.format} supports gzip or none, got {self.compression!r}", "--compression")

    @property
    def packing(self) -> str:
        """The compression to use."""
        return self.compression or ("zstd" if self.format == "parquet" else "none")

    @property
    def ending(self) -> str:
        """The extension of the files."""
        return f"{self.format}.gz" if self.packing == "gzip" and self.format != "parquet" else self.format


OPTIONS = Export
EXAMPLES = (
    "--log orders --to ./orders",
    "--log orders --to ./paid --query type=OrderPaid --partition-by date --flatten",
    "--log orders --to ./november --format ndjson --start 2026-11-01T00:00:00Z --end 2026-12-01T00:00:00Z",
)


def plan(options: Export, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    target = check_target(options.to)
    by = "" if options.partition_by == "none" else f", a directory for each {options.partition_by}"
    flat = ", payloads as columns" if options.flatten else ""
    return [
        options.line(run),
        f"write them as {options.format} ({options.packing}) into {target}{by}{flat}",
        "the directory appears when it is complete",
    ]


def run(spark: SparkSession, options: Export, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    target = check_target(options.to)
    with run.server.client() as client:
        bounds = options.bounds(client)
        steps = options.steps(client, bounds)
        writing = _Writing(spark, options, run)
        schema = writing.schema(bounds)
        run.expect(steps.count(bounds.after, bounds.upto), options.events_per_step)
        events = 0
        with NewDirectory(target, options.ending) as directory:
            for step in _cut(bounds, steps, options.events_per_step):
                if run.stop.is_asked:
                    return run.summary(to=None)
                events += writing.write(step, schema, directory, steps.count(step.upto, bounds.upto))
            size = directory.finish(_manifest(options, bounds, events, run))
    return run.summary(to=str(target), first=bounds.after + 1, last=bounds.upto, bytes=size)


def _cut(bounds: Bounds, steps: Steps, events: int) -> Iterator[Bounds]:
    after = bounds.after
    while after < bounds.upto:
        upto = steps.end(after, bounds.upto, events)
        yield bounds._replace(after=after, upto=upto)
        after = upto


def _manifest(options: Export, bounds: Bounds, events: int, run: Run) -> dict[str, object]:
    return {
        "version": MANIFEST_VERSION,
        "log": options.log,
        "incarnation": bounds.incarnation,
        "first": bounds.after + 1,
        "last": bounds.upto,
        "query": options.query,
        "events": events,
        "format": options.format,
        "partitioned_by": None if options.partition_by == "none" else options.partition_by,
        "server": run.server.url,
        "exported_at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


class _Writing:
    """The steps of an export."""

    def __init__(self, spark: SparkSession, options: Export, run: Run) -> None:
        self._spark, self._options, self._run = spark, options, run

    def schema(self, bounds: Bounds) -> StructType | None:
        from .payloads import found_schema, payload_schema

        options = self._options
        if not options.flatten or not bounds.numbers:
            return None
        if options.payload_schema is not None:
            return payload_schema(options.payload_schema)
        self._run.say("export: scanning the payloads for their columns")
        events = options.events(self._spark, self._run, bounds, columns="data")
        return self._run.step(self._spark, lambda: found_schema(events))

    def write(self, step: Bounds, schema: StructType | None, directory: NewDirectory, left: int) -> int:
        """Write a step, after which that many events are left. Returns how many of its events match."""
        began = time.monotonic()
        count = self._run.step(self._spark, lambda: self._written(step, schema, directory))
        directory.add(step.after + 1)
        self._run.advance(count, round((time.monotonic() - began) * 1000), left=left)
        return count

    def _written(self, step: Bounds, schema: StructType | None, directory: NewDirectory) -> int:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        from .formats import shaped, write
        from .payloads import with_payload_columns

        options = self._options
        events = options.events(self._spark, self._run, step)
        if schema is not None:
            events = with_payload_columns(events, schema, is_flat=options.format == "csv")
        seen = Observation()
        rows = shaped(events.observe(seen, F.count(F.lit(1)).alias("events")), options.format, options.partition_by)
        write(rows, options.format, options.partition_by, directory.step(), options.packing)
        return int(seen.get["events"])
