"""The archive on a cluster: a standalone master and worker, both from PySpark's wheel, and a driver apart from them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

from headwater.client import connect
from headwater.core import Event
from headwater.spark import java_home
from headwater.spark.archive.snapshot import snapshot
from headwater.spark.archive.state import is_archive

from ...night import night
from ...server.running import RunningServer
from ..processes import ROOT, SOURCES, descendants, kill, start, wait_for

SPARK_HOME = Path(pyspark.__file__).parent
MASTER = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
WORKER = re.compile(r"Successfully registered with master")


def spark_class(output: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A daemon of Spark, as `sbin` would start it, if the wheel had that."""
    environment = os.environ | {
        "SPARK_HOME": str(SPARK_HOME),
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "300m",
        "PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}",
    }
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with output.open("ab") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)


class Cluster(NamedTuple):
    """A master that has a worker with two cores."""

    url: str
    worker: int
    """Its process, which starts the executors."""

    def executors(self) -> list[int]:
        """Their processes."""
        found = []
        for pid in descendants(self.worker):
            with contextlib.suppress(OSError):
                if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    masters, workers = tmp_path / "master", tmp_path / "worker"
    loopback = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    processes = [spark_class(masters, "master.Master", *loopback)]
    try:
        wait_for(lambda: MASTER.search(masters.read_text()), processes[0])
        found = MASTER.search(masters.read_text())
        assert found is not None
        work = ("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        processes.append(spark_class(workers, "worker.Worker", *loopback, *work, found[1]))
        wait_for(lambda: WORKER.search(workers.read_text()), processes[1])
        yield Cluster(found[1], processes[1].pid)
    finally:
        for process in processes:
            kill(process)


@night
@pytest.mark.timeout(600)
def test_archive_runs_on_a_standalone_cluster_whose_executors_are_killed(cluster, tmp_path):
    serving = ("--data", "data", "--log", "orders", "--flight-enabled", "true", "--flight-port", "0")
    with RunningServer(*serving, cwd=tmp_path) as server, connect(server.url) as client:
        log = client.log("orders")
        for _ in range(20):
            log.append([Event("T", b'{"n": 1}', (f"n:{index}",)) for index in range(1000)])
        output = tmp_path / "output"
        driver = start(
            [
                "-m", "headwater.spark.jobs", "archive", "--log", "orders", "--table", str(tmp_path / "orders"),
                "--url", server.further_url("grpc"), "--master", cluster.url, "--once", "--events-per-batch", "4000",
                "--conf", "spark.driver.memory=512m", "--conf", "spark.executor.memory=512m",
                "--conf", "spark.driver.host=127.0.0.1",
            ],
            output,
        )  # fmt: skip
        try:
            wait_for(lambda: is_archive(tmp_path / "orders") and snapshot(tmp_path / "orders").archived >= 4000, driver)
            killed = cluster.executors()
            for pid in killed:
                for each in (pid, *descendants(pid)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
            assert driver.wait(240) == 0, output.read_text()
            assert killed and not set(killed) & set(cluster.executors())
        finally:
            kill(driver)
        taken = snapshot(tmp_path / "orders")
        assert (taken.archived, taken.events, len(taken.files) >= 10) == (20_000, 20_000, True)
        assert [consumer.acknowledged for consumer in log.consumers()] == [20_000]
        assert "20,000 events in 5 batches" in output.read_text()
