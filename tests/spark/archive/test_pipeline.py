"""The pipeline `archive` in Spark: batches, plans, stops, fences, and what its options say when they are wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headwater.core import Event, LogSettings
from headwater.core.errors import ConsumerFenced, InvalidInput, InvalidLogName, LogNotFound
from headwater.core.local import LocalLog
from headwater.spark import archive
from headwater.spark.archive.archiver import COMPONENT
from headwater.spark.archive.errors import ArchiveFenced
from headwater.spark.archive.snapshot import snapshot
from headwater.spark.archive.table import ArchiveTable
from headwater.spark.pipeline.progress import BatchDone
from headwater.spark.pipeline.run import Ending, Run, Server, Summary
from headwater.spark.pipelines import load
from headwater.storage.memory import MemoryStore

from ...flight.memory_backend import bulk_server
from ...parquet_damage import columns_of, flip_in
from ..archive_tables import data_files
from ..conftest import fill, numbers

JOB = load("archive")


@pytest.fixture
def log(store: MemoryStore) -> LocalLog:
    return store.create("orders", LogSettings(partitions=2, retention_until_acknowledged=True))


@pytest.fixture
def run(spark: SparkSession, url: str, tmp_path) -> Callable[..., Summary]:
    """`run(events_per_batch=10)`: archive what is there."""

    def once(**options: object) -> Summary:
        with Run("archive", server=Server(url)) as this_run:
            return JOB.run(spark, JOB.options(log="orders", table=str(tmp_path / "orders"), **options), this_run)

    return once


class Watching:
    """A display that tells when a batch is done."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.has_done_one = threading.Event()

    def show(self, done: BatchDone) -> None:
        self.has_done_one.set()

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self) -> None:
        pass


def test_log_goes_into_the_table_batch_by_batch_and_the_next_run_goes_on(spark, log, run, tmp_path):
    fill(log, 100)
    done = run(events_per_batch=30)
    assert (done.ending, done.events, done.batches) == (Ending.DONE, 100, 4)
    assert (done.details["archived"], done.details["acknowledged"]) == (100, 100)
    files = snapshot(tmp_path / "orders").files
    assert {(file.type_min, file.type_max) for file in files} == {("Paid", "Placed")}, "as Spark wrote it"
    metrics = DeltaTable(tmp_path / "orders").history(1)[0]["operationMetrics"]
    assert metrics["numOutputRows"] == "10", "of the last batch"
    assert log.trim(101) == 101
    fill(log, 50)
    assert run().events == 50
    assert numbers(archive.read(spark, tmp_path / "orders")) == list(range(1, 151))
    assert data_files(tmp_path) == sorted(file.path for file in snapshot(tmp_path / "orders").files)
    assert run().events == 0
    assert list((tmp_path / "orders" / "_checkpoints").iterdir()) == []


def test_every_column_comes_back_as_it_was(spark, log, run, load, tmp_path):
    fill(log, 20)
    log.append([Event("amqp", b"\x00Sw@", encoding=1), Event("x", b"\xff", envelope=b"\0Su\xa0\1", group_key="ä")])
    run()
    before = [row.asDict() for row in load(log="orders").orderBy("sequence_number").collect()]
    after = archive.read(spark, tmp_path / "orders").orderBy("sequence_number").drop("date").collect()
    assert [row.asDict() for row in after] == before


def test_spark_writes_checksums_and_reads_no_flipped_bit(spark, log, run, tmp_path):
    fill(log, 100)
    run()
    for file in map(Path, (file.path for file in snapshot(tmp_path / "orders").files)):
        whole = file.read_bytes()
        for column in columns_of(file):
            flip_in(file, column)
            with pytest.raises(OSError, match="checksum"):
                pq.read_table(file, partitioning=None, page_checksum_verification=True)
            file.write_bytes(whole)
        flip_in(file, "data")
    with pytest.raises(Exception, match=r"read.* file .*orders/batch-.*\.parquet"):
        archive.read(spark, tmp_path / "orders").collect()


