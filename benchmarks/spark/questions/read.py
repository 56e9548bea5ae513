"""How many events a second does Spark read from a log, from Parquet, from Kafka, and from a row-wise source?

The same events everywhere, in the same session, on the same cores, in four splits, files or partitions. Parquet has
the columns of the log; in Kafka the id is the key, and the type and the tags are headers, which are read too.
Aggregates touch every column; `noop` makes a row of each event and drops it. CPU is that of all processes together:
Spark, its Python workers, and the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...measure import Aim, Case, Sample, expect
from ..bench import LOG, SPLITS, SparkBench
from ..events import DATA_BYTES, TAGS
from ..row_source import RowSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "Reading"
PARQUET_AIM, KAFKA_AIM, ROWS_AIM, ONE_COLUMN_AIM = 1, 1, 6.5, 0.7
ALL = (
    "sum(length(data))",
    "sum(size(tags))",
    "max(tags[0])",
    "max(log)",
    "sum(sequence_number)",
    "max(recorded_at)",
    "max(partition)",
    "max(type)",
    "max(id)",
    "max(source)",
    "sum(size(attributes))",
    "max(group_key)",
    "sum(length(envelope))",
    "sum(encoding)",
)
ALL_OF_KAFKA = (
    "sum(length(value))",
    "sum(size(headers) - 1)",
    "max(headers[1].value)",
    "max(topic)",
    "sum(offset)",
    "max(timestamp)",
    "max(partition)",
    "max(headers[0].value)",
    "max(key)",
    "max(timestampType)",
)

Frame = Callable[[], "DataFrame"]


def cases(bench: SparkBench) -> Iterator[Case]:
    """Aggregate, noop, payload alone, one column alone."""
    bench.spark.dataSource.register(RowSource)
    log, parquet, rows = bench.frame, partial(_parquet, bench, bench.parquet), partial(_rows, bench)
    aims = [Aim("parquet", PARQUET_AIM), Aim("row-wise", ROWS_AIM)]
    aggregates = {
        "headwater": partial(_aggregate, bench, log, ALL),
        "parquet": partial(_aggregate, bench, parquet, ALL),
    }
    noops = {"headwater": partial(_noop, bench, log), "parquet": partial(_noop, bench, parquet)}
    payloads = {
        "headwater": partial(_aggregate, bench, partial(bench.frame, columns="data"), ALL[:1]),
        "parquet": partial(_aggregate, bench, parquet, ALL[:1]),
    }
    if bench.kafka is not None:
        topic = partial(bench.kafka.read, bench.spark, bench.topic)
        aims.append(Aim("kafka", KAFKA_AIM))
        aggregates["kafka"] = partial(_aggregate, bench, topic, ALL_OF_KAFKA)
        noops["kafka"] = partial(_noop, bench, topic)
        payloads["kafka"] = partial(_aggregate, bench, partial(topic, has_headers=False), ALL_OF_KAFKA[:1])
    aggregates["row-wise"] = partial(_aggregate, bench, rows, ALL)
    yield Case("aggregate over all columns", "events/s", aggregates, aims)
    yield Case("every event as a row, to noop", "events/s", noops, [aim for aim in aims if aim.against != "row-wise"])
    yield Case("payload alone", "events/s", payloads, [aim for aim in aims if aim.against == "kafka"])
    types = {
        "headwater": partial(_types, bench, partial(bench.frame, columns="type")),
        "parquet": partial(_types, bench, parquet),
    }
    yield Case("count by type, one column", "events/s", types, [Aim("parquet", ONE_COLUMN_AIM)])


def _aggregate(bench: SparkBench, frame: Frame, expressions: tuple[str, ...]) -> Sample:
    with bench.stopwatch() as watch:
        answer = frame().selectExpr(*expressions).collect()[0]
    expect("bytes of data", bench.events * DATA_BYTES, answer[0])
    if len(answer) > 1:
        expect("tags", bench.events * TAGS, answer[1])
    return watch.rate(bench.events)


def _noop(bench: SparkBench, frame: Frame) -> Sample:
    with bench.stopwatch() as watch:
        frame().write.format("noop").mode("overwrite").save()
    return watch.rate(bench.events)


def _types(bench: SparkBench, frame: Frame) -> Sample:
    with bench.stopwatch() as watch:
        counts = frame().groupBy("type").count().collect()
    expect("events", bench.events, sum(row["count"] for row in counts))
    return watch.rate(bench.events)


def _parquet(bench: SparkBench, path: str) -> DataFrame:
    return bench.spark.read.parquet(path)


def _rows(bench: SparkBench) -> DataFrame:
    options = {"url": bench.url, "log": LOG, "minPartitions": str(SPLITS)}
    return bench.spark.read.format("headwater-rows").options(**options).load()
