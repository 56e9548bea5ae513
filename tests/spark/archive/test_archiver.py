"""An archiver, without Spark: whatever is killed, deleted or replaced, the table has every event once, and the log
forgets none that it has not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headwater.core import LogSettings
from headwater.core.errors import ConsumerFenced, PositionTrimmed
from headwater.flight.client import BulkClient
from headwater.flight.wire import Ticket
from headwater.spark.archive import archiver as module
from headwater.spark.archive.archiver import COMPONENT, Archiver, Keeping, claim_of
from headwater.spark.archive.errors import (
    ArchiveFenced,
    ArchiveIncomplete,
    ArchiveUnreadable,
    ConsumerAhead,
    EventsMissing,
    NotAnArchive,
)
from headwater.spark.archive.snapshot import snapshot
from headwater.spark.archive.table import ArchiveTable
from headwater.spark.delta.table import Table
from headwater.storage.memory import MemoryStore

from ...builders import event
from ...flight.memory_backend import bulk_server
from ...parquet_damage import flip_in
from ..archive_tables import data_files, stage_next, step


class World:
    """A log `orders` behind a bulk server, and a place for its archive."""

    def __init__(self, store: MemoryStore, client: BulkClient, path) -> None:
        self.store, self.client, self.path = store, client, path
        self.log = store.create("orders")

    def append(self, count: int) -> None:
        head = self.log.head()
        self.log.append([event("T", f"n:{head + index}", data=b"{}") for index in range(count)])

    def open(self, **options) -> Archiver:
        return Archiver.open(self.client, "orders", self.path, **options)

    def archived(self) -> list[int]:
        found = DeltaTable(self.path).to_pyarrow_table(columns=["sequence_number"])
        return sorted(found["sequence_number"].to_pylist())

    def acknowledged(self) -> int:
        consumer = self.client.consumer("orders", "spark", COMPONENT)
        assert consumer is not None
        return consumer.acknowledged


@pytest.fixture
def world(tmp_path) -> Iterator[World]:
    store = MemoryStore()
    with bulk_server(store) as url, BulkClient(url) as client:
        yield World(store, client, tmp_path / "orders")


class Killed(BaseException):
    """What happens to an archiver in these tests."""


@contextmanager
def killed(monkeypatch, target: object, name: str, *, after: bool = False) -> Iterator[None]:
    """The archiver dies when that is called, before it does anything, or after it did."""
    whole = getattr(target, name)

    def die(*arguments, **named):
        if after:
            whole(*arguments, **named)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(target, name, die)
        yield


def test_archiver_is_a_registered_consumer_that_everybody_sees(world):
    world.append(10)
    world.open()
    (consumer,) = world.log.consumers()
    assert (consumer.owner, consumer.component, consumer.acknowledged) == ("spark", "ARCHIVER", 0)
    assert world.log.trim(11) == 1, "nothing goes before it is archived"


def test_events_are_acknowledged_when_they_are_in_the_table_and_then_the_log_trims_them(world):
    world.append(30)
    archiver = world.open()
    step(archiver, world.client, upto=20)
    assert (world.archived(), world.acknowledged()) == (list(range(1, 21)), 20)
    assert world.log.trim(31) == 21
    step(archiver, world.client)
    assert (world.archived(), world.acknowledged()) == (list(range(1, 31)), 30)
    assert world.log.trim(31) == 31


def test_table_of_a_log_that_was_trimmed_before_begins_where_the_log_does(world):
    world.append(30)
    world.log.trim(11)
    archiver = world.open()
    step(archiver, world.client)
    assert (snapshot(world.path).first, world.archived()) == (11, list(range(11, 31)))


CRASHES = [
    (module, "inspect", False),
    (module, "sync", False),
    (ArchiveTable, "commit", False),
    (ArchiveTable, "commit", True),
    (BulkClient, "acknowledge", False),
    (BulkClient, "acknowledge", True),
    (BulkClient, "trim", False),
]


@pytest.mark.parametrize(("target", "name", "after"), CRASHES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_archiver_that_is_killed_at_that_step_loses_nothing_and_adds_nothing_twice(
    world, monkeypatch, target, name, after
):
    world.append(30)
    keeping = Keeping(is_trimming=True)
    archiver = world.open(keeping=keeping)
    step(archiver, world.client, upto=10)
    with killed(monkeypatch, target, name, after=after):
        step(archiver, world.client, upto=20)
    world.append(5)
    again = world.open(keeping=keeping)
    assert world.acknowledged() == again.archived == again.after
    step(again, world.client)
    assert world.archived() == list(range(1, 36))
    assert (world.acknowledged(), world.log.info().first_retained) == (35, 36)
    assert data_files(world.path) == sorted(file.path for file in snapshot(world.path).files), (
        "what was staged in vain is gone"
    )


@pytest.mark.parametrize(
    ("target", "name", "after"),
    [
        (BulkClient, "register_consumer", True),
        (ArchiveTable, "create", True),
        (ArchiveTable, "claim", False),
        (ArchiveTable, "claim", True),
    ],
    ids=["registered", "created", "before claim", "claimed"],
)
def test_archiver_that_is_killed_while_it_opens_is_opened_again(world, monkeypatch, target, name, after):
    world.append(10)
    with killed(monkeypatch, target, name, after=after):
        world.open()
    step(world.open(), world.client)
    assert world.archived() == list(range(1, 11))


def test_older_of_two_archivers_can_neither_commit_nor_acknowledge(world):
    world.append(20)
    older = world.open()
    step(older, world.client, upto=10)
    newer = world.open()
    stage_next(older, world.client)
    with pytest.raises(ArchiveFenced):
        older.commit()
    with pytest.raises(ConsumerFenced):
        older.release()
    step(newer, world.client)
    assert (world.archived(), world.acknowledged()) == (list(range(1, 21)), 20)


def test_older_archiver_whose_files_are_removed_while_it_writes_them_says_why(world):
    world.append(20)
    older = world.open()
    with pytest.raises(ArchiveFenced), older.adding():
        stage_next(older, world.client)
        world.open()
        for path in older.directory.rglob("*.parquet"):
            path.read_bytes()
        (older.directory / "date=2026-11-21" / "part-next.parquet").write_bytes(b"")


def test_what_fails_for_another_reason_stays_what_it_is(world):
    world.append(20)
    archiver = world.open()
    with pytest.raises(ZeroDivisionError), archiver.adding():
        print(1 / 0)


def test_older_archiver_writes_nowhere_where_the_newer_one_does(world):
    """One that slept since it looked, and wakes up when its batch is long in the table, by another's hand."""
    world.append(20)
    older, newer = world.open(), world.open()
    step(newer, world.client)
    assert older.directory != newer.directory
    stage_next(older, world.client)
    assert world.archived() == list(range(1, 21))
    step(world.open(), world.client)
    assert world.archived() == list(range(1, 21))


