"""Archivers that are killed at any instant, again and again, while the log is written and trimmed behind them.

With HEADWATER_KILLS=5 (or more) the pipeline on Spark is killed so often; without, it is killed once.
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

from headwater.core import Event
from headwater.core.local import LocalLog
from headwater.spark.archive.compaction import vacuum
from headwater.spark.archive.snapshot import snapshot
from headwater.spark.archive.state import is_archive
from headwater.storage.memory import MemoryStore

from ..flight.memory_backend import bulk_server
from .archive_tables import data_files
from .processes import kill, start, wait_for

KILLS = int(os.environ.get("HEADWATER_KILLS", "1"))

Launch = Callable[[bool], subprocess.Popen[bytes]]
"""Starts an archiver; the argument says whether it ends when all is archived."""


@contextmanager
def writing(log: LocalLog, each: int, pause_s: float) -> Iterator[None]:
    """The log grows meanwhile."""
    is_over = threading.Event()

    def write() -> None:
        while not is_over.wait(pause_s):
            log.append([Event("T", b'{"some": "data"}' * 4, (f"n:{index}",)) for index in range(each)])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def archived(path: Path) -> int:
    return snapshot(path).archived if is_archive(path) else 0


def check_all_is_there(path: Path, log: LocalLog) -> None:
    """Every number once, none missing; nothing on the disk that is not in the table; and the log trimmed all of it."""
    head = log.head()
    its = snapshot(path)
    numbers = [
        n for file in its.files for n in pq.read_table(file.path, partitioning=None)["sequence_number"].to_pylist()
    ]
    assert len(numbers) == len(set(numbers)) == its.events == its.archived == head
    assert (min(numbers), max(numbers)) == (1, head)
    (consumer,) = log.consumers()
    assert (consumer.acknowledged, log.info().first_retained) == (head, head + 1)
    vacuum(path, hours=0)
    assert data_files(path) == sorted(file.path for file in its.files)


def test_archiver_that_is_killed_at_any_instant_has_every_event_once(tmp_path):
    path = tmp_path / "orders"
    store = MemoryStore()
    log = store.create("orders")
    with bulk_server(store) as url:

        def launch(is_once: bool) -> subprocess.Popen[bytes]:
            arguments = ["-m", "tests.spark.archiving", url, str(path), *(["once"] if is_once else [])]
            return start(arguments, tmp_path / "output")

        with writing(log, 500, 0.02):
            for _ in range(5):
                before = archived(path)
                process = launch(False)
                wait_for(lambda before=before: archived(path) > before, process)
                time.sleep(random.uniform(0, 0.3))
                kill(process)
            older, newer = launch(False), launch(False)
            wait_for(lambda: older.poll() is not None or newer.poll() is not None)
            assert re.search(rb"another archiver has taken over|is at epoch", (tmp_path / "output").read_bytes())
            for process in (older, newer):
                kill(process)
        assert launch(True).wait(120) == 0
        check_all_is_there(path, log)


@pytest.mark.timeout(240 + 90 * KILLS)
def test_pipeline_that_is_killed_at_any_instant_has_every_event_once(tmp_path):
    path, checkpoints = tmp_path / "orders", tmp_path / "checkpoints"
    store = MemoryStore()
    log = store.create("orders")
    log.append([Event("T", b"{}") for _ in range(1000)])
    with bulk_server(store) as url:

        def launch(is_once: bool) -> subprocess.Popen[bytes]:
            arguments = [
                "-m", "headwater.spark.jobs", "archive", "--log", "orders", "--table", str(path), "--url", url,
                "--trim", "--events-per-batch", "2000", "--checkpoint", str(checkpoints), "--master", "local[2]",
                "--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=2",
                "--once" if is_once else "--follow", "--every-s", "0",
            ]  # fmt: skip
            return start(arguments, tmp_path / "output")

        try:
            with writing(log, 200, 0.1):
                for number in range(KILLS):
                    before = archived(path)
                    process = launch(False)
                    wait_for(lambda before=before: archived(path) > before, process, 180)
                    time.sleep(random.uniform(0, 2))
                    if number == 0:
                        shutil.rmtree(checkpoints)
                    kill(process)
                if KILLS > 1:
                    fence_one_of_two(launch, path)
            assert launch(True).wait(180) == 0
        except AssertionError:
            print((tmp_path / "output").read_text())
            raise
        check_all_is_there(path, log)


def fence_one_of_two(launch: Launch, path: Path) -> None:
    """Two pipelines at once: the one that was started first ends with an error, the other one goes on."""
    older = launch(False)
    before = archived(path)
    wait_for(lambda: archived(path) > before, older, 180)
    newer = launch(False)
    assert older.wait(180) == 1
    before = archived(path)
    wait_for(lambda: archived(path) > before, newer, 180)
    kill(newer)
