"""How fast are reads in 2 to 8 pieces, and of logs with 1 to 8 partitions?

The same aggregate over all columns. A log in more splits is the same work in more tasks, two at a time. In the logs of
several partitions an account's events share one, so that every frame has events of all of them; read partition by
partition, each task looks through frames of which it wants a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from headwater.core import LogSettings

from ...measure import Case, Sample, expect
from ..bench import LOG, SparkBench
from ..events import DATA_BYTES
from .read import ALL

TITLE = "Splits and partitions"
COUNTS = (2, 4, 8)


def cases(bench: SparkBench) -> Iterator[Case]:
    """By number of splits; by number of partitions, together and one by one."""
    splits = {f"{n} splits": partial(_read, bench, LOG, minPartitions=n) for n in COUNTS}
    yield Case("a log of one partition", "events/s", splits)
    for count in COUNTS:
        bench.note(f"filling a log of {count} partitions")
        bench.fill(f"partitions-{count}", LogSettings(partitions=count, partition_by="tag:account"))
    whole = {f"{n} partitions": partial(_read, bench, f"partitions-{n}") for n in COUNTS}
    yield Case(
        "logs of several partitions, in 4 splits", "events/s", {"1 partition": partial(_read, bench, LOG), **whole}
    )
    single = {f"{n} partitions": partial(_read, bench, f"partitions-{n}", partitions=_all(n)) for n in COUNTS}
    yield Case("partition by partition", "events/s", {"1 partition": partial(_read, bench, LOG), **single})


def _all(count: int) -> str:
    return ",".join(map(str, range(count)))


def _read(bench: SparkBench, log: str, **options: object) -> Sample:
    with bench.stopwatch() as watch:
        answer = bench.frame(log, **options).selectExpr(*ALL).collect()[0]
    expect(f"bytes of data in {log}", bench.events * DATA_BYTES, answer[0])
    return watch.rate(bench.events)
