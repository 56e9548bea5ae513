"""Reads from a real server: its bulk process, its stored logs with their segments, its users."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater.core.settings import LogSettings
from headwater.flight.client import BulkClient, Ticket
from tests.server.running import RunningServer, headwater
from tests.server.starting import PROGRAM

from ..flight.members import refusing
from .conftest import numbers

COUNT = 20_000
WITH_FLIGHT = ("--flight-enabled", "true", "--flight-port", "0")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(
        "--data", "data", *WITH_FLIGHT, cwd=tmp_path_factory.mktemp("server"), program=PROGRAM
    ) as running:
        yield running


@pytest.fixture(scope="module")
def url(server: RunningServer) -> Iterator[str]:
    """A log `orders` of COUNT events of 400 bytes and more in 4 partitions, in several segments."""
    url = server.further_url("grpc")
    with BulkClient(url) as bulk:
        bulk.create_log("orders", LogSettings(partitions=4))
        bulk.append("orders", [batch(first, 2000) for first in range(1, COUNT, 2000)])
    yield url


def batch(first: int, count: int) -> pa.RecordBatch:
    given = range(first, first + count)
    return pa.record_batch(
        {
            "type": pa.array([f"T{number % 5}" for number in given]),
            "data": pa.array([b"%d" % number * 100 for number in given], pa.binary()),
            "tags": pa.array([[f"order:{number % 100}", "all"] for number in given], pa.list_(pa.string())),
            "id": pa.array([str(number) for number in given]),
            "source": pa.array(["shop"] * count),
            "group_key": pa.array([str(number % 50) for number in given]),
        }
    )


def test_a_stored_log_is_read_whole_and_right(spark: SparkSession, url: str) -> None:
    frame = spark.read.format("headwater").options(url=url, log="orders", splitBytes="2m").load()
    frame.createOrReplaceTempView("ev")

    assert frame.rdd.getNumPartitions() > 2
    row = spark.sql(
        "SELECT count(*) AS n, count(DISTINCT sequence_number) AS d, min(sequence_number) AS low, "
        "max(sequence_number) AS high, count(DISTINCT partition) AS parts, "
        "sum(CAST(data = repeat(id, 100) AND id = CAST(sequence_number AS STRING) AND size(tags) = 2 AS INT)) AS right "
        "FROM ev"
    ).first()
    assert row is not None
    assert row.asDict() == {"n": COUNT, "d": COUNT, "low": 1, "high": COUNT, "parts": 4, "right": COUNT}


def test_of_several_addresses_one_that_is_away_is_passed_over(spark: SparkSession, url: str) -> None:
    several = f"{refusing()},{url}"
    frame = spark.read.format("headwater").options(url=several, log="orders", splitBytes="2m").load()
    assert frame.count() == COUNT
    with BulkClient(url) as bulk:
        bulk.create_log("several")
        made = spark.createDataFrame([("A", b"1"), ("B", b"2")], "type string, data binary")
        made.write.format("headwater").mode("append").options(url=several, log="several").save()
        assert bulk.head("several").head == 2


def test_queries_partitions_and_pushed_filters_are_answered_by_the_stored_log(spark: SparkSession, url: str) -> None:
    def load(**options: str) -> DataFrame:
        return spark.read.format("headwater").options(url=url, log="orders", **options).load()

    assert numbers(load(query="type=T1 tag=order:6")) == list(range(6, COUNT + 1, 100))
    pushed = load(partitions="0,2", filterPushdown="true", columns="sequence_number,partition,type")
    rows = pushed.where("type = 'T1' AND sequence_number > 15000 AND partition = 2").collect()
    assert {row.partition for row in rows} == {2}
    with BulkClient(url) as bulk:
        ticket = Ticket("orders", after=15000, partition=2, query="type=T1", columns=("sequence_number",))
        expected = [number for got in bulk.read(ticket) for number in got["sequence_number"].to_pylist()]
    assert sorted(row.sequence_number for row in rows) == expected
    assert expected


def test_a_stream_outlives_the_bulk_process(
    spark: SparkSession, server: RunningServer, url: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    frame = spark.readStream.format("headwater").options(url=url, log="orders", maxEventsPerTrigger=6000).load()
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    killed: list[int] = []

    query = (
        frame.select("sequence_number")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(out)
    )
    while not query.recentProgress and query.isActive:
        query.awaitTermination(1)
    os.kill(pid := int(children.read_text().split()[0]), signal.SIGKILL)
    killed.append(pid)
    assert query.awaitTermination(120)

    assert killed
    assert numbers(spark.read.parquet(out)) == list(range(1, COUNT + 1))


def test_users_read_the_logs_that_they_may(spark: SparkSession, tmp_path: Path) -> None:
    added = headwater(
        "user", "add", "ann", "--grant", "append,read:orders", "--password-stdin", "--data", "data",
        cwd=tmp_path, stdin="secret-of-ann\n",
    )  # fmt: skip
    assert added.returncode == 0, added.stderr
    with RunningServer("--data", "data", "--log", "orders", "--log", "shop", *WITH_FLIGHT, cwd=tmp_path) as server:
        url = server.further_url("grpc")
        with BulkClient(url, user="ann", password="secret-of-ann") as ann:
            ann.append("orders", [batch(1, 100)])
        reader = spark.read.format("headwater").options(url=url, user="ann", retries="0")

        assert reader.options(log="*", password="secret-of-ann").load().count() == 100
        for log, password in (("shop", "secret-of-ann"), ("orders", "wrong-secret")):
            with pytest.raises(PySparkException, match=r"Forbidden|Unauthenticated") as raised:
                reader.options(log=log, password=password).load().collect()
            assert password not in str(raised.value)