def test_claims_rise_though_the_consumer_was_unregistered_in_between(world, monkeypatch):
    world.append(10)
    for _ in range(3):
        archiver = world.open()
    step(archiver, world.client)
    first = archiver.claim
    world.log.unregister_consumer("spark", COMPONENT)
    world.append(10)
    again = world.open()
    consumer = world.client.consumer("orders", "spark", COMPONENT)
    assert consumer is not None and consumer.epoch == 1 and again.claim == claim_of(consumer) > first
    step(again, world.client)
    assert world.archived() == list(range(1, 21))


def test_newest_numbers_stay_in_the_log_as_long_as_is_wanted(world):
    world.append(30)
    archiver = world.open(keeping=Keeping(numbers=10, is_trimming=True))
    step(archiver, world.client)
    assert (len(world.archived()), world.acknowledged(), world.log.info().first_retained) == (30, 20, 21)


def test_newest_minutes_stay_in_the_log_as_long_as_is_wanted(tmp_path):
    now = [1_000_000]
    store = MemoryStore(clock=lambda: now[0])
    with bulk_server(store) as url, BulkClient(url) as client:
        world = World(store, client, tmp_path / "orders")
        world.append(10)
        now[0] = int(datetime.now(UTC).timestamp() * 1000)
        world.append(10)
        archiver = world.open(keeping=Keeping(seconds=60))
        step(archiver, client)
        assert (len(world.archived()), world.acknowledged()) == (20, 10)


def test_table_that_lacks_what_its_consumer_acknowledged_is_refused_with_what_to_do(world, tmp_path):
    world.append(20)
    step(world.open(), world.client)
    world.path = tmp_path / "other"
    with pytest.raises(ConsumerAhead, match="headwater consumers unregister orders spark ARCHIVER"):
        world.open()
    world.log.unregister_consumer("spark", COMPONENT)
    step(world.open(), world.client)
    assert world.archived() == list(range(1, 21))


def test_gap_between_the_table_and_the_log_is_refused_unless_it_is_accepted(world):
    world.append(30)
    step(world.open(), world.client, upto=10)
    world.log.unregister_consumer("spark", COMPONENT)
    world.log.trim(21)
    with pytest.raises(EventsMissing, match="contains the events up to 10, but log 'orders' starts at 21"):
        world.open()
    step(world.open(accepts_gap=True), world.client)
    assert world.archived() == [*range(1, 11), *range(21, 31)]
    step(world.open(), world.client)


