"""Archivers that are killed at any instant, again and again, while a real server's log is written and trimmed.

By day the archiver's steps are killed without Spark, as they start faster; by night (NIGHT=1) the pipeline on Spark is
too: once, or as often as HEADWATER_KILLS says; with 5 or more, two of them run at once.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headwater.client import RemoteLog, connect
from headwater.core import Event, LogSettings
from headwater.spark.archive.archiver import COMPONENT
from headwater.spark.archive.compaction import vacuum
from headwater.spark.archive.snapshot import snapshot
from headwater.spark.archive.state import is_archive

from ...night import IS_NIGHT, night
from ...server.running import RunningServer
from ..archive_tables import data_files
from ..processes import kill, start, wait_for

KILLS = int(os.environ.get("HEADWATER_KILLS", "1"))
KILLS_WITHOUT_SPARK = 5 if IS_NIGHT else 2

Launch = Callable[[bool], subprocess.Popen[bytes]]
"""Starts an archiver; the argument says whether it ends when all is archived."""


class World:
    """A server with a log that forgets what was acknowledged, and where its archive is to be."""

    def __init__(self, directory: Path, log: RemoteLog, bulk_url: str) -> None:
        self.directory, self.log, self.bulk_url = directory, log, bulk_url
        self.path = directory / "orders"
        self.output = directory / "output"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        self._processes.append(start(arguments, self.output))
        return self._processes[-1]

    def close(self) -> None:
        for process in self._processes:
            kill(process)

    def archived(self) -> int:
        return snapshot(self.path).archived if is_archive(self.path) else 0

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.directory.glob("data/logs/orders.*/log/*.log"))

    @contextmanager
    def writing(self, each: int, pause_s: float) -> Iterator[None]:
        """The log grows meanwhile."""
        is_over = threading.Event()

        def write() -> None:
            while not is_over.wait(pause_s):
                self.log.append([Event("T", os.urandom(100), (f"n:{index}",)) for index in range(each)])

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def check_all_is_there(self) -> None:
        """Every number once, none missing; no file that is not in the table; and the log has dropped all of it."""
        head = self.log.head()
        taken = snapshot(self.path)
        tables = [pq.read_table(file.path, columns=["sequence_number"], partitioning=None) for file in taken.files]
        numbers = [number for table in tables for number in table["sequence_number"].to_pylist()]
        assert len(numbers) == len(set(numbers)) == taken.events == taken.archived == head
        assert (min(numbers), max(numbers)) == (1, head)
        (consumer,) = self.log.consumers()
        assert (consumer.component, consumer.acknowledged) == (COMPONENT, head)
        assert self.log.info().first_retained == head + 1
        vacuum(self.path, hours=0)
        assert data_files(self.path) == sorted(file.path for file in taken.files)


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    serving = ("--data", "data", "--log", "orders", "--flight-enabled", "true", "--flight-port", "0")
    with RunningServer(*serving, cwd=tmp_path) as server, connect(server.url) as client:
        client.change("orders", LogSettings(retention_until_acknowledged=True))
        world = World(tmp_path, client.log("orders"), server.further_url("grpc"))
        try:
            yield world
        except BaseException:
            print(world.output.read_text() if world.output.exists() else "no output", server.errors)
            raise
        finally:
            world.close()


def test_archiver_that_is_killed_at_any_instant_has_every_event_once(world):
    def launch(is_once: bool) -> subprocess.Popen[bytes]:
        once = ["once"] if is_once else []
        return world.start("-m", "tests.spark.archiving", world.bulk_url, str(world.path), *once)

    with world.writing(500, 0.02):
        for _ in range(KILLS_WITHOUT_SPARK):
            before = world.archived()
            process = launch(False)
            wait_for(lambda before=before: world.archived() > before, process)
            time.sleep(random.uniform(0, 0.3))
            kill(process)
        older, newer = launch(False), launch(False)
        wait_for(lambda: older.poll() is not None or newer.poll() is not None)
        assert re.search(r"another archiver has taken over|is at epoch", world.output.read_text())
        for process in (older, newer):
            kill(process)
    assert launch(True).wait(120) == 0
    world.check_all_is_there()
    wait_for(lambda: "00000000000000000001.log" not in world.segments())


@night
@pytest.mark.timeout(300 + 120 * KILLS)
def test_pipeline_that_is_killed_at_any_instant_has_every_event_once(world, tmp_path):
    checkpoints = tmp_path / "checkpoints"
    world.log.append([Event("T", b"{}") for _ in range(1000)])

    def launch(is_once: bool) -> subprocess.Popen[bytes]:
        return world.start(
            "-m", "headwater.spark.jobs", "archive", "--log", "orders", "--table", str(world.path),
            "--url", world.bulk_url, "--trim", "--checkpoint", str(checkpoints), "--every-s", "0",
            "--master", "local[2]", "--conf", "spark.driver.memory=1g",
            *(["--once"] if is_once else ["--follow", "--events-per-batch", "2000"]),
        )  # fmt: skip

    with world.writing(100, 0.2):
        for number in range(KILLS):
            before = world.archived()
            process = launch(False)
            wait_for(lambda before=before: world.archived() > before, process, 240)
            time.sleep(random.uniform(0, 2))
            if number == 0:
                shutil.rmtree(checkpoints)
            kill(process)
        if KILLS > 1:
            fence_one_of_two(launch, world)
    assert launch(True).wait(240) == 0
    world.check_all_is_there()


def fence_one_of_two(launch: Launch, world: World) -> None:
    """Two pipelines at once: the one that was started first ends with an error, the other one goes on."""
    older = launch(False)
    before = world.archived()
    wait_for(lambda: world.archived() > before, older, 240)
    newer = launch(False)
    assert older.wait(240) == 1
    before = world.archived()
    wait_for(lambda: world.archived() > before, newer, 240)
    kill(newer)
