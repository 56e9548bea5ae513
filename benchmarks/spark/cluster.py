"""How does a long log read as a cluster grows, and how soon are ten of its events there?

`python -m benchmarks.spark.cluster`: ten million events, executors that are processes with one core each, as those of a
standalone cluster, started anew for each number of them. All columns are read, in the same splits each time. Then, with
`local[2]`, the ten events of one tag, which lie all over the log.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import click
import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.spark import session

from .. import machine
from ..measure import expect, stopwatch
from .bench import SparkBench
from .events import batches
from .questions.read import ALL

LOG = "long"
NEEDLES = 10
TAG = "needle:1"
SPLITS = 16


@click.command()
@click.option("--events", type=click.IntRange(min=NEEDLES), default=10_000_000, show_default=True, help="In tens.")
@click.option("--rounds", default=3, show_default=True, help="Of each number of executors, after one to warm up.")
@click.option("--executors", default=(1, 2, 4), show_default=True, multiple=True)
@click.option("--directory", type=click.Path(path_type=Path), default=Path("build"), show_default=True)
def main(events: int, rounds: int, executors: tuple[int, ...], directory: Path) -> None:
    """Print the numbers of docs/benchmarks-spark.md."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in machine.describe(directory).items():
        click.echo(f"{name}: {value}")
    with tempfile.TemporaryDirectory(prefix="spark-", dir=directory) as path:
        bench = SparkBench(Path(path).resolve() / "bench", 1000, has_peers=False)
        try:
            _fill(bench, events // NEEDLES * NEEDLES)
            total = events // NEEDLES * NEEDLES + NEEDLES
            for count in executors:
                _grown(bench, count, total, rounds)
            _sought(bench)
        finally:
            bench.close()


def _fill(bench: SparkBench, events: int) -> None:
    """Behind each tenth of the events, one that has the tag."""
    with bench.bulk() as bulk:
        bulk.create_log(LOG)
        for batch in batches(events, events // NEEDLES):
            bulk.append(LOG, [batch])
            bulk.append(LOG, pa.table({"type": ["Needle"], "data": [b"{}"], "tags": [[TAG]]}))
        expect("events in the log", events + NEEDLES, bulk.count(LOG))


def _session(master: str) -> SparkSession:
    made = session(
        "benchmarks",
        master,
        {
            "spark.driver.memory": "1g",
            "spark.executor.memory": "1g",
            "spark.ui.showConsoleProgress": "false",
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.executorEnv.PYTHONPATH": ":".join(sys.path),
        },
    )
    made.sparkContext.setLogLevel("OFF")
    return made


def _read(spark: SparkSession, bench: SparkBench, total: int) -> None:
    frame = spark.read.format("headwater").options(url=bench.url, log=LOG, minPartitions=str(SPLITS)).load()
    found = frame.selectExpr("count(1) as events", *ALL).collect()[0]
    expect("events read", total, found["events"])


def _grown(bench: SparkBench, count: int, total: int, rounds: int) -> None:
    spark = _session(f"local-cluster[{count},1,1024]")
    rates, cpus = [], []
    try:
        for turn in range(rounds + 1):
            with stopwatch() as watch:
                _read(spark, bench, total)
            sample = watch.rate(total)
            if turn:
                rates.append(sample.value)
                cpus.append(sample.cpu_us or 0.0)
    finally:
        spark.stop()
    click.echo(
        f"{count} executors: {statistics.median(rates):,.0f} events/s ({min(rates):,.0f} - {max(rates):,.0f}), "
        f"{statistics.median(cpus):.1f} us of CPU for an event"
    )


def _sought(bench: SparkBench) -> None:
    spark = _session("local[2]")
    taken = []
    try:
        for turn in range(21):
            began = time.perf_counter()
            options = {"url": bench.url, "log": LOG, "query": f"tag={TAG}"}
            rows = spark.read.format("headwater").options(**options).load().collect()
            expect("events with the tag", NEEDLES, len(rows))
            if turn:
                taken.append(1000 * (time.perf_counter() - began))
    finally:
        spark.stop()
    click.echo(
        f"ten events of a tag, from load() to rows: {statistics.median(taken):,.0f} ms "
        f"({min(taken):,.0f} to {max(taken):,.0f}; goal 300)"
    )


if __name__ == "__main__":
    main()
