"""Staged batches: only the log's very next events, all of them and each of them once, can be committed."""

from __future__ import annotations

import os

import pyarrow.parquet as pq
import pytest

from headwater.spark import durable
from headwater.spark.archive import staging
from headwater.spark.archive.errors import ArchiveIncomplete

from ..archive_tables import archive, rows, stage


def no_question(after: int, upto: int) -> int:
    raise AssertionError("numbers without gaps need no question to the log")


def test_batch_without_gaps_is_known_to_be_whole_without_asking(tmp_path):
    staged = stage(tmp_path, 100, range(101, 201), files=3, count=no_question)
    assert staged is not None
    assert (staged.first, staged.last, staged.events, len(staged.files)) == (101, 200, 100, 3)
    assert staged.bytes == sum((tmp_path / file.path).stat().st_size for file in staged.files)


def test_gaps_are_right_where_the_log_has_no_more_either(tmp_path):
    asked = []

    def count(after, upto):
        asked.append((after, upto))
        return 3

    staged = stage(tmp_path, 100, [103, 110, 120], count=count)
    assert staged is not None and staged.last == 120
    assert asked == [(100, 120)]


@pytest.mark.parametrize(("held", "problem"), [(4, "3 events up to 120 were staged, but the log has 4"), (2, "has 2")])
def test_gap_that_the_log_does_not_have_is_refused(tmp_path, held, problem):
    with pytest.raises(ArchiveIncomplete, match=problem):
        stage(tmp_path, 100, [103, 110, 120], count=lambda after, upto: held)


def test_event_that_is_there_twice_is_refused_though_the_count_is_right(tmp_path):
    with pytest.raises(ArchiveIncomplete, match="event 102 occurs twice"):
        stage(tmp_path, 100, [101, 102, 102, 104])


def test_event_that_is_in_the_table_already_is_refused(tmp_path):
    with pytest.raises(ArchiveIncomplete, match="event 100 is already in the table"):
        stage(tmp_path, 100, range(100, 111))


def test_event_in_the_directory_of_another_date_is_refused(tmp_path):
    target = staging.batch_directory(tmp_path, 0, 1) / "date=2026-11-19"
    target.mkdir(parents=True)
    pq.write_table(rows([1, 2]), target / "part-0.parquet")
    with pytest.raises(ArchiveIncomplete, match="contains an event of 2026-11-20"):
        staging.inspect(tmp_path, staging.batch_directory(tmp_path, 0, 1), 0, no_question)


def test_file_without_events_is_removed(tmp_path):
    staged = stage(tmp_path, 0, [1], files=2)
    assert staged is not None
    assert [file.events for file in staged.files] == [1]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_nothing_staged_is_no_batch(tmp_path):
    assert stage(tmp_path, 0, []) is None


def test_file_cut_short_is_refused(tmp_path):
    staged = stage(tmp_path, 0, range(1, 100))
    assert staged is not None
    path = tmp_path / staged.files[0].path
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ArchiveIncomplete, match="cannot be read back"):
        staging.inspect(tmp_path, staging.batch_directory(tmp_path, 0, 7), 0, no_question)


def test_a_newer_archiver_removes_what_its_predecessors_staged_in_vain_and_nothing_else(tmp_path):
    table = archive(tmp_path, 10)
    stage(tmp_path, 10, range(11, 15), claim=7)
    stage(tmp_path, 10, range(11, 15), claim=9)
    (tmp_path / "batch-of-notes").mkdir()
    assert staging.drop_abandoned(tmp_path, table.state.archived, 9) == 1
    assert sorted(path.name for path in tmp_path.glob("batch-*")) == [
        "batch-000000000000000001-7", "batch-000000000000000011-9", "batch-of-notes",
    ]  # fmt: skip


def test_files_and_the_directories_above_them_are_synced_before_a_commit(tmp_path, monkeypatch):
    staged = stage(tmp_path, 0, range(1, 10))
    assert staged is not None
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    path = tmp_path / staged.files[0].path
    durable.sync([path], tmp_path)
    directories = [path.parent, path.parent.parent, tmp_path, tmp_path.parent]
    assert synced == list(map(str, [path, *directories]))


def test_sidecars_go_and_parquet_stays(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("_SUCCESS", "a/.part-0.parquet.crc", "a/part-0.parquet"):
        (tmp_path / name).write_bytes(b"")
    staging.drop_sidecars(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["part-0.parquet"]
