"""The pipeline `archive` with several logs in one run."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.core.errors import LogNotFound
from headwater.spark.archive.archiver import COMPONENT
from headwater.spark.archive.errors import EventsMissing
from headwater.spark.archive.snapshot import snapshot
from headwater.spark.pipeline.progress import BatchDone
from headwater.spark.pipeline.run import Ending, Run, Server
from headwater.spark.pipelines import load
from headwater.storage.memory import MemoryStore

from ..conftest import fill

JOB = load("archive")


class Display:
    """Remembers what is shown, and calls `then` at each batch."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.said: list[str] = []
        self.has_archived = {log: threading.Event() for log in ("orders", "shop-1", "shop-2")}

    def show(self, done: BatchDone) -> None:
        self.done.append((done.pipeline, done.events))
        self.has_archived[done.pipeline.removeprefix("archive ")].set()

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        pass


def archived(tables: Path) -> dict[str, int]:
    return {path.name: snapshot(path).archived for path in sorted(tables.iterdir())}


def test_several_logs_go_into_a_table_each_and_the_next_run_finds_logs_that_are_new(
    spark: SparkSession, store: MemoryStore, url: str, tmp_path: Path
) -> None:
    fill(orders := store.create("orders"), 100)
    fill(store.create("shop-1"), 20)
    fill(store.create("others"), 10)
    options = JOB.options(log=("orders", "shop-*"), tables=str(tmp_path / "tables"), events_per_batch=60)
    plan = JOB.plan(options, Run("archive", server=Server(url)))
    assert [line for line in plan if line.startswith("table ")] == [
        f"table {tmp_path}/tables/{log}: will be created, starting at 1" for log in ("orders", "shop-1")
    ]
    assert not (tmp_path / "tables").exists()

    display = Display()
    checkpoints = tmp_path / "checkpoints"
    with Run("archive", server=Server(url), checkpoint=str(checkpoints), progress=display) as run:
        done = JOB.go(spark, options, run)
    assert run.checkpoint == str(checkpoints), "for another try, too"
    assert list(checkpoints.iterdir()) == []
    assert (done.ending, done.events, done.behind) == (Ending.DONE, 120, 0)
    assert done.details == {"tables": str(tmp_path / "tables"), "archived": {"orders": 100, "shop-1": 20}}
    assert display.done == [("archive orders", 60), ("archive orders", 40), ("archive shop-1", 20)]
    assert archived(tmp_path / "tables") == {"orders": 100, "shop-1": 20}
    assert orders.consumers()[0].acknowledged == 100

    fill(orders, 10)
    fill(store.create("shop-2"), 30)
    with Run("archive", server=Server(url)) as run:
        assert JOB.go(spark, options, run).events == 40
    assert archived(tmp_path / "tables") == {"orders": 110, "shop-1": 20, "shop-2": 30}


def test_a_run_that_follows_takes_in_logs_that_appear_and_stops_between_batches(
    spark: SparkSession, store: MemoryStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.archive.archiver.HEARTBEAT_S", 0.2)
    fill(orders := store.create("orders"), 20)
    fill(store.create("shop-1"), 20)
    options = JOB.options(log=("orders", "shop-*"), tables=str(tmp_path / "tables"), compact=True)
    display = Display()

    def live(run: Run) -> None:
        display.has_archived["shop-1"].wait(100)
        fill(orders, 10)
        fill(store.create("shop-2"), 10)
        display.has_archived["shop-2"].wait(100)
        run.stop.ask()

    with Run("archive", server=Server(url), is_once=False, every_s=0.05, progress=display) as run:
        (thread := threading.Thread(target=live, args=(run,))).start()
        done = JOB.go(spark, options, run)
        thread.join()
    assert (done.ending, done.behind) == (Ending.STOPPED, 0)
    assert archived(tmp_path / "tables") == {"orders": 30, "shop-1": 20, "shop-2": 10}
    acknowledged = {log: store.open(log).consumers()[0].acknowledged for log in ("orders", "shop-1", "shop-2")}
    assert acknowledged == {"orders": 30, "shop-1": 20, "shop-2": 10}


def test_a_log_that_cannot_be_archived_ends_the_run_when_the_others_had_their_turn(
    spark: SparkSession, store: MemoryStore, url: str, tmp_path: Path
) -> None:
    fill(orders := store.create("orders"), 20)
    options = JOB.options(log=("gone", "orders", "shop-1"), tables=str(tmp_path / "tables"))
    with Run("archive", server=Server(url)) as run, pytest.raises(LogNotFound, match="gone"):
        JOB.go(spark, options, run)
    assert archived(tmp_path / "tables") == {"orders": 20}

    orders.unregister_consumer("spark", COMPONENT)
    fill(orders, 20)
    orders.trim(31)
    fill(store.create("shop-1"), 10)
    options = JOB.options(log=("orders", "gone", "shop-1"), tables=str(tmp_path / "tables"))
    display = Display()
    with Run("archive", server=Server(url), is_once=False, progress=display) as run, pytest.raises(EventsMissing):
        JOB.go(spark, options, run)
    assert [line.partition(":")[0] for line in display.said] == ["log 'orders'", "log 'gone'"]
    assert archived(tmp_path / "tables") == {"orders": 20, "shop-1": 10}
