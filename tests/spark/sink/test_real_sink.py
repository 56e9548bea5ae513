"""Writes to a real server: its staging, its table of writers, and its death."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.flight.client import BulkClient, Ticket
from headwater.spark.pipeline.run import Run
from headwater.storage.segments.segment import Segment, id_in, segment_paths
from tests.night import IS_NIGHT
from tests.ports import free_ports
from tests.server.running import RunningServer
from tests.server.starting import PROGRAM

COUNT, DEATHS_AFTER_S = (6000, (0.0, 0.2, 0.5)) if IS_NIGHT else (2000, (0.2,))


@pytest.mark.timeout(600)
def test_every_event_is_there_once_though_the_server_is_killed_again_and_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    arguments = ("--data", "data", "--log", "orders", "--log", "target", "--flight-enabled", "true",
                 "--flight-port", str(port))  # fmt: skip
    servers = [RunningServer(*arguments, cwd=tmp_path, program=PROGRAM)]
    url = f"grpc://127.0.0.1:{port}"
    try:
        servers[0].further_url("grpc")
        with BulkClient(url) as bulk:
            bulk.append("orders", pa.table({"type": ["T"] * COUNT, "data": [str(n) for n in range(COUNT)]}))

        deaths = iter(DEATHS_AFTER_S)

        def kill() -> None:
            servers[-1].__exit__()
            servers.append(RunningServer(*arguments, cwd=tmp_path, program=PROGRAM))

        class Killer:
            """Kills the server some time after the end of a batch, for as often as there are deaths."""

            def __init__(self) -> None:
                self.timer: threading.Timer | None = None

            def show(self, done: object) -> None:
                if (self.timer is None or not self.timer.is_alive()) and (after_s := next(deaths, None)) is not None:
                    self.timer = threading.Timer(after_s, kill)
                    self.timer.start()

            def say(self, text: str) -> None:
                pass

            def close(self) -> None:
                if self.timer is not None:
                    self.timer.join()

        source = {"url": url, "log": "orders", "columns": "type,data", "maxEventsPerTrigger": "500", "retries": "100"}
        events = spark.readStream.format("headwater").options(**source).load()
        with Run("copy", checkpoint=str(tmp_path / "checkpoint"), progress=Killer()) as run:
            writer = events.writeStream.format("headwater").options(url=url, log="target", retries="100")
            run.follow(writer)
        assert len(servers) == 1 + len(DEATHS_AFTER_S)
        with BulkClient(url) as bulk:
            found = [row for batch in bulk.read(Ticket("target")) for row in batch["data"].to_pylist()]
        assert list(map(int, found)) == list(range(COUNT))
    finally:
        servers[-1].__exit__()


@pytest.mark.timeout(300)
def test_what_a_task_writes_much_of_becomes_segments_as_it_was_staged(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 60_000, numPartitions=2).selectExpr("'T' as type", "repeat(cast(id as string), 200) as data")
    with RunningServer("--data", "data", "--log", "target", "--flight-enabled", "true", "--flight-port", "0",
                       cwd=tmp_path) as server:  # fmt: skip
        rows.write.format("headwater").options(url=server.further_url("grpc"), log="target").mode("append").save()
        [directory] = (tmp_path / "data" / "logs").glob("target.*")
        log_id = id_in(segment_paths(directory / "log")[0])
        segments = [Segment(path, log_id) for path in segment_paths(directory / "log")]
    assert sum(segment.whole_upto > 0 for segment in segments) >= 2, "of each task"
