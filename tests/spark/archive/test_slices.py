"""The archive and the log as one table: no gap, no duplicate, whatever the archiver does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    Schema,
    TableFeatures,
    Transaction,
    convert_to_deltalake,
)
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_date

from headwater.core import Query, QueryItem
from headwater.core.local import LocalLog
from headwater.spark.archive.errors import ArchiveUnreadable
from headwater.spark.archive.slices import ArchivedSlice, archive_slices, read_archived
from headwater.spark.archive.snapshot import Archive
from headwater.spark.archive.state import archive_transaction
from headwater.spark.columns.schema import COLUMNS, arrow_schema
from headwater.spark.options import InvalidOption
from headwater.storage.memory import MemoryStore

from ..archives import archive
from ..conftest import T0, Backend, fill, numbers

Load = Callable[..., DataFrame]
SIZE = 1 << 30


def read(table: Archive, log: str, after: int, upto: int, **options: object) -> list[int]:
    """The numbers that all slices give."""
    split: dict[str, object] = {"split_bytes": SIZE, "split_events": None, "splits_min": 1, **options}
    found = archive_slices(table, log, after, upto, **split)
    batches = [batch for slice in found for batch in read_archived(slice, ("sequence_number",), Query.all(), None)]
    return [number for batch in batches for number in batch["sequence_number"].to_pylist()]


def test_the_archive_has_what_is_below_the_next_number(orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 60)
    table = Archive(str(tmp_path))

    assert (table.next_number("orders"), table.first_retained("orders")) == (61, 1)
    assert (table.next_number("shop"), table.first_retained("shop")) == (0, None)
    assert read(table, "orders", 0, 60) == list(range(1, 61))
    assert read(table, "orders", 10, 12) == [11, 12]


def test_an_opened_archive_stays_as_it_was(orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 50)
    table = Archive(str(tmp_path))
    archive(orders, tmp_path, 51, 100)

    assert table.next_number("orders") == 51
    assert len(table.files("orders", 0, 100)) == 2
    assert Archive(str(tmp_path)).next_number("orders") == 101


def test_only_files_that_may_have_something_are_read(orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 100)
    files = Archive(str(tmp_path)).files("orders", 24, 26)

    assert [(file.first, file.last) for file in files] == [(1, 25), (26, 50)]


def test_a_table_without_statistics_is_read_file_by_file(orders: LocalLog, store: MemoryStore, tmp_path: Path) -> None:
    fill(store.create("shop"), 30)
    for log in (orders, store.open("shop")):
        archive(log, tmp_path, 1, 30, properties={"delta.dataSkippingNumIndexedCols": "0"})
    table = Archive(str(tmp_path))

    assert [file.has_statistics for file in table.files("orders", 24, 26)] == [False] * 4, "it may be in any of them"
    assert (table.next_number("orders"), table.first_retained("orders")) == (31, 1)
    assert sorted(read(table, "orders", 24, 26)) == [25, 26]
    assert [table.sequence_number_at("orders", T0 + ms) for ms in (-1, 1000, 3000)] == [1, 11, None]


def test_small_files_are_read_together_and_large_ones_in_pieces(orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 100)
    table = Archive(str(tmp_path))
    sizes = [file.bytes for file in table.files("orders", 0, 100)]
    split = {"split_bytes": SIZE, "split_events": None, "splits_min": 1}

    assert len(archive_slices(table, "orders", 0, 100, **split)) == 1
    assert len(archive_slices(table, "orders", 0, 100, **{**split, "split_bytes": 2 * max(sizes)})) == 2
    assert len(archive_slices(table, "orders", 0, 100, **{**split, "split_events": 60})) == 2
    assert len(archive_slices(table, "orders", 0, 100, **{**split, "splits_min": 4})) >= 4
    assert read(table, "orders", 0, 100, split_bytes=1) == list(range(1, 101))


def test_archived_rows_are_chosen_by_query_partition_and_log(
    orders: LocalLog, store: MemoryStore, tmp_path: Path
) -> None:
    fill(store.create("shop"), 30)
    archive(store.open("shop"), tmp_path, 1, 30)
    archive(orders, tmp_path, 1, 60)
    query = Query.of(QueryItem(("Paid",), ("order:3",)), QueryItem((), ("order:5",)))
    table = Archive(str(tmp_path))

    for partitions in (None, (1,)):
        found: list[int] = []
        for slice in archive_slices(table, "orders", 0, 60, split_bytes=SIZE, split_events=None, splits_min=1):
            for batch in read_archived(slice, COLUMNS, query, partitions):
                assert batch.schema.equals(arrow_schema(COLUMNS))
                found += batch["sequence_number"].to_pylist()
        expected = [event for event in orders.read(query) if event.sequence_number <= 60]
        assert found == [event.sequence_number for event in expected if event.partition in (partitions or (0, 1))]


def test_a_time_is_found_in_the_archive(orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 60)
    table = Archive(str(tmp_path))

    assert [table.sequence_number_at("orders", T0 + ms) for ms in (-1, 0, 1, 1000, 5000)] == [1, 1, 11, 11, 51]
    assert table.sequence_number_at("orders", T0 + 5001) is None


def test_a_table_or_a_file_that_is_not_there_is_named(orders: LocalLog, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="option archive: there is no Delta table at"):
        Archive(str(tmp_path / "nothing"))
    archive(orders, tmp_path, 1, 25)
    table = Archive(str(tmp_path))
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(ArchiveUnreadable, match="the file was removed, although this version of the table contains it"):
        read(table, "orders", 0, 25)


def test_a_path_with_spaces_is_read(orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path / "an archive", 1, 25)

    assert read(Archive(str(tmp_path / "an archive")), "orders", 0, 25) == list(range(1, 26))


def test_compacted_files_are_read_as_those_before(orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 100)
    DeltaTable(tmp_path).optimize.compact()
    table = Archive(str(tmp_path))

    assert (len(table.files("orders", 0, 100)), table.next_number("orders")) == (1, 101)
    assert sorted(read(table, "orders", 30, 70)) == list(range(31, 71))


def test_files_that_spark_wrote_are_read(spark: SparkSession, load: Load, orders: LocalLog, tmp_path: Path) -> None:
    frame = load(log="orders", endingPosition=60)
    frame.withColumn("date", to_date("recorded_at")).write.mode("append").partitionBy("date").parquet(str(tmp_path))
    convert_to_deltalake(tmp_path, partition_by=Schema([Field("date", "date")]), partition_strategy="hive")
    table = DeltaTable(tmp_path)
    after = Transaction(archive_transaction("orders"), 61)
    table.create_write_transaction(
        [], "append", table.schema(), "date", commit_properties=CommitProperties(app_transactions=[after])
    )
    expected = [row.asDict() for row in load(log="orders").orderBy("sequence_number").collect()]
    orders.trim(61)

    assert [
        row.asDict() for row in load(log="orders", archive=tmp_path).orderBy("sequence_number").collect()
    ] == expected


def test_a_table_whose_files_do_not_say_all_is_refused(orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 25)
    DeltaTable(tmp_path).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)

    with pytest.raises(ArchiveUnreadable, match="the table uses deletionVectors"):
        Archive(str(tmp_path))


def test_archive_and_log_are_one_table(load: Load, orders: LocalLog, backend: Backend, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 60)
    orders.trim(51)

    assert numbers(load(log="orders", archive=tmp_path)) == list(range(1, 101))
    assert backend.scans.pop().span.after == 60, "what is archived is not asked of the log"
    assert numbers(load(log="orders", archive=tmp_path, startingPosition=20, endingPosition=70)) == list(range(20, 71))
    assert numbers(load(log="orders", archive=tmp_path, query="type=Paid")) == list(range(3, 101, 3))
    timed = load(log="orders", archive=tmp_path, startingTimestamp=T0 + 2000, endingTimestamp=T0 + 7000)
    assert numbers(timed) == list(range(21, 71))
    pushed = load(log="orders", archive=tmp_path, filterPushdown="true", columns="sequence_number,type,partition")
    kept = pushed.where("type = 'Paid' AND partition IN (0, 7) AND sequence_number BETWEEN 40 AND 80")
    expected = orders_of(orders, tmp_path, 0)
    assert numbers(kept) == [n for n in range(42, 81, 3) if expected.get(n, 0) == 0]


def test_what_is_in_neither_is_an_error_unless_it_may_be_lost(load: Load, orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 1, 30)
    orders.trim(51)

    with pytest.raises(PySparkException, match=r"events from 31 to 50 are neither in the log nor in the archive"):
        load(log="orders", archive=tmp_path).collect()
    lossy = load(log="orders", archive=tmp_path, failOnDataLoss="false")
    assert numbers(lossy) == [*range(1, 31), *range(51, 101)]


def test_an_archive_that_began_late_is_used_for_what_it_has(load: Load, orders: LocalLog, tmp_path: Path) -> None:
    archive(orders, tmp_path, 21, 60)

    assert numbers(load(log="orders", archive=tmp_path)) == list(range(1, 101)), "the log still has all"
    orders.trim(51)
    assert numbers(load(log="orders", archive=tmp_path)) == list(range(21, 101))
    with pytest.raises(PySparkException, match="events from 5 to 20 are neither"):
        load(log="orders", archive=tmp_path, startingPosition=5).collect()


def test_a_trim_while_a_read_is_planned_makes_it_look_at_the_table_again(
    load: Load, orders: LocalLog, backend: Backend, tmp_path: Path
) -> None:
    archive(orders, tmp_path, 1, 30)
    orders.trim(31)

    def go_on() -> None:
        archive(orders, tmp_path, 31, 80)
        orders.trim(81)

    backend.before_splits.append(go_on)
    frame = load(log="orders", archive=tmp_path)

    assert numbers(frame) == list(range(1, 101))
    assert not backend.before_splits


def test_a_trim_between_planning_and_reading_sends_the_task_to_the_archive(
    load: Load, orders: LocalLog, tmp_path: Path
) -> None:
    archive(orders, tmp_path, 1, 30)
    frame = load(log="orders", archive=tmp_path, minPartitions=4, columns="type")
    assert frame.rdd.getNumPartitions() >= 4
    planned = frame.groupBy("type").count()
    planned.explain()

    archive(orders, tmp_path, 31, 90)
    orders.trim(91)

    assert {row.type: row["count"] for row in planned.collect()} == {"Paid": 33, "Placed": 67}
    assert frame.count() == 100


def orders_of(log: LocalLog, path: Path, partition: int) -> dict[int, int]:
    """The partition of each event, archived or not."""
    found = {event.sequence_number: event.partition for event in log.read()}
    for slice in archive_slices(Archive(str(path)), log.name, 0, 60, split_bytes=SIZE, split_events=None, splits_min=1):
        assert isinstance(slice, ArchivedSlice)
        for batch in read_archived(slice, ("sequence_number", "partition"), Query.all(), None):
            found |= dict(zip(batch["sequence_number"].to_pylist(), batch["partition"].to_pylist(), strict=True))
    return found