def test_log_that_was_made_again_is_refused_unless_that_is_accepted(world):
    world.append(30)
    step(world.open(), world.client, upto=20)
    world.store.delete("orders")
    world.log = world.store.create("orders")
    world.append(5)
    first = world.log.info().first_retained
    with pytest.raises(EventsMissing, match="was replaced"):
        world.open()
    archiver = world.open(accepts_gap=True)
    step(archiver, world.client)
    assert world.archived() == [*range(1, 21), *range(first, first + 5)]
    world.append(5)
    step(world.open(), world.client)
    assert len(world.archived()) == 30


def test_archive_of_another_log_is_refused_before_anything_is_registered(world):
    ArchiveTable.create(world.path, "payments", "i", 1)
    with pytest.raises(NotAnArchive, match="archive of log 'payments', not of 'orders'"):
        world.open()
    assert world.log.consumers() == []


def test_batch_with_an_event_too_few_is_not_committed(world):
    world.append(30)
    archiver = world.open()
    stage_next(archiver, world.client)
    (path,) = archiver.directory.rglob("*.parquet")
    pq.write_table(pq.read_table(path, partitioning=None).filter(pc.field("sequence_number") != 17), path)
    with pytest.raises(ArchiveIncomplete, match="29 events up to 30 were staged, but the log has 30"):
        archiver.commit()
    assert (world.archived(), world.acknowledged()) == ([], 0)


def test_batch_without_events_changes_nothing(world):
    archiver = world.open()
    version = snapshot(world.path).version
    assert archiver.commit() is None
    archiver.release()
    assert snapshot(world.path).version == version


def test_log_that_trims_on_acknowledgement_does_so_behind_the_archiver(world):
    world.store.change("orders", LogSettings(retention_until_acknowledged=True))
    world.append(10)
    step(world.open(), world.client)
    world.log.trim(11)
    with pytest.raises(PositionTrimmed):
        list(world.client.read(Ticket("orders", after=3)))
    assert world.archived() == list(range(1, 11))


def test_events_are_not_acknowledged_from_a_damaged_file(world) -> None:
    world.append(100)
    archiver = world.open(keeping=Keeping(is_trimming=True))
    with archiver.adding():
        stage_next(archiver, world.client)
        archiver.commit()
    flip_in(Path(snapshot(world.path).files[0].path), "data")
    for acknowledge in (archiver.release, world.open):
        with pytest.raises(ArchiveUnreadable, match="the file does not match its checksum"):
            acknowledge()
    assert world.acknowledged() == 0


def test_files_of_a_commit_are_not_read_a_second_time_before_they_are_acknowledged(world, monkeypatch) -> None:
    read: list[str] = []
    check = module.check_file
    monkeypatch.setattr(module, "check_file", lambda path: (read.append(path), check(path)))
    world.append(100)
    archiver = world.open(keeping=Keeping(numbers=10))
    step(archiver, world.client)
    assert (world.acknowledged(), read) == (90, [])
    world.append(20)
    step(archiver, world.client)  # from 91 on: some are in the file of an earlier commit
    assert world.acknowledged() == 110
    assert sorted(read) == sorted(file.path for file in snapshot(world.path).files)
    world.append(5)
    del read[:]
    with archiver.adding():
        stage_next(archiver, world.client)
        archiver.commit()
    ArchiveTable(world.path).sum_up()
    DeltaTable(world.path).alter.set_table_properties({"a.b": "c"}, raise_if_not_exists=False)
    archiver.release()  # somebody else has committed since
    assert read
    assert world.acknowledged() == 115


def test_events_that_are_acknowledged_later_than_their_commit_are_read_again(world) -> None:
    """With `keep`, days may have passed: a disk that rots changes no time of a file."""
    world.append(100)
    archiver = world.open(keeping=Keeping(numbers=10))
    step(archiver, world.client)
    assert world.acknowledged() == 90
    path = Path(snapshot(world.path).files[0].path)
    found = path.stat()
    flip_in(path, "data")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    archiver.keeping = Keeping()
    with pytest.raises(ArchiveUnreadable, match="the file does not match its checksum"):
        archiver.release()
    assert world.acknowledged() == 90


def test_files_that_another_program_puts_in_the_place_of_a_commit_at_once_are_read(world, monkeypatch) -> None:
    read: list[str] = []
    check, commit = module.check_file, Table.commit
    monkeypatch.setattr(module, "check_file", lambda path: (read.append(path), check(path)))
    world.append(100)
    archiver = world.open()

    def overtaken(table: Table, *arguments, **named) -> bool:
        is_first = commit(table, *arguments, **named)
        DeltaTable(world.path).alter.set_table_properties({"a.b": "c"}, raise_if_not_exists=False)
        return is_first

    with monkeypatch.context() as patch, archiver.adding():
        patch.setattr(Table, "commit", overtaken)
        stage_next(archiver, world.client)
        archiver.commit()
    archiver.release()
    assert read == [file.path for file in snapshot(world.path).files]
