"""Compaction: the same events in fewer files, in order, while archivers add and readers read."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from headwater.spark.archive import compaction, staging
from headwater.spark.archive.compaction import compact, vacuum
from headwater.spark.archive.errors import ArchiveIncomplete, ArchiveUnreadable, CompactionOvertaken
from headwater.spark.archive.snapshot import snapshot
from headwater.spark.archive.table import ArchiveTable
from headwater.spark.durable import sync

from ..archive_tables import CLAIM, add, archive, data_files, stage

DAY_AFTER = date(2026, 11, 21)


def everything(path):
    """All rows, in order of their numbers."""
    return DeltaTable(path).to_pyarrow_table().sort_by("sequence_number").to_pylist()


def test_small_files_become_one_with_the_same_events_in_order(tmp_path):
    table = archive(tmp_path, 600, batches=6, files=2)
    before, state = everything(tmp_path), table.state
    done = compact(tmp_path, before=DAY_AFTER)
    assert (done.dates, done.files_before, done.files_after, done.events) == (1, 12, 1, 600)
    (file,) = snapshot(tmp_path).files
    assert (file.first, file.last, file.events) == (1, 600, 600)
    assert pq.read_table(file.path, partitioning=None)["sequence_number"].to_pylist() == list(range(1, 601))
    assert everything(tmp_path) == before
    assert table.refresh()._replace(version=0) == state._replace(version=0)


def test_second_compaction_finds_nothing_to_do(tmp_path):
    table = archive(tmp_path, 100, batches=4)
    compact(tmp_path, before=DAY_AFTER)
    version = table.refresh().version
    assert compact(tmp_path, before=DAY_AFTER).dates == 0
    assert table.refresh().version == version


def test_only_dates_that_are_over_are_compacted(tmp_path):
    archive(tmp_path, 40, batches=4, each_ms=3_600_000)
    done = compact(tmp_path, before=DAY_AFTER)
    assert done.dates == 1
    assert [(str(file.date), file.events) for file in snapshot(tmp_path).files][:2] == [
        ("2026-11-20", 11),
        ("2026-11-21", 9),
    ]


def test_today_is_not_over(tmp_path):
    now_ms = (time.time() - datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()) * 1000
    archive(tmp_path, 2, batches=2, each_ms=int(now_ms / 2))
    assert [file.date for file in snapshot(tmp_path).files][-1] == datetime.now(UTC).date()
    assert compact(tmp_path).dates == 0


def test_large_files_stay_and_small_ones_join_up_to_the_target(tmp_path):
    table = archive(tmp_path, 100, batches=5)
    size = snapshot(tmp_path).files[0].bytes
    done = compact(tmp_path, before=DAY_AFTER, target_bytes=int(2.5 * size))
    assert [(file.first, file.last) for file in snapshot(tmp_path).files] == [(1, 40), (41, 80), (81, 100)]
    assert (done.files_before, done.files_after) == (4, 2)
    assert table.refresh().archived == 100


def test_files_whose_numbers_interleave_come_out_in_order(tmp_path):
    table = archive(tmp_path)
    odd = stage(tmp_path, 0, range(1, 50, 2), count=lambda after, upto: 25)
    even = stage(tmp_path, 100, range(102, 152, 2), count=lambda after, upto: 25)
    third = stage(tmp_path, 50, range(51, 150, 2), count=lambda after, upto: 50)
    assert odd and even and third
    table.commit([*odd.files, *even.files, *third.files], 0, 151, CLAIM)
    compact(tmp_path, before=DAY_AFTER)
    (file,) = snapshot(tmp_path).files
    found = pq.read_table(file.path, partitioning=None)["sequence_number"].to_pylist()
    assert found == sorted(found) and len(found) == 100


def test_files_that_another_program_has_joined_newest_first_come_out_in_order(tmp_path):
    """An archiver that compacts went on to end with an error after each OPTIMIZE."""
    table = archive(tmp_path, 20, batches=2)
    DeltaTable(tmp_path).optimize.compact()
    (joined,) = snapshot(tmp_path).files
    assert pq.read_table(joined.path, partitioning=None)["sequence_number"][0].as_py() == 11
    add(table, 5)
    assert compact(tmp_path, before=DAY_AFTER).files_after == 1
    (file,) = snapshot(tmp_path).files
    assert pq.read_table(file.path, partitioning=None)["sequence_number"].to_pylist() == list(range(1, 26))


def test_archiver_may_add_while_a_compaction_is_under_way(tmp_path, monkeypatch):
    table = archive(tmp_path, 100, batches=4)
    compacting = ArchiveTable.replace

    def add_meanwhile(self, *arguments):
        add(table, 50)
        compacting(self, *arguments)

    monkeypatch.setattr(ArchiveTable, "replace", add_meanwhile)
    compact(tmp_path, before=DAY_AFTER)
    assert [(file.first, file.last) for file in snapshot(tmp_path).files] == [(1, 100), (101, 150)]
    add(table, 10)
    assert [row["sequence_number"] for row in everything(tmp_path)] == list(range(1, 161))


def test_compaction_may_come_between_staging_and_committing(tmp_path):
    table = archive(tmp_path, 100, batches=4)
    staged = stage(tmp_path, 100, range(101, 111))
    assert staged is not None
    compact(tmp_path, before=DAY_AFTER)
    table.commit(staged.files, 100, 110, CLAIM)
    assert [row["sequence_number"] for row in everything(tmp_path)] == list(range(1, 111))


def test_of_two_compactions_at_once_one_is_refused_and_nothing_is_there_twice(tmp_path, monkeypatch):
    archive(tmp_path, 100, batches=4)
    first = ArchiveTable.replace

    def second_comes_first(self, *arguments):
        monkeypatch.setattr(ArchiveTable, "replace", first)
        compact(tmp_path, before=DAY_AFTER)
        first(self, *arguments)

    monkeypatch.setattr(ArchiveTable, "replace", second_comes_first)
    with pytest.raises(CompactionOvertaken, match="2026-11-20 was left unchanged"):
        compact(tmp_path, before=DAY_AFTER)
    assert [row["sequence_number"] for row in everything(tmp_path)] == list(range(1, 101))


def test_reader_of_an_older_version_goes_on_until_a_vacuum(tmp_path):
    archive(tmp_path, 100, batches=4)
    pinned = snapshot(tmp_path)
    compact(tmp_path, before=DAY_AFTER)
    assert vacuum(tmp_path, hours=1) == 0
    assert sum(pq.read_table(file.path, partitioning=None).num_rows for file in pinned.files) == 100
    assert vacuum(tmp_path, hours=0) == 4
    assert not any(os.path.exists(file.path) for file in pinned.files)
    assert len(everything(tmp_path)) == 100
    assert data_files(tmp_path) == [file.path for file in snapshot(tmp_path).files]


def test_vacuum_takes_what_was_staged_in_vain_but_not_what_is_being_staged(tmp_path):
    archive(tmp_path, 10)
    abandoned = stage(tmp_path, 10, range(11, 20), claim=3)
    being_staged = stage(tmp_path, 10, range(11, 20))
    assert abandoned and being_staged
    old = time.time() - 2 * 3600
    for path in (tmp_path / abandoned.files[0].path).parents[:2]:
        os.utime(path, (old, old))
    os.utime(tmp_path / abandoned.files[0].path, (old, old))
    assert vacuum(tmp_path, hours=1) == 1
    assert sorted(path.name for path in tmp_path.glob("batch-*")) == [
        "batch-000000000000000001-7", "batch-000000000000000011-7",
    ]  # fmt: skip
    assert (tmp_path / being_staged.files[0].path).exists()


def test_compaction_that_was_killed_before_its_commit_changes_nothing(tmp_path, monkeypatch):
    table = archive(tmp_path, 100, batches=4)
    state = table.state

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(compaction, "sync", killed)
    with pytest.raises(KeyboardInterrupt):
        compact(tmp_path, before=DAY_AFTER)
    monkeypatch.setattr(compaction, "sync", sync)
    assert (table.refresh(), len(everything(tmp_path))) == (state, 100)
    compact(tmp_path, before=DAY_AFTER)
    vacuum(tmp_path, hours=0)
    assert data_files(tmp_path) == [file.path for file in snapshot(tmp_path).files]


def test_file_without_statistics_is_read_and_left_as_it_is(tmp_path):
    archive(tmp_path, 40, batches=2)
    staged = stage(tmp_path, 40, range(41, 51), files=2)
    assert staged is not None
    unknown = [AddAction(file.path, file.bytes, {"date": file.date}, 0, True, "{}") for file in staged.files]
    table = DeltaTable(tmp_path)
    table.create_write_transaction(unknown, "append", table.schema(), ["date"])
    assert len(snapshot(tmp_path).select(after=39)) == 3, "of two of them nobody knows"
    assert {str(file.date) for file in snapshot(tmp_path).files} == {"2026-11-20"}
    assert compact(tmp_path, before=DAY_AFTER).files_before == 2
    assert len(snapshot(tmp_path).files) == 3


@pytest.mark.parametrize("is_old", [False, True])
def test_file_that_does_not_hold_what_the_table_says_is_not_rewritten(tmp_path, monkeypatch, is_old):
    """Files of older versions have no checksums, but numbers."""
    if is_old:
        monkeypatch.setattr(staging, "add_checksums", lambda path: path)
    archive(tmp_path, 100, batches=4)
    files = snapshot(tmp_path).files
    os.replace(files[1].path, files[2].path)
    os.link(files[2].path, files[1].path)
    expected = (ArchiveIncomplete, "are not contiguous") if is_old else (ArchiveUnreadable, "the file is damaged")
    with pytest.raises(expected[0], match=expected[1]):
        compact(tmp_path, before=DAY_AFTER)
    assert len(snapshot(tmp_path).files) == 4


def test_a_file_with_other_columns_is_not_rewritten_without_them(tmp_path):
    archive(tmp_path, 40, batches=2)
    file = snapshot(tmp_path).files[0]
    other = pq.ParquetFile(file.path).read().append_column("note", [["from elsewhere"] * file.events])
    path = Path(file.path).with_name("other.parquet")
    pq.write_table(other, path)
    table = DeltaTable(tmp_path)
    relative = os.path.relpath(file.path, tmp_path)
    stats = next(each for each in pa.table(table.get_add_actions()).to_pylist() if each["path"] == relative)
    bounds = {name: {"sequence_number": stats[name]["sequence_number"]} for name in ("min", "max")}
    times = {"recorded_at": "2026-11-20T12:00:00.000Z"}
    told = {"numRecords": file.events, "minValues": bounds["min"] | times, "maxValues": bounds["max"] | times}
    actions = [
        RemoveAction(relative, False, 0, partition_values={"date": "2026-11-20"}),
        AddAction(
            os.path.relpath(path, tmp_path), path.stat().st_size, {"date": "2026-11-20"}, 0, False, json.dumps(told)
        ),
    ]
    table.create_write_transaction(actions, "append", table.schema(), ["date"])
    with pytest.raises(
        ArchiveUnreadable, match="its columns differ from those of an archive: note is missing or was added"
    ):
        compact(tmp_path, before=DAY_AFTER)
    assert path.is_file()
