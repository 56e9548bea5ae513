"""How many rows a second does the import pipeline load from a file, exactly once?

A CSV file of six columns, two of which become tags; ids are derived from the rows, as nothing else tells them apart.
Beside it, Spark's own reader copies the file into Parquet. Without Spark: one process makes events of all rows, and of
as many lines of NDJSON, and nobody stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from headwater.core import LogSettings
from headwater.formats.files.tabular import TableMapping
from headwater.spark.jobs.import_ import job
from headwater.spark.jobs.import_.files import look_at
from headwater.spark.jobs.import_.pieces import pieces_of
from headwater.spark.jobs.import_.reader import read_piece
from headwater.spark.pipeline.run import Run, Server

from ...measure import Case, Sample, expect, stopwatch
from ..bench import SparkBench

TITLE = "Import"
TAGS = ("account", "region")
HEADER = ("time", "type", *TAGS, "amount", "note")


def cases(bench: SparkBench) -> Iterator[Case]:
    """With Spark; then what a task does, by itself."""
    table, lines = bench.scratch("table"), bench.scratch("lines")
    _write(table, bench.events, lambda row: ",".join(row) + "\n", ",".join(HEADER) + "\n")
    _write(lines, bench.events, _line)
    runs = {"headwater": partial(_import, bench, table), "Spark, into Parquet": partial(_copy, bench, table)}
    yield Case("CSV into a log, with the commits", "rows/s", runs)
    reads = {"CSV": partial(_read, bench, table, "csv"), "NDJSON": partial(_read, bench, lines, "ndjson")}
    yield Case("rows into events, one process", "rows/s", reads)


def _row(n: int) -> tuple[str, ...]:
    time = f"2026-03-{n % 28 + 1:02d}T{n % 24:02d}:{n % 60:02d}:{n // 60 % 60:02d}.{n % 1000:03d}Z"
    account, region = f"acc-{n * 31 % 5000}", f"region-{n % 50}"
    return time, f"Order{n % 20:02d}", account, region, str(n * 97 % 9973), f"note {n * 7919 % 10**9} of a row"


def _line(row: tuple[str, ...]) -> str:
    cells = dict(zip(HEADER, row, strict=True))
    event = {
        "type": cells["type"],
        "data": msgspec.json.encode(cells).decode(),
        "tags": [f"{name}:{cells[name]}" for name in TAGS],
        "attributes": {"time": cells["time"]},
    }
    return msgspec.json.encode(event).decode() + "\n"


def _write(path: Path, rows: int, text: Callable[[tuple[str, ...]], str], heading: str = "") -> None:
    with path.open("w") as file:
        file.write(heading)
        file.writelines(text(_row(n)) for n in range(rows))


def _import(bench: SparkBench, table: Path) -> Sample:
    log = bench.fresh_log()
    options = job.Import(
        file=(str(table),), log=log, format="csv", tag=TAGS, quarantine=str(bench.scratch("quarantine"))
    )
    with bench.stopwatch() as watch, Run("import", server=Server(url=bench.url)) as run:
        summary = job.run(bench.spark, options, run)
    expect("rows in quarantine", 0, summary.details["quarantined"])
    bench.check(log)
    bench.discard(log)
    return watch.rate(bench.events)


def _copy(bench: SparkBench, table: Path) -> Sample:
    target = str(bench.scratch("copy"))
    with bench.stopwatch() as watch:
        bench.spark.read.option("header", True).csv(str(table)).write.parquet(target)
    return watch.rate(bench.events)


def _read(bench: SparkBench, path: Path, format: str) -> Sample:
    tags = tuple((name, name) for name in TAGS) if format == "csv" else ()
    with stopwatch() as watch:
        pieces = pieces_of(look_at(path, format, TableMapping("", tags=tags)))
        rows = sum(batch.num_rows for piece in pieces for batch in read_piece(piece, LogSettings(), []))
    expect("events made", bench.events, rows)
    return watch.rate(bench.events)
