"""How many events a second does the archive pipeline write to its Delta table, end to end?

From the registration of the archiver to its last acknowledgement: streaming read, Parquet files with zstd, their
inspection and sync, the commits, the acknowledgements. Beside it, the same read written to zstd Parquet files and
nothing else: no commit, no sync, no consumer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from headwater.spark.jobs import archive
from headwater.spark.pipeline.run import Run, Server

from ...measure import Case, Sample, expect
from ..bench import LOG, SparkBench

TITLE = "Archive"
COMPONENT = "BENCHMARK"
BATCH_EVENTS = 100_000


def cases(bench: SparkBench) -> Iterator[Case]:
    """All at once, and batch by batch."""
    runs = {
        "headwater": partial(_archive, bench, 10**6),
        f"headwater, batches of {BATCH_EVENTS:,}": partial(_archive, bench, BATCH_EVENTS),
        "plain files": partial(_plain, bench),
    }
    yield Case("a log into a new table", "events/s", runs)


def _archive(bench: SparkBench, events_per_batch: int) -> Sample:
    table = bench.scratch("table")
    options = archive.Archive(log=(LOG,), table=str(table), component=COMPONENT, events_per_batch=events_per_batch)
    with bench.stopwatch() as watch, Run("archive", server=Server(url=bench.url)) as run:
        summary = archive.run(bench.spark, options, run)
    expect("events archived", bench.events, summary.events)
    with bench.bulk() as bulk:
        expect("number archived", bulk.head(LOG).head, summary.details["archived"])
        bulk.unregister_consumer(LOG, archive.OWNER, COMPONENT)
    return watch.rate(bench.events)


def _plain(bench: SparkBench) -> Sample:
    target = str(bench.scratch("plain"))
    with bench.stopwatch() as watch:
        bench.frame().write.option("compression", "zstd").parquet(target)
    return watch.rate(bench.events)
