"""How many events a second does Spark write into a log, exactly once, and how much of that is the commit?

From Parquet files with type, data, tags and id. Headwater's tasks stage what they have, durably, and the driver commits
it, durably; Kafka's connector writes at least once, and the broker answers before the disk has it; Parquet is a copy of
the files, which nobody syncs. Without Spark: one client stages all, then commits it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...measure import Aim, Case, Sample, expect, stopwatch
from ...samples import Samples
from ..bench import SparkBench
from ..events import batches

TITLE = "Writing"
PARQUET_AIM, KAFKA_AIM = 1, 1.5
WRITER = "benchmark"


def cases(bench: SparkBench) -> Iterator[Case]:
    """With Spark; then staging and commit apart."""
    path = bench.plain_parquet
    runs = {"headwater": partial(_to_log, bench, path), "parquet": partial(_to_parquet, bench, path)}
    aims = [Aim("parquet", PARQUET_AIM)]
    if bench.kafka is not None:
        runs["kafka"] = partial(_to_topic, bench, path)
        aims.append(Aim("kafka", KAFKA_AIM))
    yield Case("Parquet into a log, with the commit", "events/s", runs, aims)
    kept = Samples()
    yield Case("staging alone, one client", "events/s", {"headwater": partial(_stage_and_commit, bench, kept)})
    yield Case("commit alone", "events/s", {"headwater": partial(kept.take, "commit")})


def _to_log(bench: SparkBench, path: str) -> Sample:
    log = bench.fresh_log()
    with bench.stopwatch() as watch:
        events = bench.spark.read.parquet(path)
        events.write.format("headwater").options(url=bench.url, log=log).mode("append").save()
    bench.check(log)
    bench.discard(log)
    return watch.rate(bench.events)


def _to_parquet(bench: SparkBench, path: str) -> Sample:
    target = str(bench.scratch("copy"))
    with bench.stopwatch() as watch:
        bench.spark.read.parquet(path).write.parquet(target)
    return watch.rate(bench.events)


def _to_topic(bench: SparkBench, path: str) -> Sample:
    assert bench.kafka is not None
    topic = bench.kafka.fresh_address()
    with bench.stopwatch() as watch:
        bench.kafka.write(bench.spark.read.parquet(path), topic)
    expect("events in the topic", bench.events, bench.kafka.read(bench.spark, topic, has_headers=False).count())
    return watch.rate(bench.events)


def _stage_and_commit(bench: SparkBench, kept: Samples) -> Sample:
    log, made = bench.fresh_log(), list(batches(bench.events))
    with bench.bulk() as bulk:
        with stopwatch() as staging:
            stage = bulk.stage(log, WRITER, 0, 0, 0, made)
        with stopwatch() as committing:
            committed = bulk.commit(log, WRITER, 0, [stage.stage])
    expect("events committed", bench.events, committed.events)
    bench.discard(log)
    kept.keep("commit", committing.rate(bench.events))
    return staging.rate(bench.events)
