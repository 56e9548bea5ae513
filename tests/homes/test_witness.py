"""What a copy can prove of its home: which term it held last, and that nothing of it is missing in its own files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.core.errors import StorageCorrupted
from headwater.storage.disk import system
from headwater.storage.disk.checked_file import with_checksum
from headwater.storage.frames.frame_log import Term
from headwater.storage.home.copy_file import COPY_NAME, home_of, mark_copy
from headwater.storage.home.witness import HELD_NAME, Witness
from headwater.storage.log import StoredLog

from ..storage.builders import change, log_directory, newest
from .postgres_server import fresh_home
from .test_engine import FailingDisk, Server, add
from .test_following import Replica

TERM = Term(7, 2**61)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The directory of a copy that has held a term."""
    directory = tmp_path / "a"
    directory.mkdir()
    mark_copy(directory, "f" * 32)
    Witness(directory).hold(TERM)
    return directory


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server of one home, whose copy holds its term."""
    url = fresh_home()
    servers: list[Server] = []

    def started(name: str, **options: Any) -> Server:
        servers.append(Server(url, tmp_path / name, **options))
        return servers[-1]

    yield started
    for each in servers:
        each.close()


def held(directory: Path) -> Term:
    evidence = Witness(directory).evidence()
    assert evidence is not None
    return evidence.held


def is_another_boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, boot: str = "another") -> None:
    (tmp_path / "boot").write_text(boot)
    monkeypatch.setattr(system, "BOOT", tmp_path / "boot")


def test_a_copy_says_which_it_is_and_what_it_saw_and_held(copy: Path) -> None:
    first = Witness(copy).evidence()
    assert first is not None and first.is_whole
    assert (first.held, first.seen, first.inode) == (TERM, Term(0, 0), copy.stat().st_ino)
    Witness(copy).see(Term(9, 1))
    Witness(copy).see(Term(8, 1))
    second = Witness(copy).evidence()
    assert second is not None and second.seen == Term(9, 1) and second.id == first.id
    assert home_of(copy) == "f" * 32


def test_what_is_no_copy_says_nothing(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    witness.open()
    witness.see(TERM)
    witness.hold(TERM)
    witness.end("nothing")
    witness.close()
    assert witness.evidence() is None
    assert list(tmp_path.iterdir()) == []


def test_a_start_of_the_machine_ends_the_proof_unless_the_copy_was_closed_in_order(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Witness(copy).open()
    assert held(copy) == TERM
    Witness(copy).close()
    is_another_boot(monkeypatch, tmp_path)
    assert held(copy) == TERM
    Witness(copy).open()
    assert held(copy) == TERM
    is_another_boot(monkeypatch, tmp_path, "third")
    assert held(copy) == Term(0, 0)
    Witness(copy).open()
    assert not (copy / HELD_NAME).exists()


def test_an_opening_that_cannot_be_stored_ends_the_proof(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("headwater.storage.disk.checked_file.write_whole", is_full)
        Witness(copy).open()
    assert not (copy / HELD_NAME).exists()
    assert held(copy) == Term(0, 0)


def test_a_machine_that_does_not_say_when_it_was_started_proves_nothing(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_another_boot(monkeypatch, tmp_path, "")
    assert held(copy) == Term(0, 0)
    Witness(copy).hold(TERM)
    assert held(copy) == Term(0, 0)


def test_a_copied_directory_is_another_copy_and_proves_nothing(copy: Path, tmp_path: Path) -> None:
    first = Witness(copy).evidence()
    shutil.copytree(copy, tmp_path / "b")
    other = Witness(tmp_path / "b")
    assert other.evidence() is None
    other.open()
    second = other.evidence()
    assert first is not None and second is not None
    assert second.id != first.id and second.held == Term(0, 0)
    (tmp_path / "a").rename(tmp_path / "c")
    assert Witness(tmp_path / "c").evidence() == first


def test_a_copy_of_an_earlier_version_is_another_one_from_its_first_opening_on(tmp_path: Path) -> None:
    home = "0" * 32
    (tmp_path / COPY_NAME).write_bytes(with_checksum(msgspec.json.encode({"format": 1, "home": home})))
    assert Witness(tmp_path).evidence() is None
    Witness(tmp_path).open()
    assert (first := Witness(tmp_path).evidence()) is not None and first.id
    Witness(tmp_path).open()
    assert (second := Witness(tmp_path).evidence()) is not None and second.id == first.id
    assert home_of(tmp_path) == home


def test_a_proof_that_is_damaged_is_none(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    (copy / HELD_NAME).write_bytes(b"{}")
    assert held(copy) == Term(0, 0)
    assert "remove it: its server creates a new one" in caplog.text
    (copy / COPY_NAME).write_bytes(b"{}")
    with pytest.raises(StorageCorrupted):
        Witness(copy).evidence()


def test_a_frame_that_was_not_kept_ends_the_proof_before_it_is_answered(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    disk = FailingDisk()
    server = serve("a", disk=disk)
    add(server.orders, 3)
    assert held(tmp_path / "a") == server.home.term
    disk.is_failing.set()
    add(server.orders, 1, begin=3)
    assert held(tmp_path / "a") == Term(0, 0)
    assert server.orders.head() == 3


def test_a_log_that_begins_damaged_ends_the_proof_and_an_end_that_was_not_written_down_does_not(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: StoredLog) -> None:
        raise OSError(5, "Input/output error")

    server = serve("a")
    add(server.orders, 3)
    segment = newest(server.orders)
    with monkeypatch.context() as patched:
        patched.setattr(StoredLog, "_write_down_end", fails)
        server.close()
    assert held(tmp_path / "a") == server.home.term
    is_another_boot(monkeypatch, tmp_path)
    assert held(tmp_path / "a") == Term(0, 0)
    monkeypatch.undo()
    change(segment, 200, b"\0" * 64)
    again = Replica(server.home.url, tmp_path / "a")
    try:
        assert again.orders.head() == 3  # what is missing was fetched
        assert held(tmp_path / "a") == Term(0, 0)
        term = again.take_over().home.term
        assert held(tmp_path / "a") == term  # it has all again
    finally:
        again.close()


@pytest.mark.parametrize("what", ["a log", "the journal"])
def test_what_is_missing_in_a_copy_ends_the_proof(serve: Callable[..., Server], tmp_path: Path, what: str) -> None:
    server = serve("a")
    add(server.orders, 3)
    server.close()
    assert held(tmp_path / "a") == server.home.term
    shutil.rmtree(log_directory(tmp_path / "a", "orders") if what == "a log" else tmp_path / "a" / "journal")
    again = Replica(server.home.url, tmp_path / "a")
    try:
        assert again.orders.head() == 3
        assert held(tmp_path / "a") == Term(0, 0)
        term = again.take_over().home.term
        assert held(tmp_path / "a") == term  # it has all again
    finally:
        again.close()