def test_events_lie_under_the_utc_date_on_which_they_were_recorded(spark, tmp_path):
    """Also where the session's time zone is another one, just before midnight and just after."""
    midnight = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp() * 1000)
    now = [midnight - 1]
    store = MemoryStore(clock=lambda: now[0])
    log = store.create("orders")
    fill(log, 10)
    now[0] = midnight
    fill(log, 10)
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        with bulk_server(store) as url, Run("archive", server=Server(url)) as this_run:
            JOB.run(spark, JOB.options(log="orders", table=str(tmp_path / "orders")), this_run)
        days = {str(file.date): (file.first, file.last) for file in snapshot(tmp_path / "orders").files}
        assert days == {"2026-11-20": (1, 10), "2026-11-21": (11, 20)}
        first = archive.read(spark, tmp_path / "orders", before=datetime(2026, 11, 21, tzinfo=UTC).date())
        assert numbers(first) == list(range(1, 11))
        assert {str(row.date) for row in first.select("date").collect()} == {"2026-11-20"}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_archive_of_an_empty_log_is_an_empty_table(spark, log, run, tmp_path):
    assert run().events == 0
    assert archive.read(spark, tmp_path / "orders").count() == 0
    assert log.consumer("spark", COMPONENT) is not None


def test_read_takes_a_range_of_numbers_and_an_older_version(spark, log, run, tmp_path):
    fill(log, 100)
    run(events_per_batch=50)
    newest = snapshot(tmp_path / "orders").version
    assert numbers(archive.read(spark, tmp_path / "orders", after=45, upto=55)) == list(range(46, 56))
    assert numbers(archive.read(spark, tmp_path / "orders", version=newest - 1)) == list(range(1, 51))


def test_views_show_events_json_tags_types_and_days(spark, log, run, tmp_path):
    fill(log, 21)
    log.append([Event("Odd", b"not json", ("bare", "a:b:c"))])
    run()
    assert archive.views(spark, tmp_path / "orders") == ["orders", "orders_tags", "orders_types", "orders_days"]
    found = spark.sql("SELECT sum(json:n::int) AS total, count(json) AS parsed, count(1) AS events FROM orders").first()
    assert (found.total, found.parsed, found.events) == (231, 21, 22)
    tags = spark.sql("SELECT key, value FROM orders_tags WHERE sequence_number = 22 ORDER BY key").collect()
    assert [tuple(row) for row in tags] == [("a", "b:c"), ("bare", None)]
    (types,) = spark.sql("SELECT events, first_number, last_number FROM orders_types WHERE type = 'Paid'").collect()
    assert tuple(types) == (7, 3, 21)
    assert spark.sql("SELECT sum(events) FROM orders_days").first()[0] == 22
    assert archive.views(spark, tmp_path / "orders", "other")[0] == "other"
    with pytest.raises(InvalidInput, match="no digit first"):
        archive.views(spark, tmp_path / "orders", "1st")


def test_compaction_changes_no_event_in_spark(spark, log, run, tmp_path):
    fill(log, 100)
    run(events_per_batch=20)
    before = archive.read(spark, tmp_path / "orders").orderBy("sequence_number").collect()
    done = archive.compact(tmp_path / "orders", before=datetime(2100, 1, 1).date())
    assert done.events == 100 and done.files_before > done.files_after
    assert archive.read(spark, tmp_path / "orders").orderBy("sequence_number").collect() == before


def test_following_archive_stops_between_two_batches_when_it_is_asked_to(spark, log, url, tmp_path):
    fill(log, 100)
    display = Watching()
    options = JOB.options(log="orders", table=str(tmp_path / "orders"), events_per_batch=20, compact=True)
    with Run("archive", server=Server(url), is_once=False, every_s=0, progress=display) as this_run:
        threading.Thread(target=lambda: (display.has_done_one.wait(60), this_run.stop.ask())).start()
        done = JOB.run(spark, options, this_run)
    assert done.ending is Ending.STOPPED
    archived = snapshot(tmp_path / "orders").archived
    assert log.consumers()[0].acknowledged == archived == done.details["archived"] >= 20


def test_following_archive_that_is_replaced_ends_with_an_error_that_says_so(spark, log, url, tmp_path):
    fill(log, 20)
    display = Watching()

    def take_over() -> None:
        display.has_done_one.wait(60)
        taken = log.register_consumer("spark", COMPONENT)
        ArchiveTable(tmp_path / "orders").claim((taken.registered_at << 21) + taken.epoch)
        fill(log, 20)

    options = JOB.options(log="orders", table=str(tmp_path / "orders"))
    threading.Thread(target=take_over).start()
    with (
        Run("archive", server=Server(url), is_once=False, every_s=0, progress=display) as this_run,
        pytest.raises((ArchiveFenced, ConsumerFenced)),
    ):
        JOB.run(spark, options, this_run)
    assert snapshot(tmp_path / "orders").archived == 20


