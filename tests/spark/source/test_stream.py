"""Streams through Spark: checkpoints, restarts, triggers, progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming import StreamingQuery

from headwater.core import Event
from headwater.core.local import LocalLog
from headwater.storage.memory import MemoryStore

from ..archives import archive
from ..conftest import T0, Backend, Clock, event, fill, numbers

TIMEOUT_S = 100


class Running:
    """Queries into tables in memory, with one checkpoint."""

    def __init__(self, spark: SparkSession, url: str, directory: Path) -> None:
        self.spark, self.url = spark, url
        self.checkpoint, self.out = directory / "checkpoint", directory / "out"

    def frame(self, **options: object) -> DataFrame:
        given = {name: str(value) for name, value in options.items()}
        return self.spark.readStream.format("headwater").options(url=self.url, retries="1", **given).load()

    def start(self, trigger: dict[str, Any], **options: object) -> StreamingQuery:
        writing = self.frame(**options).writeStream.format("parquet")
        return writing.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start(str(self.out))

    def run(self, **options: object) -> StreamingQuery:
        """Read all that there is, and end."""
        query = self.start({"availableNow": True}, **options)
        assert query.awaitTermination(TIMEOUT_S)
        return query

    def numbers(self) -> list[int]:
        """What came out, sorted."""
        return sorted(row.sequence_number for row in self.spark.read.parquet(str(self.out)).collect())


@pytest.fixture
def running(spark: SparkSession, url: str, tmp_path: Path) -> Iterator[Running]:
    yield Running(spark, url, tmp_path)
    for query in spark.streams.active:
        query.stop()


def sizes(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_available_now_reads_each_event_once_over_restarts_in_batches_of_the_limit(
    running: Running, orders: LocalLog
) -> None:
    query = running.run(log="orders", maxEventsPerTrigger=40, startingPosition=11)
    assert sizes(query) == [40, 40, 10]

    assert sizes(running.run(log="orders", maxEventsPerTrigger=40)) == [], "nothing new"
    fill(orders, 30)
    assert sizes(running.run(log="orders", maxEventsPerTrigger=40)) == [30], "the checkpoint wins over any start"
    assert running.numbers() == list(range(11, 131))


def test_available_now_leaves_what_comes_meanwhile_to_the_next_run(
    running: Running, orders: LocalLog, backend: Backend
) -> None:
    backend.before_splits.append(lambda: fill(orders, 20))

    query = running.run(log="orders", maxBytesPerTrigger="300b")

    assert len(sizes(query)) > 1
    assert running.numbers() == list(range(1, 101))
    running.run(log="orders", minEventsPerTrigger=1000)
    assert running.numbers() == list(range(1, 121))


def test_a_running_stream_follows_logs_old_and_new_and_shows_its_lag(
    running: Running, orders: LocalLog, store: MemoryStore
) -> None:
    query = running.start({"processingTime": "0 seconds"}, log="orders,shop-*")
    query.processAllAvailable()
    fill(orders, 10)
    fill(store.create("shop-1"), 5)
    query.processAllAvailable()
    query.stop()

    assert running.numbers() == sorted([*range(1, 111), *range(1, 6)])
    source = next(progress for progress in reversed(query.recentProgress) if progress.numInputRows).sources[0]
    heads = json.loads(source.latestOffset)["logs"]
    assert {log: at["position"] for log, at in heads.items()} == {"orders": 110, "shop-1": 5}


def test_a_limit_leaves_a_lag_that_shows(running: Running, orders: LocalLog) -> None:
    query = running.run(log="orders", maxEventsPerTrigger=60)

    first = next(progress for progress in query.recentProgress if progress.numInputRows).sources[0]
    assert json.loads(first.endOffset)["logs"]["orders"]["position"] == 60
    assert json.loads(first.latestOffset)["logs"]["orders"]["position"] == 100


def test_a_query_partitions_and_columns_restrict_a_stream(running: Running, orders: LocalLog) -> None:
    asked = {"columns": "sequence_number,payload,_malformed", "payloadSchema": "n bigint"}
    running.run(log="orders", query="type=Paid", partitions="0", **asked)

    expected = [event.sequence_number for event in orders.read(partition=0) if event.type == "Paid"]
    assert running.numbers() == expected
    rows = running.spark.read.parquet(str(running.out)).selectExpr("payload.n", "_malformed").collect()
    assert sorted(rows) == [(number, None) for number in expected], "payloads as columns, in a stream as in a batch"


def test_a_stream_goes_from_the_archive_to_the_log(running: Running, orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path / "archive", 1, 60)
    orders.trim(51)

    query = running.run(log="orders", archive=tmp_path / "archive", maxEventsPerTrigger=50)

    assert sizes(query) == [50, 50]
    assert running.numbers() == list(range(1, 101))


def test_a_recreated_log_ends_the_query(running: Running, orders: LocalLog, store: MemoryStore) -> None:
    running.run(log="orders")
    store.delete("orders")
    fill(store.create("orders"), 10)

    with pytest.raises(StreamingQueryException, match="it was deleted and recreated"):
        running.run(log="orders")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filterPushdown": "true"}, "option filterPushdown: only for batch reads"),
        ({"startingPosition": "500"}, "option startingPosition: got 500, but the head of log 'orders' is 100"),
    ],
)
def test_a_wrong_option_ends_the_query_with_its_own_error(
    running: Running, orders: LocalLog, options: dict[str, str], message: str
) -> None:
    with pytest.raises(StreamingQueryException, match=message) as raised:
        running.run(log="orders", **options)

    assert "UnboundLocalError" not in str(raised.value)


def test_secrets_are_in_no_progress_and_no_checkpoint(running: Running, orders: LocalLog) -> None:
    query = running.run(log="orders", user="ann", password="hunter2")

    assert "hunter2" not in "".join(progress.json for progress in query.recentProgress)
    kept = [path.read_bytes() for path in running.checkpoint.rglob("*") if path.is_file()]
    assert kept
    assert not any(b"hunter2" in content for content in kept)


def test_a_stream_with_a_name_has_told_when_it_ends_how_far_it_is(running: Running, orders: LocalLog) -> None:
    query = running.run(log="orders", streamName="copy", maxEventsPerTrigger=40)
    assert sizes(query) == [40, 40, 20]
    assert [(each.owner, each.name, each.position) for each in orders.streams.all()] == [("spark", "copy", 100)]


def test_real_time_mode_is_refused_by_spark_which_takes_no_source_in_python(running: Running, orders: LocalLog) -> None:
    """Where a newer Spark lets it through, it is time to serve it."""
    writing = running.frame(log="orders").writeStream.format("console").outputMode("update")
    with pytest.raises((StreamingQueryException, AnalysisException)) as refused:
        query = writing.option("checkpointLocation", str(running.checkpoint)).trigger(realTime="5 seconds").start()
        query.awaitTermination(TIMEOUT_S)
    assert "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED" in str(refused.value)
    assert "PythonMicroBatchStream" in str(refused.value)


def test_two_logs_are_joined_by_time_with_watermarks_and_their_state_goes(
    running: Running, orders: LocalLog, store: MemoryStore, clock: Clock
) -> None:
    """Each `Placed` of `orders` is recorded within 10 s of T0; `paid` has its payment 20 s after T0, or 2 minutes."""
    paid = store.create("paid")
    for number, after_ms in ((1, 20_000), (5, 20_000), (2, 120_000), (4, 120_000)):
        clock.ms = T0 + after_ms
        paid.append([event(number)])
    clock.ms = T0 + 3_600_000
    for log in (orders, paid):
        log.append([Event("Later", b"{}", id="later")])

    placed = running.frame(log="orders").where("type != 'Paid'").selectExpr("id", "recorded_at AS placed_at")
    payments = running.frame(log="paid").selectExpr("id AS paid_id", "recorded_at AS paid_at")
    joined = placed.withWatermark("placed_at", "10 seconds").join(
        payments.withWatermark("paid_at", "10 seconds"),
        expr("id = paid_id AND paid_at BETWEEN placed_at AND placed_at + INTERVAL 1 MINUTE"),
        "leftOuter",
    )
    writing = joined.writeStream.format("parquet").option("checkpointLocation", str(running.checkpoint))
    query = writing.trigger(availableNow=True).start(str(running.out))
    assert query.awaitTermination(TIMEOUT_S)

    rows = running.spark.read.parquet(str(running.out)).collect()
    assert sorted(row.id for row in rows if row.paid_id) == ["1", "5", "later"]
    assert sorted(int(row.id) for row in rows if not row.paid_id) == [
        n for n in range(1, 101) if n % 3 and n not in (1, 5)
    ]
    assert query.recentProgress[-1].stateOperators[0].numRowsTotal == 2, "of what is later"


def test_a_session_in_another_time_zone_sees_the_same_moments(
    running: Running, orders: LocalLog, spark: SparkSession
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        from_5_s = {"startingTimestamp": "2023-11-14T22:13:25", "endingTimestamp": "2023-11-14T19:43:27-02:30"}
        running.run(log="orders", **from_5_s)
        frame = spark.read.parquet(str(running.out))
        seen = frame.selectExpr("unix_millis(recorded_at) AS ms", "CAST(recorded_at AS STRING) AS said").distinct()
        assert sorted(map(tuple, seen.collect())) == [
            (T0 + 5000, "2023-11-14 18:43:25"),
            (T0 + 6000, "2023-11-14 18:43:26"),
        ]
        assert running.numbers() == list(range(51, 71))
        asked = spark.read.format("headwater").options(url=running.url, log="orders", filterPushdown="true").load()
        assert numbers(asked.where("recorded_at >= '2023-11-14 18:43:29'")) == list(range(91, 101))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
