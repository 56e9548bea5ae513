"""How long does a micro-batch take at 1,000 events a second, and what is the latency of an event?

A producer appends 20 events every 20 ms over Flight; the query follows the log with no trigger interval, so that a
batch begins when the one before has ended. The first quarter of each stream is not looked at. An event is on its way
from when the log recorded it until its batch has ended, with what Spark writes down of it (`noop`), or until the second
log recorded it (`headwater`). Spark's own
`rate-micro-batch` source, which reads nothing, shows what Spark takes by itself. With `asyncProgressTrackingEnabled`
Spark writes down beside the next batches what is done, which it can do for some sinks, and for queries without state:
there an event is on its way until its batch has ended without that.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from ...measure import Aim, Case, Sample, expect
from ...samples import Samples
from ..bench import SparkBench
from ..live import RATE, Batch, appending, recorded, stop, watch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TITLE = f"Micro-batches at {RATE:,} events/s"
WARM_SHARE = 1 / 3
"""Of the time that is looked at, before it."""
ROUNDS = 3
NOOP, SINK, FLOOR = "headwater to noop", "headwater to headwater", "rate source to noop"
ASYNC = "headwater to noop, progress beside it"
BATCH_AIM_MS, EVENT_AIM_MS = 100, 150


def cases(bench: SparkBench) -> Iterator[Case]:
    """Durations of batches, then latencies; p50 and p95."""
    kept = Samples()
    runs = {
        NOOP: partial(_to_noop, bench, kept, NOOP),
        ASYNC: partial(_to_noop, bench, kept, ASYNC, asyncProgressTrackingEnabled=True),
        SINK: partial(_to_log, bench, kept),
        FLOOR: partial(_floor, bench, kept),
    }
    yield Case("a batch, p50", "ms", runs, [Aim("", BATCH_AIM_MS)], is_lower_better=True, rounds=ROUNDS)
    logs = [NOOP, ASYNC, SINK]
    later: tuple[tuple[str, list[str], list[Aim]], ...] = (
        ("a batch, p95", list(runs), []),
        ("an event, p50", logs, [Aim("", EVENT_AIM_MS)]),
        ("an event, p95", logs, []),
    )
    for what, labels, aims in later:
        taken = {label: partial(kept.take, f"{label} {what}") for label in labels}
        yield Case(what, "ms", taken, aims, is_lower_better=True, rounds=ROUNDS)


def _to_noop(bench: SparkBench, kept: Samples, label: str, **options: bool) -> Sample:
    log = bench.fresh_log()
    batches = _follow(bench, log, lambda stream: stream.format("noop").options(**options))
    with bench.bulk() as bulk:
        times = recorded(bulk, log, "sequence_number")
    latencies: list[float] = []
    for before, done in pairwise(batches):
        latencies += [
            done.ended_ms - times[number] for number in range(before.upto + 1, done.upto + 1) if number in times
        ]
    bench.discard(log)
    return _keep(kept, label, batches, latencies)


def _to_log(bench: SparkBench, kept: Samples) -> Sample:
    log, target = bench.fresh_log(), bench.fresh_log()
    batches = _follow(bench, log, lambda stream: stream.format("headwater").options(url=bench.url, log=target))
    with bench.bulk() as bulk:
        source, sink = recorded(bulk, log, "id"), recorded(bulk, target, "id")
    expect("ids in the second log and not in the first", set(), sink.keys() - source.keys())
    since = batches[0].ended_ms
    latencies: list[float] = [at - source[id] for id, at in sink.items() if at >= since]
    for name in (log, target):
        bench.discard(name)
    return _keep(kept, SINK, batches, latencies)


def _floor(bench: SparkBench, kept: Samples) -> Sample:
    rate = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", RATE // 4).load()
    query = _start(bench, rate.writeStream.format("noop"))
    return _keep(kept, FLOOR, _watched(bench, query), [])


def _follow(bench: SparkBench, log: str, to: Callable[[DataStreamWriter], DataStreamWriter]) -> list[Batch]:
    """The batches of a query from that log to a sink, while events are appended."""
    with appending(bench.url, log) as failed:
        stream = bench.spark.readStream.format("headwater").options(url=bench.url, log=log).load()
        return _watched(bench, _start(bench, to(stream.writeStream)), failed)


def _start(bench: SparkBench, stream: DataStreamWriter) -> StreamingQuery:
    return stream.option("checkpointLocation", str(bench.scratch("checkpoint"))).start()


def _watched(bench: SparkBench, query: StreamingQuery, failed: threading.Event | None = None) -> list[Batch]:
    try:
        return watch(query, bench.live_s, bench.live_s * WARM_SHARE, failed or threading.Event())
    finally:
        stop(query)


def _keep(kept: Samples, label: str, batches: Sequence[Batch], latencies_ms: Sequence[float]) -> Sample:
    """Keep what is asked for later; answers the median duration of a batch."""
    durations = [batch.duration_ms for batch in batches]
    for what, values in (("a batch", durations), ("an event", latencies_ms)):
        if values:
            kept.keep(f"{label} {what}, p50", Sample(statistics.median(values)))
            kept.keep(f"{label} {what}, p95", Sample(_p95(values)))
    return kept.take(f"{label} a batch, p50")


def _p95(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