def test_idle_archive_that_is_replaced_ends_too(spark, log, url, tmp_path, monkeypatch):
    monkeypatch.setattr("headwater.spark.archive.archiver.HEARTBEAT_S", 0.2)
    fill(log, 20)
    display = Watching()

    def take_over() -> None:
        display.has_done_one.wait(60)
        log.register_consumer("spark", COMPONENT)

    threading.Thread(target=take_over).start()
    with (
        Run("archive", server=Server(url), is_once=False, every_s=0, progress=display) as this_run,
        pytest.raises(ConsumerFenced),
    ):
        JOB.run(spark, JOB.options(log="orders", table=str(tmp_path / "orders")), this_run)


def test_plan_says_what_a_run_would_do_and_does_nothing(spark, log, url, run, tmp_path):
    fill(log, 30)
    options = JOB.options(log="orders", table=str(tmp_path / "orders"), events_per_batch=7, keep_numbers=5)
    plan = JOB.plan(options, Run("archive", server=Server(url)))
    assert plan[0] == f"log 'orders' on {url}: 30 events, 1 to 30"
    assert plan[1] == f"table {tmp_path}/orders: will be created, starting at 1"
    assert "archive events after 0: 30 events so far, at most 7 events in a batch" in plan
    assert any("except the newest 5 numbers: the log drops them" in line for line in plan)
    assert log.consumers() == [] and not (tmp_path / "orders").exists()
    run(events_per_batch=10)
    again = JOB.plan(options, Run("archive", server=Server(url), is_once=False))
    assert again[1].startswith(f"table {tmp_path}/orders: 30 events, 1 to 30, in ")
    assert any("take over consumer spark/ARCHIVER, which has acknowledged up to 30 (epoch 1)" in line for line in again)


def test_plan_tells_of_a_gap(store, log, url, run, tmp_path):
    fill(log, 30)
    run()
    log.unregister_consumer("spark", COMPONENT)
    fill(log, 30)
    log.trim(51)
    options = JOB.options(log="orders", table=str(tmp_path / "orders"))
    plan = JOB.plan(options, Run("archive", server=Server(url)))
    assert "log 'orders' starts at 51: the events in between were trimmed: refused, unless --accept-gap" in plan


def test_plan_tells_of_a_table_that_is_not_the_consumers(log, url, run, tmp_path):
    fill(log, 30)
    run()
    options = JOB.options(log="orders", table=str(tmp_path / "other"))
    plan = JOB.plan(options, Run("archive", server=Server(url)))
    assert any(line.startswith(f"refused: {tmp_path}/other lacks events that its consumer has") for line in plan)


def test_missing_log_is_an_error_that_names_it(run):
    with pytest.raises(LogNotFound, match="orders"):
        run()


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"log": "or ders"}, InvalidLogName, "or ders"),
        (
            {"table": "s3://bucket/orders"},
            InvalidInput,
            "table: expected a directory on this machine, got 's3://buc",
        ),
        ({"table": ""}, InvalidInput, "table: expected a directory on this machine"),
        ({"vacuum_hours": 24}, InvalidInput, "vacuum_hours: requires --compact"),
        ({"log": ("orders", "shop")}, InvalidInput, "table: a table contains one log; use --tables for several logs"),
        ({"log": ("shop-*",)}, InvalidInput, "table: a table contains one log; use --tables for several logs"),
        ({"tables": "here"}, InvalidInput, "table: use either --table or --tables"),
        ({"table": None}, InvalidInput, "table: use either --table or --tables"),
        (
            {"table": None, "tables": "s3://bucket"},
            InvalidInput,
            "tables: expected a directory on this machine, got 's3",
        ),
        ({"table": None, "tables": "here", "log": ()}, InvalidInput, "log: expected at least one log"),
        ({"table": None, "tables": "here", "log": ("a*", "or ders")}, InvalidLogName, "or ders"),
    ],
)
def test_wrong_option_is_an_error_that_says_what_is_allowed(options, kind, message):
    with pytest.raises(kind, match=message):
        JOB.options(**{"log": "orders", "table": "orders"} | options)


def test_archive_and_log_are_read_as_one_while_an_archiver_trims(spark, log, url, run, tmp_path):
    """The data source's option `archive`: no gap and nothing twice, whatever moves from one to the other meanwhile."""
    fill(log, 200)
    run(events_per_batch=50, trim=True)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def archive_on() -> None:
        try:
            while not is_over.is_set():
                fill(log, 100)
                run(events_per_batch=30, trim=True)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=archive_on)
    thread.start()
    try:
        for _ in range(6):
            frame = spark.read.format("headwater").options(url=url, archive=str(tmp_path / "orders")).load("orders")
            found = numbers(frame)
            assert found == list(range(1, len(found) + 1)) and len(found) >= 200
    finally:
        is_over.set()
        thread.join()
    assert failures == []
    assert log.info().first_retained > 200
