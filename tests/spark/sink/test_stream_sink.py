"""Streams into a log: every event once, whenever the driver dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.core import Event
from headwater.core.errors import InvalidInput
from headwater.core.local import LocalLog
from headwater.core.mark import Committed
from headwater.spark.pipeline.failures import cause_of
from headwater.spark.pipeline.run import Ending, Run, Server
from headwater.storage.memory import MemoryStore
from tests.flight.memory_backend import MemoryBackend, serving
from tests.night import IS_NIGHT

from ..conftest import SOURCES, fill

Stream = Callable[..., DataFrame]


@pytest.fixture
def stream(spark: SparkSession, orders: LocalLog, url: str) -> Stream:
    """`stream(columns="type,data")`: the log `orders`, 40 events in a batch."""

    def read(**options: str) -> DataFrame:
        given = {"url": url, "log": "orders", "maxEventsPerTrigger": "40", **options}
        return spark.readStream.format("headwater").options(**given).load()

    return read


@pytest.fixture
def target(store: MemoryStore) -> LocalLog:
    return store.create("target")


def through(frame: DataFrame, url: str, checkpoint: Path, **options: str) -> StreamingQuery:
    """Write all that is there to the log `target`."""
    writer = frame.writeStream.format("headwater").options(url=url, log="target", **options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    return query


def test_a_stream_goes_on_where_its_checkpoint_says(
    stream: Stream, orders: LocalLog, target: LocalLog, url: str, tmp_path: Path
) -> None:
    through(stream(), url, tmp_path / "checkpoint")
    assert target.head() == 100
    fill(orders, 30)
    through(stream(), url, tmp_path / "checkpoint")
    through(stream(), url, tmp_path / "checkpoint")
    assert [int(event.id) for event in target.read()] == list(range(1, 131))


def test_a_batch_that_spark_repeats_is_not_appended_again(
    stream: Stream, target: LocalLog, url: str, tmp_path: Path
) -> None:
    frame = stream(columns="type,data")  # without ids, by which the log would know the events
    through(frame, url, tmp_path / "checkpoint")
    for file in (tmp_path / "checkpoint" / "commits").glob("*2*"):  # the newest, and its checksum
        file.unlink()  # as if Spark had died before it wrote down that the batch is done
    through(frame, url, tmp_path / "checkpoint")
    assert target.head() == 100


def test_a_new_checkpoint_is_another_writer_even_under_one_name(
    stream: Stream, target: LocalLog, url: str, tmp_path: Path
) -> None:
    frame = stream(columns="type,data")
    for checkpoint in ("first", "second"):
        through(frame, url, tmp_path / checkpoint, writerId="copier")
    assert target.head() == 200


def test_batch_writes_inside_foreach_batch_are_done_once_with_a_writer(
    stream: Stream, target: LocalLog, url: str, tmp_path: Path
) -> None:
    def write_twice(frame: DataFrame, batch: int) -> None:
        options = {"url": url, "log": "target", "writerId": "each", "batchId": str(batch)}
        for _ in range(2):
            frame.write.format("headwater").mode("append").options(**options).save()

    writer = stream(columns="type,data").writeStream.foreachBatch(write_twice)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert target.head() == 100


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"condition": '{"fail_if_events_match": "type=T"}'}, "option condition: only a batch write supports it"),
        ({"batchId": "1"}, "option batchId: only a batch write supports it"),
        ({"writer": "x"}, "option writer: a streaming write has no such option; did you mean writerId?"),
    ],
)
def test_options_that_a_stream_cannot_have_are_named(
    stream: Stream, target: LocalLog, url: str, tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(Exception) as caught:
        through(stream(), url, tmp_path, **options)
    assert cause_of(caught.value).startswith(problem)


def test_the_complete_mode_is_refused(stream: Stream, target: LocalLog, url: str, tmp_path: Path) -> None:
    counts = stream().groupBy("type").count().selectExpr("type", "cast(count as string) as data")
    writer = counts.writeStream.format("headwater").options(url=url, log="target").outputMode("complete")
    with pytest.raises(Exception) as caught:
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)
    assert cause_of(caught.value) == "outputMode: a log only supports append or update, not complete"


class FailingBackend(MemoryBackend):
    """Answers its first commit with an error, before it does it or afterwards."""

    def __init__(self, store: MemoryStore, is_done: bool) -> None:
        super().__init__(store)
        self.is_done = is_done
        self.commits = 0

    def commit(self, *arguments: Any, **named: Any) -> Committed:
        """See MemoryBackend."""
        self.commits += 1
        if self.commits > 1:
            return super().commit(*arguments, **named)
        if self.is_done:
            super().commit(*arguments, **named)
        raise InvalidInput("no commit now", "batch")


@pytest.mark.parametrize("is_done", [False, True], ids=["only staged", "committed"])
def test_a_batch_whose_commit_failed_is_there_once_after_the_next_run(
    stream: Stream, store: MemoryStore, orders: LocalLog, target: LocalLog, tmp_path: Path, is_done: bool
) -> None:
    backend = FailingBackend(store, is_done)
    with serving(backend) as server:
        url = f"grpc://127.0.0.1:{server.port}"
        frame = stream(columns="type,data", maxEventsPerTrigger="100")
        with pytest.raises(Exception) as caught:
            through(frame, url, tmp_path / "checkpoint")
        assert "no commit now" in cause_of(caught.value)
        through(frame, url, tmp_path / "checkpoint")
    assert backend.commits == 2
    assert [event.data for event in target.read()] == [event.data for event in orders.read()]


class DeadlyBackend(MemoryBackend):
    """Kills whoever asks for the commits that it is told to, before it does them, or between doing and answering."""

    def __init__(self, store: MemoryStore, deaths: Sequence[tuple[int, bool]]) -> None:
        super().__init__(store)
        self.deaths = list(deaths)
        """(so many commits before it, whether the commit is done)."""
        self.commits = 0
        self.victim: subprocess.Popen[bytes] | None = None

    def commit(self, *arguments: Any, **named: Any) -> Committed:
        """See MemoryBackend."""
        self.commits += 1
        if not self.deaths or self.commits < self.deaths[0][0]:
            return super().commit(*arguments, **named)
        _, is_done = self.deaths.pop(0)
        done = super().commit(*arguments, **named) if is_done else Committed(0, 0, 0)
        assert self.victim is not None
        os.killpg(self.victim.pid, signal.SIGKILL)
        self.victim.wait(30)
        return done  # to nobody


DRIVER = """
import sys
from headwater.spark import session
url, checkpoint, events = sys.argv[1:]
spark = session(master="local[2]", options={"spark.driver.memory": "512m", "spark.log.level": "OFF"})
source = {"url": url, "log": "orders", "columns": "type,data", "maxEventsPerTrigger": events, "minPartitions": "2"}
events = spark.readStream.format("headwater").options(**source).load()
writer = events.writeStream.format("headwater").options(url=url, log="target", checkpointLocation=checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
"""


DEATHS, BATCH = ([(1, False), (3, True)], 20) if IS_NIGHT else ([(1, True)], 50)


@pytest.mark.timeout(600)
def test_every_event_is_there_once_though_the_driver_is_killed_again_and_again(
    stream: Stream, store: MemoryStore, orders: LocalLog, target: LocalLog, tmp_path: Path
) -> None:
    """Between a commit and its answer; by night, before, when all is staged and nothing committed, too."""
    backend, checkpoint = DeadlyBackend(store, DEATHS), tmp_path / "checkpoint"
    with serving(backend) as server, (tmp_path / "said").open("wb") as said:
        url = f"grpc://127.0.0.1:{server.port}"

        def drive() -> int:
            command = [sys.executable, "-c", DRIVER, url, str(checkpoint), str(BATCH)]
            environment = os.environ | {"PYTHONPATH": str(SOURCES)}
            backend.victim = subprocess.Popen(
                command, env=environment, start_new_session=True, stdout=said, stderr=subprocess.STDOUT
            )
            return backend.victim.wait(200)

        while backend.deaths:
            assert drive() == -signal.SIGKILL, (tmp_path / "said").read_text()
        if IS_NIGHT:
            assert drive() == 0, (tmp_path / "said").read_text()
        else:
            frame = stream(url=url, columns="type,data", maxEventsPerTrigger=str(BATCH), minPartitions="2")
            through(frame, url, checkpoint)
    assert [event.data for event in target.read()] == [event.data for event in orders.read()]


def test_the_pipeline_copy_fills_a_log_and_tells_what_it_did(
    spark: SparkSession, orders: LocalLog, target: LocalLog, url: str, tmp_path: Path
) -> None:
    from headwater.spark.jobs.copy import Copy, run

    options = Copy(source="orders", target="target", query="type=Paid", events_per_batch=30)
    with Run("copy", server=Server(url), checkpoint=str(tmp_path)) as this_run:
        summary = run(spark, options, this_run)
    assert (summary.ending, summary.events, summary.behind) == (Ending.DONE, 33, 0)
    assert [event.event for event in target.read()] == [event.event for event in orders.read() if event.type == "Paid"]


@pytest.fixture(autouse=True)
def _no_query_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def test_a_stream_goes_on_when_the_server_was_away(
    spark: SparkSession, store: MemoryStore, orders: LocalLog, target: LocalLog, tmp_path: Path
) -> None:
    backend = MemoryBackend(store)
    with serving(backend) as server:
        port = server.port
    location = f"grpc://127.0.0.1:{port}"
    frame = spark.createDataFrame([(Event("T").type, "x")], "type string, data string")
    options = {"url": location, "log": "target", "retries": "30"}

    def come_back() -> None:
        time.sleep(1)
        with serving(backend, location):
            ended.wait(60)

    ended = threading.Event()
    thread = threading.Thread(target=come_back)
    thread.start()
    try:
        frame.write.format("headwater").mode("append").options(**options).save()
    finally:
        ended.set()
        thread.join()
    assert target.head() == 1
