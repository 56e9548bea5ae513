"""Staging and committing: a batch that is staged in pieces by many goes into the log in order, once."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core import AppendCondition, LogSettings, Mark, Query, SequencedEvent, WriterState
from headwater.core.errors import (
    AppendConditionFailed,
    DiskFull,
    DuplicateEventId,
    InvalidEvent,
    InvalidInput,
    Overloaded,
    StorageCorrupted,
    StorageUnavailable,
    TooLarge,
)
from headwater.core.mark import Committed, Staged
from headwater.formats.arrow import events as events_module
from headwater.storage import Engine, StoredLog
from headwater.storage.repair.log_check import check_staged
from headwater.storage.staging import batches as batches_module
from headwater.storage.staging.batches import MANIFEST_NAME, ORPHAN_AGE_S, STAGED, Staging, drop_orphans, read_manifest
from headwater.storage.staging.commit import commit_staged, discard_staged
from headwater.storage.staging.part import PART_MAGIC

from ...builders import event
from ...crash.faults import FaultyDisk
from ..builders import columns

SCHEMA = pa.schema({"type": pa.string(), "data": pa.binary(), "id": pa.string()})


@pytest.fixture
def log(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredLog]:
    monkeypatch.setattr(events_module, "APPEND_EVENTS_MAX", 100)
    with Engine(data, maintains=False) as engine:
        yield engine.create("orders")


@pytest.fixture
def staging(log: StoredLog) -> Staging:
    return Staging(log.directory)


def rows(first: int, count: int) -> pa.RecordBatch:
    ids = [str(number) for number in range(first, first + count)]
    return pa.RecordBatch.from_arrays([pa.array(["E"] * count), pa.array([id.encode() for id in ids]), pa.array(ids)],
                                      schema=SCHEMA)  # fmt: skip


def stage(staging: Staging, batch: int, part: int, first: int, count: int, attempt: int = 0) -> str:
    writer = staging.stage("w", batch, part, attempt, SCHEMA)
    for start in range(0, count, 50):
        writer.write(rows(first + start, min(50, count - start)))
    return writer.close().stage


def commit(log: StoredLog, batch: int, stages: Sequence[str], **options: Any) -> Committed:
    return commit_staged(log, log.directory, "w", batch, stages, **options)


def ids(events: Iterator[SequencedEvent] | Any) -> list[str]:
    return [each.id for each in events]


def staged_files(log: StoredLog) -> list[str]:
    return sorted(str(path.relative_to(log.directory / STAGED)) for path in log.directory.glob(f"{STAGED}/*/*/*"))


@pytest.mark.parametrize("count", [1, 40, 50, 51, 333])
def test_the_rows_of_all_parts_go_in_in_the_order_of_the_commit(log: StoredLog, staging: Staging, count: int) -> None:
    parts = [stage(staging, 1, part, 1000 * part, count) for part in (0, 1)]
    assert commit(log, 1, parts[::-1]) == Committed(1, 2 * count, 2 * count, 0, False)
    assert ids(log.read()) == [*map(str, range(1000, 1000 + count)), *map(str, range(count))]
    assert log.writer("w") == WriterState("w", 1, 2 * count, 1, 2 * count, 2 * count, True)
    assert staged_files(log) == []


def test_a_commit_that_comes_again_is_told_where_the_rows_are(log: StoredLog, staging: Staging) -> None:
    commit(log, 1, [stage(staging, 1, 0, 0, 250)])
    again = stage(staging, 1, 0, 5000, 10, attempt=1)
    assert commit(log, 1, [again]) == Committed(1, 250, 250, 0, True)
    commit(log, 2, [stage(staging, 2, 0, 1000, 3)])
    assert commit(log, 1, ["0-0"]) == Committed(0, 0, 0, 0, True)
    assert log.head() == 253
    assert staged_files(log) == []


def test_an_empty_batch_is_committed(log: StoredLog, staging: Staging) -> None:
    assert commit(log, 1, []) == Committed(0, 0, 0, 0, False)
    assert commit(log, 2, [staging.stage("w", 2, 0, 0, SCHEMA).close().stage]) == Committed(0, 0, 0, 0, False)
    assert commit(log, 2, [stage(staging, 2, 1, 0, 5)]) == Committed(0, 0, 0, 0, True)
    assert log.head() == 0


def test_only_the_attempts_that_are_named_count(log: StoredLog, staging: Staging) -> None:
    stage(staging, 1, 0, 0, 10)
    chosen = stage(staging, 1, 0, 100, 10, attempt=7)
    commit(log, 1, [chosen])
    assert ids(log.read()) == list(map(str, range(100, 110)))


def test_rows_are_checked_when_they_are_staged(log: StoredLog, staging: Staging) -> None:
    with pytest.raises(InvalidEvent, match="did you mean 'type'"):
        staging.stage("w", 1, 0, 0, pa.schema({"typ": pa.string(), "data": pa.binary()}))
    writer = staging.stage("w", 1, 0, 0, SCHEMA)
    with pytest.raises(InvalidEvent, match=r"events\[1\].type"):
        writer.write(pa.record_batch({"type": ["A", ""], "data": [b"", b""]}))
    writer.abort()
    assert staged_files(log) == []


@pytest.mark.parametrize("key", [("", 1, 0, 0), ("w", -1, 0, 0), ("w", 1, "../x", 0), ("w", 1, 0, True)])
def test_a_malformed_key_is_refused(staging: Staging, key: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInput):
        staging.stage(*key, SCHEMA)


@pytest.mark.parametrize(
    "stages", [["0-1"], ["../0-0"], ["0-0", "0-0"], [5], "0-0", ["0-0", "MANIFEST"], ["9" * 300 + "-0"]]
)
def test_a_stage_that_is_not_there_is_refused(log: StoredLog, staging: Staging, stages: Any) -> None:
    stage(staging, 1, 0, 0, 5)
    with pytest.raises(InvalidInput):
        commit(log, 1, stages)
    assert log.head() == 0
    assert commit(log, 1, ["0-0"]).events == 5


def test_ids_that_are_stored_fail_the_batch_or_are_skipped(log: StoredLog, staging: Staging) -> None:
    log.append([event(id="3"), event(id="120"), event(id="121")])
    part = stage(staging, 1, 0, 0, 50)
    with pytest.raises(DuplicateEventId):
        commit(log, 1, [part])
    assert log.writer("w") is None
    assert commit(log, 1, [part], on_duplicate="skip") == Committed(4, 52, 49, 1, False)
    part = stage(staging, 2, 0, 0, 250)
    assert commit(log, 2, [part], on_duplicate="skip") == Committed(53, 250, 198, 52, False)
    assert sorted(map(int, ids(log.read()))) == list(range(250))
    part = stage(staging, 3, 0, 0, 250)
    assert commit(log, 3, [part], on_duplicate="skip") == Committed(0, 0, 0, 250, False)
    assert commit(log, 3, [part]) == Committed(0, 0, 0, 250, True)


def test_a_large_batch_that_fails_at_once_may_come_with_other_rows(log: StoredLog, staging: Staging) -> None:
    log.append([event(id="3")])
    bad = stage(staging, 1, 0, 0, 250)
    with pytest.raises(DuplicateEventId):
        commit(log, 1, [bad])
    good = stage(staging, 1, 0, 1000, 250, attempt=1)
    assert commit(log, 1, [good]).events == 250


def test_a_large_batch_that_fails_later_is_given_up_explicitly(log: StoredLog, staging: Staging) -> None:
    log.append([event(id="203")])
    bad = stage(staging, 1, 0, 0, 250)
    for _ in range(2):
        with pytest.raises(DuplicateEventId):
            commit(log, 1, [bad])
    assert log.writer("w") == WriterState("w", 1, 200, 2, 201, 200, False)
    assert stage(staging, 1, 0, 9000, 10) == "0-0", "it is frozen, so this is not taken"
    with pytest.raises(DuplicateEventId):
        commit(log, 2, [stage(staging, 2, 0, 5000, 5)])
    discard_staged(log, log.directory, "w", 1, gives_up=True)
    assert commit(log, 2, ["0-0"]).events == 5
    assert log.head() == 206


def test_nothing_is_staged_any_more_for_a_batch_that_was_given_up(log: StoredLog, staging: Staging) -> None:
    stage(staging, 1, 0, 0, 5)
    running = staging.stage("w", 1, 1, 0, SCHEMA)
    discard_staged(log, log.directory, "w", 1, gives_up=True)
    running.write(rows(5, 5))
    assert running.close().bytes == 0
    with pytest.raises(InvalidInput, match="discarded"):
        staging.stage("w", 1, 2, 0, SCHEMA)
    assert staging.staged_bytes() == 0
    stage(staging, 2, 0, 10, 5)
    commit(log, 2, ["0-0"])
    assert not list(log.directory.glob(f"{STAGED}/*/"))


def test_the_rest_of_a_batch_is_not_discarded_by_whoever_believes_it_failed(log: StoredLog, staging: Staging) -> None:
    """Else a repetition, which may have the rows in another order, would go on behind the wrong ones."""
    with pytest.raises(Stop):
        commit(log, 1, [stage(staging, 1, 0, 0, 350)], step=stopping_at("appended", 1))
    discard_staged(log, log.directory, "w", 1)
    parts = [stage(staging, 1, part, 175 * part, 175, attempt=1) for part in (1, 0)]
    assert commit(log, 1, parts) == Committed(1, 350, 350, 0, False)
    assert ids(log.read()) == list(map(str, range(350)))


def test_a_commit_that_has_only_begun_is_discarded(log: StoredLog, staging: Staging) -> None:
    with pytest.raises(Stop):
        commit(log, 1, [stage(staging, 1, 0, 0, 350)], step=stopping_at("manifest", 1))
    discard_staged(log, log.directory, "w", 1)
    assert staged_files(log) == []
    assert commit(log, 1, [stage(staging, 1, 0, 1000, 350)]).events == 350
    assert ids(log.read()) == list(map(str, range(1000, 1350)))


def test_events_that_are_stored_already_end_their_batch(log: StoredLog, staging: Staging) -> None:
    part = stage(staging, 1, 0, 0, 50)
    log.append_columns(columns([event("E", data=str(n).encode(), id=str(n)) for n in range(50)]))
    assert commit(log, 1, [part]) == Committed(0, 0, 0, 50, False)
    assert commit(log, 1, [part]).was_applied


def test_a_condition_needs_a_batch_that_fits_one_append(log: StoredLog, staging: Staging) -> None:
    condition = AppendCondition(Query.where(types=["E"]), 0)
    large = stage(staging, 1, 0, 0, 101)
    with pytest.raises(TooLarge, match="with a condition"):
        commit(log, 1, [large], condition=condition)
    small = stage(staging, 1, 1, 0, 100)
    assert commit(log, 1, [small], condition=condition).events == 100
    assert commit(log, 1, [small], condition=condition).was_applied
    stage(staging, 2, 0, 1000, 5)
    with pytest.raises(AppendConditionFailed):
        commit(log, 2, ["0-0"], condition=condition)
    assert commit(log, 2, ["0-0"]).events == 5


def test_a_batch_goes_to_the_partition_that_is_named(data: Path) -> None:
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders", LogSettings(partitions=4))
        part = stage(Staging(log.directory), 1, 0, 0, 20)
        commit(log, 1, [part], partition=2)
        assert {each.partition for each in log.read()} == {2}


class Stop(Exception):
    pass


def stopping_at(name: str, times: int) -> Any:
    left = [times]

    def step(done: str) -> None:
        left[0] -= done == name
        if left[0] == 0 and done == name:
            raise Stop

    return step


def test_a_begun_commit_goes_on_with_its_own_rows(log: StoredLog, staging: Staging) -> None:
    part = stage(staging, 1, 0, 0, 350)
    with pytest.raises(Stop):
        commit(log, 1, [part], step=stopping_at("appended", 2))
    log.append([event(id="between")])
    assert staging.stage("w", 1, 0, 0, SCHEMA).close() == Staged("0-0", 0, 0)
    other = staging.stage("w", 1, 0, 1, SCHEMA)
    other.write(rows(7000, 5))
    assert other.close() == Staged("0-1", 5, 0)
    assert commit(log, 1, ["0-1"]) == Committed(1, 351, 350, 0, False)
    assert ids(log.read()) == [*map(str, range(200)), "between", *map(str, range(200, 350))]


def test_a_later_batch_finishes_the_one_before_it(log: StoredLog, staging: Staging) -> None:
    with pytest.raises(Stop):
        commit(log, 1, [stage(staging, 1, 0, 0, 350)], step=stopping_at("appended", 1))
    stage(staging, 0, 0, 0, 10)
    commit(log, 2, [stage(staging, 2, 0, 1000, 5)])
    assert ids(log.read()) == list(map(str, [*range(350), *range(1000, 1005)]))
    assert staged_files(log) == [], "what was left of older batches is gone"


def test_one_batch_that_many_stage_and_commit_goes_in_once(log: StoredLog, staging: Staging) -> None:
    parts = [stage(staging, 1, 0, 1000 * attempt, 350, attempt) for attempt in range(6)]
    found: list[Committed] = []
    threads = [threading.Thread(target=lambda part=part: found.append(commit(log, 1, [part]))) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.was_applied for each in found) == [False] + [True] * 5
    assert {(each.first, each.last, each.events) for each in found} == {(1, 350, 350)}
    (first, *rest) = map(int, ids(log.read()))
    assert rest == list(range(first + 1, first + 350)), "the rows of one of them"


def test_a_commit_that_the_index_cannot_keep_up_with_is_refused_and_goes_on_where_it_stopped(
    data: Path, monkeypatch: pytest.MonkeyPatch, in_line: None
) -> None:
    """It holds nothing meanwhile: an append passes, and the commit of another writer is told the same."""
    monkeypatch.setattr(events_module, "APPEND_EVENTS_MAX", 100)
    with Engine(data, maintains=False, unindexed_bytes_max=16_000) as engine:
        log = engine.create("orders")
        staging, heads = Staging(log.directory), []
        stages = [stage(staging, 1, 0, 0, 950)]
        with pytest.raises(Overloaded) as refused:
            commit(log, 1, stages)
        assert refused.value.is_of_index and refused.value.retry_after_s > 0
        for _ in range(20):
            engine.maintain()
            heads.append(log.head())
            try:
                committed = commit(log, 1, stages)
                break
            except Overloaded:
                assert not log.append([event(id=f"between {log.head()}")]).was_stored
        assert heads[0] > 0 and len(set(heads)) == len(heads) > 1, "each call went on"
        assert (committed.events, committed.was_applied) == (950, False)
        assert [id for id in ids(log.read()) if id.isdecimal()] == [str(number) for number in range(950)]


def test_how_much_is_staged_is_bounded(log: StoredLog) -> None:
    staging = Staging(log.directory, bytes_max=100_000)
    writer = staging.stage("w", 1, 0, 0, SCHEMA)
    with pytest.raises(Overloaded) as caught:
        for _ in range(100):
            writer.write(rows(0, 100))
    assert caught.value.allowed_bytes == 100_000
    writer.abort()
    disk = FaultyDisk()
    disk.free = 1000
    with pytest.raises(DiskFull):
        Staging(log.directory, disk=disk).stage("w", 1, 0, 0, SCHEMA)


def test_a_log_that_is_deleted_while_rows_are_staged_is_told(data: Path) -> None:
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders")
        staging = Staging(log.directory)
        first, second = (staging.stage("w", 1, part, 0, SCHEMA) for part in (0, 1))
        first.write(rows(0, 5))
        engine.delete("orders")
        with pytest.raises(StorageUnavailable, match="the log was deleted"):
            first.close()
        with pytest.raises(StorageUnavailable, match="the log was deleted"):
            second.write(rows(0, 5))
            second.close()
        second.abort()
        with pytest.raises(StorageUnavailable, match="the log was deleted"):
            staging.stage("w", 2, 0, 0, SCHEMA)
        assert not log.directory.exists()


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, StorageUnavailable)]
)
def test_a_file_that_cannot_be_finished_leaves_nothing(
    log: StoredLog, staging: Staging, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, "no")

    for step in ("fsync", "replace"):
        writer = staging.stage("w", 1, 0, 0, SCHEMA)
        writer.write(rows(0, 5))
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fails)
            with pytest.raises(expected):
                writer.close()
    assert staged_files(log) == []


def test_what_nobody_commits_is_forgotten_after_a_week(log: StoredLog, staging: Staging) -> None:
    stage(staging, 1, 0, 0, 5)
    with pytest.raises(Stop):
        commit(log, 2, [stage(staging, 2, 0, 0, 350)], step=stopping_at("manifest", 1))
    stage(staging, 3, 0, 0, 5)
    unfinished = staging.stage("w", 4, 0, 0, SCHEMA)
    paths = {path.parent.name: path for path in log.directory.glob(f"{STAGED}/*/*/*") if path.suffix != ".json"}
    now = paths["3"].stat().st_mtime
    for batch in "24":
        os.utime(paths[batch], (now - ORPHAN_AGE_S - 10, now - ORPHAN_AGE_S - 10))
    stage(staging, 1, 9, 0, 5)
    os.utime(next(log.directory.glob(f"{STAGED}/*/1/9-0.arrow")), (0, 0))
    drop_orphans(log.directory, now)
    left = [path.split("/", 1)[1] for path in staged_files(log)]
    assert left == ["2/0-0.arrow", "2/MANIFEST.json", "3/0-0.arrow"]
    unfinished.abort()
    assert commit(log, 2, []).events == 350


def test_rows_that_are_aborted_while_others_begin_are_in_nobodys_way(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "_files", lambda directory: iter([directory / STAGED / "w" / "1" / "gone.tmp"]))
    staging.stage("w", 1, 0, 0, SCHEMA).abort()
    Staging(staging.directory).stage("w", 1, 0, 0, SCHEMA).abort()


def test_what_is_staged_is_not_looked_through_for_each_stage(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(batches_module, "_files", lambda directory: looked.append(directory) or iter(()))
    for part in range(100):
        stage(staging, 1, part, 10 * part, 10)
    assert len(looked) < 10


def test_a_damaged_file_is_refused_until_it_is_discarded(log: StoredLog, staging: Staging) -> None:
    part = stage(staging, 1, 0, 0, 250)
    (path,) = log.directory.glob(f"{STAGED}/*/1/*.arrow")
    os.truncate(path, 3000)
    with pytest.raises(StorageCorrupted, match="stage it again"):
        commit(log, 1, [part])
    discard_staged(log, log.directory, "w", 1)
    assert commit(log, 1, [stage(staging, 1, 0, 0, 250)]).events == 250


def test_a_batch_of_a_writer_that_marks_by_itself_is_known_to_commits(log: StoredLog, staging: Staging) -> None:
    log.append_columns(columns([event()]), mark=Mark("w", 5, 1, True))
    assert commit(log, 5, [stage(staging, 5, 0, 0, 10)]) == Committed(1, 1, 1, 0, True)


# What is staged is what is appended.


def altered(log: StoredLog, id: bytes) -> None:
    """Alter one row of what is staged, as a disk might."""
    (path,) = log.directory.glob(f"{STAGED}/*/1/*.arrow")
    content = path.read_bytes()
    path.write_bytes(content.replace(id, id[:-1] + b"~"))
    assert path.read_bytes() != content


@pytest.mark.parametrize("count", [90, 350])
def test_an_altered_row_is_told_and_never_appended(log: StoredLog, staging: Staging, count: int) -> None:
    part = stage(staging, 1, 0, 1000, count)
    altered(log, b"1042")
    for _ in range(2):
        with pytest.raises(StorageCorrupted, match="stage it again"):
            commit(log, 1, [part])
    assert (log.head(), log.writer("w")) == (0, None)
    assert "the checksum does not match" in check(log)[0]
    again = stage(staging, 1, 0, 1000, count, attempt=1)
    assert commit(log, 1, [again]).events == count, "another attempt is whole"


def check(log: StoredLog) -> list[str]:
    """What is told of the staged batches of a log."""
    problems: list[str] = []
    notes: list[str] = []
    check_staged(log.directory, problems, notes)
    return problems + notes


def as_0_1_0_had_it(log: StoredLog) -> None:
    """Take away what 0.1.0 did not write."""
    for path in log.directory.glob(f"{STAGED}/*/*/*.arrow"):
        path.write_bytes(path.read_bytes()[: -len(PART_MAGIC) - 4])
    for path in log.directory.glob(f"{STAGED}/*/*/{MANIFEST_NAME}"):
        found = json.loads(path.read_bytes())
        names = ("writer", "batch", "stages", "partition", "on_duplicate")
        path.write_text(json.dumps({name: found[name] for name in names}))


def test_what_0_1_0_staged_and_did_not_begin_to_commit_is_to_be_staged_again(log: StoredLog, staging: Staging) -> None:
    part = stage(staging, 1, 0, 0, 30)
    as_0_1_0_had_it(log)
    with pytest.raises(StorageCorrupted, match=r"0\.1\.0 wrote none.*stage it again"):
        commit(log, 1, [part])
    assert "has to stage it again" in check(log)[0]
    assert commit(log, 1, [stage(staging, 1, 0, 0, 30)]).events == 30


def test_a_commit_that_0_1_0_began_is_finished(log: StoredLog, staging: Staging) -> None:
    part = stage(staging, 1, 0, 0, 350)
    with pytest.raises(Stop):
        commit(log, 1, [part], step=stopping_at("appended", 2))
    as_0_1_0_had_it(log)
    assert check(log) == []
    assert commit(log, 1, [part]).events == 350
    assert ids(log.read()) == list(map(str, range(350)))


@pytest.mark.parametrize("name", ["writer", "stages", "partition", "on_duplicate"])
def test_a_manifest_of_0_1_0_with_a_hurt_name_is_refused(log: StoredLog, staging: Staging, name: str) -> None:
    with pytest.raises(Stop):
        commit(log, 1, [stage(staging, 1, 0, 0, 350)], step=stopping_at("appended", 2))
    as_0_1_0_had_it(log)
    (path,) = log.directory.glob(f"{STAGED}/*/1/{MANIFEST_NAME}")
    path.write_text(path.read_text().replace(name, name[:-1] + "~"))
    with pytest.raises(StorageCorrupted, match="is missing"):
        commit(log, 1, ["0-0"])


def test_a_manifest_of_another_batch_is_refused(log: StoredLog, staging: Staging) -> None:
    with pytest.raises(Stop):
        commit(log, 1, [stage(staging, 1, 0, 0, 350)], step=stopping_at("appended", 2))
    (path,) = log.directory.glob(f"{STAGED}/*/1")
    with pytest.raises(StorageCorrupted, match="another batch"):
        read_manifest(path.rename(path.with_name("2")))
