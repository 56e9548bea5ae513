"""Whose staged batches are: who writes under a name first keeps it, and only who manages the log may meddle."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core.access import Forbidden, Grant, OpenGuard, Right, User
from headwater.core.errors import InvalidInput, StorageCorrupted
from headwater.core.mark import BATCH_MAX
from headwater.flight.wire import CommitBody, DiscardBody, StageCommand, WriterBody, encode
from headwater.server.bulk.backend import BulkBackend
from headwater.server.bulk.calls import BulkCalls
from headwater.server.bulk.link import Answering, Link
from headwater.server.users.accounts import Account, AccountDirectory
from headwater.server.users.guard import AccountGuard
from headwater.storage import Engine
from headwater.storage.backup import backup
from headwater.storage.memory import MemoryState
from headwater.storage.staging.owners import OWNERS, claim, owner_of, release_unknown

ROW = pa.record_batch({"type": pa.array(["A"]), "data": pa.array([b"x"])})
APPENDS = (Grant("orders", frozenset({Right.APPEND})),)
ALICE, BOB = User("alice", APPENDS), User("bob", APPENDS)
CHIEF = User("chief", (Grant("orders", frozenset({Right.APPEND, Right.MANAGE})),))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "data", maintains=False) as engine:
        engine.create("orders")
        yield engine


@pytest.fixture
def guard() -> AccountGuard:
    accounts = [Account(user.name, user.grants) for user in (ALICE, BOB, CHIEF)]
    return AccountGuard(AccountDirectory(accounts, MemoryState()), allows_anybody=False)


@pytest.fixture
def backend(engine: Engine, guard: AccountGuard) -> Iterator[BulkBackend]:
    ours, theirs = socket.socketpair()
    calls = BulkCalls(engine, guard)
    ours.setblocking(False)
    thread = threading.Thread(target=lambda: asyncio.run(Answering(calls.table()).run(ours)))
    thread.start()
    link = Link(theirs, ended=lambda: None, asked=lambda what, arguments: None)
    yield BulkBackend(link, lends=True, staged_bytes_max=2**30, disk_reserve_bytes=0)
    theirs.shutdown(socket.SHUT_RDWR)
    thread.join()
    theirs.close()
    calls.close()


def stage(backend: BulkBackend, user: User, batch: int = 1, writer: str = "job") -> str:
    writing = backend.stage(user, StageCommand("orders", writer, batch, 0), ROW.schema)
    writing.write(ROW)
    return writing.close().stage


def commit(backend: BulkBackend, user: User, stages: list[str], batch: int = 1, writer: str = "job") -> None:
    backend.act(user, "commit", encode(CommitBody("orders", writer, batch, stages)))


def discard(backend: BulkBackend, user: User, batch: int = 1, writer: str = "job", *, gives_up: bool = False) -> None:
    backend.act(user, "discard", encode(DiscardBody("orders", writer, batch, gives_up)))


def forget(backend: BulkBackend, user: User, writer: str = "job") -> None:
    backend.act(user, "forget_writer", encode(WriterBody("orders", writer)))


def test_nobody_ends_or_undoes_the_staged_batch_of_another(
    engine: Engine, backend: BulkBackend, guard: AccountGuard
) -> None:
    staged = stage(backend, ALICE)
    for meddles in (
        lambda: stage(backend, BOB),
        lambda: discard(backend, BOB),
        lambda: discard(backend, BOB, gives_up=True),
        lambda: commit(backend, BOB, [staged]),
        lambda: commit(backend, BOB, [], BATCH_MAX),  # after which all of hers would count as done
    ):
        with pytest.raises(Forbidden, match="because the writer's name belongs to another user") as refused:
            meddles()
        assert (refused.value.user, refused.value.right) == ("bob", Right.MANAGE)
    assert guard.refusals["forbidden"] == 5
    assert engine.open("orders").head() == 0
    commit(backend, ALICE, [staged])
    assert engine.open("orders").head() == 1


def test_a_name_stays_whose_it_was_over_batches_and_restarts(
    engine: Engine, backend: BulkBackend, tmp_path: Path
) -> None:
    commit(backend, ALICE, [stage(backend, ALICE)])
    with pytest.raises(Forbidden):
        stage(backend, BOB, 2)
    with pytest.raises(Forbidden):
        commit(backend, BOB, [], 2)
    engine.close()
    with Engine(tmp_path / "data", maintains=False) as again:
        assert owner_of(again.open("orders").directory, "job") == "alice"


def test_who_manages_the_log_may_do_so_and_takes_no_name_away(engine: Engine, backend: BulkBackend) -> None:
    staged = stage(backend, ALICE)
    commit(backend, CHIEF, [staged])
    stage(backend, CHIEF, 2)
    commit(backend, ALICE, [stage(backend, ALICE, 2)], 2)
    assert engine.open("orders").head() == 2


def test_a_name_is_free_again_where_nothing_was_written_or_the_writer_is_forgotten(backend: BulkBackend) -> None:
    stage(backend, BOB)
    discard(backend, CHIEF)
    commit(backend, ALICE, [stage(backend, ALICE)])
    with pytest.raises(Forbidden):
        discard(backend, BOB)
    commit(backend, ALICE, [stage(backend, ALICE, BATCH_MAX)], BATCH_MAX)
    with pytest.raises(Forbidden):
        stage(backend, BOB, 3)
    forget(backend, ALICE)
    stage(backend, BOB, 3)


def test_nobody_has_the_writer_of_another_forgotten(engine: Engine, backend: BulkBackend, guard: AccountGuard) -> None:
    commit(backend, ALICE, [stage(backend, ALICE, BATCH_MAX)], BATCH_MAX)
    with pytest.raises(Forbidden, match="another user"):
        forget(backend, BOB)
    assert engine.open("orders").writer("job") is not None
    forget(backend, CHIEF)
    assert engine.open("orders").writer("job") is None
    forget(backend, BOB)


def test_a_writer_that_has_not_ended_keeps_its_name(engine: Engine, backend: BulkBackend) -> None:
    commit(backend, ALICE, [stage(backend, ALICE)])
    with pytest.raises(InvalidInput, match="is unfinished"):
        forget(backend, ALICE)
    with pytest.raises(Forbidden):
        stage(backend, BOB, 2)


def test_what_is_staged_under_a_name_keeps_it(engine: Engine, backend: BulkBackend) -> None:
    staged = stage(backend, ALICE)
    forget(backend, ALICE)
    commit(backend, ALICE, [staged])
    assert owner_of(engine.open("orders").directory, "job") == "alice"


def test_names_of_writers_that_are_forgotten_for_their_age_are_released_by_maintenance(
    engine: Engine, backend: BulkBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(backend, ALICE, [stage(backend, ALICE, BATCH_MAX)], BATCH_MAX)
    log = engine.open("orders")
    log.forget_writer("job")
    engine.maintain(retention=True)
    assert owner_of(log.directory, "job") == "alice", "there is room for it"
    monkeypatch.setattr("headwater.storage.staging.owners.WRITERS_MAX", 0)
    engine.maintain(retention=True)
    assert owner_of(log.directory, "job") is None


def test_where_nobody_has_a_name_writers_have_no_owner(engine: Engine) -> None:
    directory = engine.open("orders").directory
    assert claim(directory, "job", "") is None and owner_of(directory, "job") is None
    assert not (directory / OWNERS).exists()
    assert claim(directory, "job", "alice") == "alice" == claim(directory, "job", "bob")
    assert OpenGuard().authorize(User("", ()), Right.MANAGE, "orders") is None


@pytest.mark.parametrize("damage", [b"alice", b"{}", b""])
def test_an_owner_that_cannot_be_read_is_told_and_not_replaced(engine: Engine, damage: bytes) -> None:
    directory = engine.open("orders").directory
    claim(directory, "job", "alice")
    (path,) = (directory / OWNERS).iterdir()
    whole = path.read_bytes()
    for broken in (damage, whole.replace(b"alice", b"blice")):
        path.write_bytes(broken)
        with pytest.raises(StorageCorrupted, match="remove the file"):
            claim(directory, "job", "bob")
        assert path.read_bytes() == broken


def test_owners_are_in_a_backup(engine: Engine, tmp_path: Path) -> None:
    directory = engine.open("orders").directory
    claim(directory, "job", "alice")
    backup(tmp_path / "data", tmp_path / "copy")
    assert owner_of(tmp_path / "copy" / directory.relative_to(tmp_path / "data"), "job") == "alice"


def test_names_of_writers_that_the_log_has_forgotten_are_forgotten(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = engine.open("orders").directory
    for writer in ("kept", "gone", "damaged"):
        claim(directory, writer, "alice")
    monkeypatch.setattr("headwater.storage.staging.owners.WRITERS_MAX", 3)
    release_unknown(directory, lambda writer: writer == "kept")
    assert owner_of(directory, "gone") == "alice", "there is room for it"
    monkeypatch.setattr("headwater.storage.staging.owners.WRITERS_MAX", 2)
    release_unknown(directory, lambda writer: writer == "kept")
    assert owner_of(directory, "gone") is None and owner_of(directory, "kept") == "alice"
