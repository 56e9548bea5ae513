"""The table of an archive: what its commits promise, whoever else commits, and whatever is torn."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path

import duckdb
import polars
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, TableFeatures

from headwater.core import Query, QueryItem
from headwater.spark.archive.compaction import compact
from headwater.spark.archive.errors import ArchiveFenced, ArchiveUnreadable, NotAnArchive
from headwater.spark.archive.snapshot import Archive, snapshot
from headwater.spark.archive.table import ArchiveTable
from headwater.spark.delta.log import CHECKPOINT_COMMITS

from ..archive_tables import CLAIM, NOON, add, archive, stage


def numbers(path: Path, version: int | None = None) -> list[int]:
    found = DeltaTable(path, version=version).to_pyarrow_table(columns=["sequence_number"])
    return sorted(found["sequence_number"].to_pylist())


def test_a_new_table_is_empty_and_says_of_what_it_is(tmp_path):
    table = archive(tmp_path / "orders")
    assert (table.state.log, table.state.incarnation) == ("orders", "first-life")
    assert (table.state.first, table.state.archived, table.state.claim) == (1, 0, CLAIM)
    assert snapshot(tmp_path / "orders").files == []
    assert ArchiveTable.create(tmp_path / "orders", "orders", "other", 50).state == table.state


def test_table_that_begins_later_says_so(tmp_path):
    table = ArchiveTable.create(tmp_path / "orders", "orders", "first-life", 501)
    assert (table.state.first, table.state.archived) == (501, 500)


def test_an_archive_whose_files_do_not_say_all_is_not_read(tmp_path):
    archive(tmp_path, 50)
    DeltaTable(tmp_path).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(ArchiveUnreadable, match="the table uses deletionVectors"):
        snapshot(tmp_path)


def test_commit_adds_its_files_and_the_number_they_reach_at_once(tmp_path):
    table = archive(tmp_path, 100, batches=2, files=2)
    assert table.state.archived == 100
    assert numbers(tmp_path) == list(range(1, 101))
    assert numbers(tmp_path, version=2) == list(range(1, 51))
    assert snapshot(tmp_path, version=2).archived == 50
    assert ArchiveTable(tmp_path).state == table.state


def test_table_needs_no_feature_that_any_reader_could_lack(tmp_path):
    archive(tmp_path, 10)
    protocol = DeltaTable(tmp_path).protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    assert not protocol.reader_features and not protocol.writer_features


def test_statistics_tell_which_files_have_which_numbers_and_times(tmp_path):
    archive(tmp_path, 100, batches=2, files=2)
    files = snapshot(tmp_path).files
    assert [(file.first, file.last, file.events) for file in files] == [
        (1, 25, 25), (26, 50, 25), (51, 75, 25), (76, 100, 25),
    ]  # fmt: skip
    assert [round(file.recorded_upto.timestamp() * 1000) - NOON for file in files] == [25_000, 50_000, 75_000, 100_000]
    assert [file.first for file in snapshot(tmp_path).select(after=25, upto=51)] == [26, 51]
    assert [file.first for file in snapshot(tmp_path).select(recorded_from=files[2].recorded_from)] == [51, 76]
    assert [file.first for file in snapshot(tmp_path).select(recorded_before=files[1].recorded_from)] == [1]


def test_events_of_two_dates_lie_in_two_partitions(tmp_path):
    archive(tmp_path, 20, each_ms=3_600_000)
    assert [(str(file.date), file.first, file.last) for file in snapshot(tmp_path).files] == [
        ("2026-11-20", 1, 11), ("2026-11-21", 12, 20),
    ]  # fmt: skip


@pytest.mark.parametrize("claim", [CLAIM - 1, CLAIM + 1])
def test_commit_under_a_claim_that_is_not_the_newest_is_refused(tmp_path, claim):
    table = archive(tmp_path, 10)
    staged = stage(tmp_path, 10, range(11, 21), claim=claim)
    assert staged is not None
    with pytest.raises(ArchiveFenced):
        table.commit(staged.files, 10, 20, claim)
    assert (table.refresh().archived, numbers(tmp_path)) == (10, list(range(1, 11)))


def test_an_older_claim_never_comes_back(tmp_path):
    table = archive(tmp_path)
    table.claim(CLAIM + 5)
    with pytest.raises(ArchiveFenced):
        table.claim(CLAIM)
    table.claim(CLAIM + 5)
    assert ArchiveTable(tmp_path).state.claim == CLAIM + 5


def test_archiver_that_was_replaced_between_looking_and_committing_adds_nothing(tmp_path, monkeypatch):
    """The race that comparing alone does not see: the newer one claims after the older one has compared."""
    older, newer = archive(tmp_path, 10), ArchiveTable(tmp_path)
    staged = stage(tmp_path, 10, range(11, 21))
    assert staged is not None
    compared = older.refresh()
    newer.claim(CLAIM + 1)
    monkeypatch.setattr(older, "refresh", iter_of(compared, older.refresh))
    with pytest.raises(ArchiveFenced) as refused:
        older.commit(staged.files, 10, 20, CLAIM)
    assert refused.value.newest == CLAIM + 1
    assert numbers(tmp_path) == list(range(1, 11))
    add(newer, 10, claim=CLAIM + 1)
    assert numbers(tmp_path) == list(range(1, 21))


def test_two_commits_of_the_same_events_do_not_both_get_in(tmp_path, monkeypatch):
    """Even with one claim: the same numbers are never added twice."""
    one, other = archive(tmp_path, 10), ArchiveTable(tmp_path)
    staged = stage(tmp_path, 10, range(11, 21))
    assert staged is not None
    compared = one.refresh()
    other.commit(staged.files, 10, 20, CLAIM)
    monkeypatch.setattr(one, "refresh", iter_of(compared, one.refresh))
    with pytest.raises(ArchiveFenced):
        one.commit(staged.files, 10, 20, CLAIM)
    assert numbers(tmp_path) == list(range(1, 21))


def test_what_a_commit_told_is_in_the_history(tmp_path):
    archive(tmp_path, 10)
    newest = DeltaTable(tmp_path).history(1)[0]
    assert (newest["headwater.after"], newest["headwater.upto"]) == ("0", "10")


def test_history_says_how_many_files_events_and_bytes_each_commit_added_and_removed(tmp_path):
    """Under the names, and as the texts, by which Delta's own writers say it."""
    archive(tmp_path, 100, batches=2, files=2)
    before = snapshot(tmp_path).bytes
    last_files = snapshot(tmp_path).files[2:]
    compact(tmp_path, before=date(2100, 1, 1))

    compacted, written = (commit["operationMetrics"] for commit in DeltaTable(tmp_path).history(2))
    size = sum(file.bytes for file in last_files)
    assert written == {"numFiles": "2", "numOutputRows": "50", "numOutputBytes": str(size)}
    sizes = {"numAddedBytes": str(snapshot(tmp_path).bytes), "numRemovedBytes": str(before)}
    assert compacted == {"numAddedFiles": "1", "numRemovedFiles": "4", **sizes}


