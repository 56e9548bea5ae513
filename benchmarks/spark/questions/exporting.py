"""How many events a second does the export pipeline write as CSV and NDJSON, beside Spark's own writers?

The pipeline makes each row in Python, by the functions that `headwater export` uses. Beside it, expressions of Spark
make the same columns of the same read, and Spark's writer for CSV, or `to_json`, the files: without any Python but the
read's. Both have the same splits, and their files must be the same, byte for byte. The whole pipeline also makes a
manifest, syncs all files, and reads in splits of its own size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.spark.jobs.export import job
from headwater.spark.jobs.export.formats import Format, shaped, write
from headwater.spark.pipeline.run import Run, Server

from ...measure import Case, Sample, expect
from ..bench import LOG, SparkBench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "Export"
CSV_COLUMNS = (
    "sequence_number",
    "date_format(recorded_at, \"yyyy-MM-dd'T'HH:mm:ss.SSS'Z'\") AS recorded_at",
    "partition",
    "type",
    "array_join(tags, ',') AS tags",
    "id",
    "source",
    "coalesce(attributes['time'], '') AS time",
    "CAST(data AS STRING) AS data",
    "'' AS data_base64",
    "if(size(attributes) = 0, '', to_json(attributes)) AS attributes",
    "group_key",
    "base64(envelope) AS envelope_base64",
    "if(encoding = 0, 'data', 'amqp') AS encoding",
)
"""What `formats.exported` makes of such events as are measured, as expressions of Spark."""
NDJSON_LINE = (
    "to_json(named_struct("
    "'event', named_struct('type', type, 'data', CAST(data AS STRING), 'tags', tags, 'id', id), "
    "'sequence_number', sequence_number, 'recorded_at', unix_millis(recorded_at))) AS value"
)
"""And what `formats.envelope` makes: what is empty is left out."""

Rows = Callable[["DataFrame"], "DataFrame"]


def cases(bench: SparkBench) -> Iterator[Case]:
    """A table, then lines."""
    yield _case(bench, "csv", lambda events: events.selectExpr(*CSV_COLUMNS))
    yield _case(bench, "ndjson", lambda events: events.selectExpr(NDJSON_LINE))


def _case(bench: SparkBench, format: Format, expressions: Rows) -> Case:
    digests: list[str] = []
    runs = {
        "headwater": partial(_write, bench, format, lambda events: shaped(events, format, "none"), digests),
        "Spark's own": partial(_write, bench, format, expressions, digests),
        "headwater, the whole pipeline": partial(_export, bench, format),
    }
    return Case(f"a log into {format.upper()}", "events/s", runs)


def _write(bench: SparkBench, format: Format, rows: Rows, digests: list[str]) -> Sample:
    target = bench.scratch(format)
    with bench.stopwatch() as watch:
        write(rows(bench.frame()), format, "none", str(target), "none")
    digests.append(_digest(target))
    expect(f"bytes of {format} (their SHA-256)", digests[0], digests[-1])
    return watch.rate(bench.events)


def _export(bench: SparkBench, format: Format) -> Sample:
    options = job.Export(log=LOG, to=str(bench.scratch(format)), format=format)
    with bench.stopwatch() as watch, Run("export", server=Server(url=bench.url)) as run:
        summary = job.run(bench.spark, options, run)
    expect("events exported", bench.events, summary.events)
    return watch.rate(bench.events)


def _digest(directory: Path) -> str:
    """Of all files, in the order of the splits; they are removed."""
    found = hashlib.sha256()
    for path in sorted(directory.glob("part-*")):
        found.update(path.read_bytes())
        path.unlink()
    return found.hexdigest()