def test_files_that_cannot_have_a_type_are_left_out_by_all_readers(tmp_path):
    """Four files of one type each, and a fifth of two that are not asked for, but lie around one that is."""
    table = archive(tmp_path)
    for type in ("Paid", "Placed", "Sent", "Placed"):
        add(table, 10, type_of=lambda _, type=type: type)
    add(table, 10, type_of=lambda number: "Paid" if number % 2 else "Sent")

    def firsts(query):
        return [file.first for file in Archive(str(tmp_path)).files("orders", 0, 50, query)]

    assert firsts(Query.where(types=["Placed"])) == [11, 31, 41]
    assert firsts(Query.where(types=["Aborted"])) == firsts(Query.where(types=["Unsent"])) == []
    assert firsts(Query.where(types=["Aborted", "Sent"], tags=["order:1"])) == [21, 41]
    assert firsts(Query.of(QueryItem(("Sent",)), QueryItem(tags=("order:1",)))) == firsts(Query.all())
    placed = DeltaTable(tmp_path).to_pyarrow_dataset().get_fragments(pc.field("type") == "Placed")
    assert len(list(placed)) == 3

    compact(tmp_path, before=date(2100, 1, 1))
    (file,) = snapshot(tmp_path).files
    assert (file.type_min, file.type_max) == ("Paid", "Sent")


@pytest.mark.parametrize("type", ["\U00020000", "a\U0001f600b", 'a"\\b', "\u2028"])
def test_a_file_says_its_types_whatever_characters_they_have(tmp_path, type):
    table = archive(tmp_path)
    add(table, 10, type_of=lambda _: type)
    (file,) = snapshot(tmp_path).files
    assert (file.type_min, file.type_max) == (type, type)
    assert len(Archive(str(tmp_path)).files("orders", 0, 10, Query.where(types=[type]))) == 1


def test_table_keeps_what_it_knows_over_a_checkpoint_of_its_log(tmp_path):
    table = archive(tmp_path)
    while table.state.version < CHECKPOINT_COMMITS:
        add(table, 1)
    log = tmp_path / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == CHECKPOINT_COMMITS
    for entry in sorted(log.glob("*.json"))[:-1]:
        entry.unlink()
    again = ArchiveTable(tmp_path)
    assert again.state == table.state
    add(again, 5)
    assert numbers(tmp_path) == list(range(1, again.state.archived + 1))


def test_entry_of_the_log_that_was_torn_is_not_there(tmp_path):
    """What a crash can leave of a commit is a temporary file beside the entries."""
    table = archive(tmp_path, 10)
    (tmp_path / "_delta_log" / ".tmp_commit_x.json").write_text('{"add":')
    assert ArchiveTable(tmp_path).state == table.state


def test_pointer_to_a_checkpoint_that_was_torn_costs_nothing(tmp_path):
    table = archive(tmp_path, 10)
    table.sum_up()
    (tmp_path / "_delta_log" / "_last_checkpoint").write_text('{"versi')
    again = ArchiveTable(tmp_path)
    add(again, 10)
    assert numbers(tmp_path) == list(range(1, 21))


def test_log_of_the_table_is_on_the_disk_when_a_commit_returns(tmp_path, monkeypatch):
    """Also the entries of others who were killed before they could sync them."""
    archive(tmp_path, 30, batches=3)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    again = ArchiveTable(tmp_path)
    add(again, 10)
    log = tmp_path / "_delta_log"
    assert {str(log), *map(str, log.glob("*.json"))} <= set(synced)
    synced.clear()
    add(again, 10)
    entries = [path for path in synced if path.endswith(".json")]
    assert entries == [f"{log}/{again.state.version:020d}.json"]


def test_directory_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(NotAnArchive, match="needs an empty directory"):
        ArchiveTable.create(tmp_path, "orders", "i", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_archive_of_another_log_is_refused(tmp_path):
    archive(tmp_path)
    with pytest.raises(NotAnArchive, match="archive of log 'orders', not of 'payments'"):
        ArchiveTable.create(tmp_path, "payments", "i", 1)


def test_delta_table_of_somebody_else_is_refused(tmp_path):
    polars.DataFrame({"a": [1]}).write_delta(tmp_path / "t")
    with pytest.raises(NotAnArchive, match="not an archive of a log"):
        ArchiveTable.create(tmp_path / "t", "orders", "i", 1)


def test_path_without_a_table_is_an_error_that_names_it(tmp_path):
    with pytest.raises(NotAnArchive, match=f"{tmp_path}/nothing: there is no Delta table"):
        snapshot(tmp_path / "nothing")


def test_path_where_nothing_can_be_made_is_an_error_that_says_why(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotAnArchive, match="cannot create a table there"):
        ArchiveTable.create(tmp_path / "file" / "orders", "orders", "i", 1)


def test_duckdb_polars_and_arrow_read_the_same_table(tmp_path):
    archive(tmp_path, 100, batches=4, files=2)
    connection = duckdb.connect()
    connection.register("events", DeltaTable(tmp_path).to_pyarrow_dataset())
    (counted,) = connection.sql(
        "SELECT count(*), max(attributes['subject']) FROM events WHERE sequence_number > 90"
    ).fetchall()
    assert counted == (10, "99")
    paths = [file.path for file in snapshot(tmp_path).files]
    (found,) = connection.sql(
        f"SELECT count(DISTINCT sequence_number), any_value(date)::VARCHAR, list(DISTINCT tags[1])[1][:6] "
        f"FROM read_parquet({paths!r}, hive_partitioning = true)"
    ).fetchall()
    assert found == (100, "2026-11-20", "order:")
    assert (
        polars.scan_delta(str(tmp_path)).filter(polars.col("type") == "Paid").select(polars.len()).collect().item()
        == 50
    )


def iter_of(first, then):
    """A function that answers `first` once, then what `then` does."""
    answers = [first]
    return lambda: answers.pop() if answers else then()
