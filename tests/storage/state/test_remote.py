"""Commands beside a server: they reach its state through the socket, and nobody writes behind its back."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.core.errors import DiskFull, StateConflict, StorageCorrupted, StorageUnavailable
from headwater.storage import Engine
from headwater.storage.state import data_directory
from headwater.storage.state import remote as module
from headwater.storage.state.data_directory import lock_directory, open_state
from headwater.storage.state.journaled_state import JournalState
from headwater.storage.state.remote import SOCKET, RemoteState

from ...waiting import eventually


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with closing(Engine(tmp_path, maintains=False)) as found:
        yield found


def remote(directory: Path) -> RemoteState:
    found = open_state(directory)
    assert isinstance(found, RemoteState)
    return found


def test_it_is_for_its_owner_alone_and_goes_with_its_server(engine: Engine, tmp_path: Path) -> None:
    mode = (tmp_path / SOCKET).lstat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    engine.close()
    assert not (tmp_path / SOCKET).exists()


def test_what_a_command_puts_the_server_has_at_once(engine: Engine, tmp_path: Path) -> None:
    state = remote(tmp_path)
    value = bytes(range(256)) * 1000
    assert state.put("kind", "key\n\u202eé", value) == 1
    assert engine.state.get("kind", "key\n\u202eé") == state.get("kind", "key\n\u202eé")
    engine.state.put("kind", "other", b"", is_durable=False)
    assert dict(state.items("kind")) == dict(engine.state.items("kind"))
    assert state.get("kind", "missing") is None


def test_errors_come_back_as_what_they_are(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = remote(tmp_path)
    state.put("kind", "a", b"1")
    with pytest.raises(StateConflict) as conflict:
        state.put("kind", "a", b"2", expected_version=0)
    assert (conflict.value.kind, conflict.value.key, conflict.value.expected, conflict.value.found) == (
        "kind",
        "a",
        0,
        1,
    )
    for error in (
        DiskFull("/data", 1, 2),
        StorageCorrupted("/data/x", "damaged", "restore"),
        StorageUnavailable("it is gone"),
    ):

        def fails(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(engine.state, "flush", fails)
        with pytest.raises(type(error)) as told:
            state.flush()
        assert str(told.value) == str(error)


def test_a_call_that_is_not_of_the_state_is_refused(engine: Engine, tmp_path: Path) -> None:
    state = remote(tmp_path)
    for name in ("close", "__class__", "apply", "maintain"):
        with pytest.raises(StorageUnavailable, match=f"does not support the call '{name}'"):
            state._call(name, object)
    with pytest.raises(StorageUnavailable, match="cannot execute the call"):
        state._call("get", object, 1, 2, 3, 4, 5)
    assert state.put("kind", "a", b"") == 1


@pytest.mark.parametrize(
    "sent",
    [b"", b"\x01", b"\xff\xff\xff\xff", b"\x03\0\0\0abc", b"\x05\0\0\0ab", b"\x01\0\0\0\x90", b"\x01\0\0\0\xc0",
     b"\x07\0\0\0\x93\xa3\xff\xff\xff\x90\x80", b"\x04\x20\0\0\x93\xa1a\x91" + b"\x91" * 8192],
)  # fmt: skip
def test_garbage_costs_its_sender_alone(
    engine: Engine, tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer, module._reachable(tmp_path / SOCKET) as path:
        peer.connect(path)
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(100) == b""
    assert remote(tmp_path).put("kind", "a", b"") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "its thread goes on"


def test_one_that_says_nothing_is_given_up(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer, module._reachable(tmp_path / SOCKET) as path:
        peer.connect(path)
        assert peer.recv(100) == b""
    assert remote(tmp_path).get("kind", "a") is None


def test_closing_does_not_wait_for_one_that_says_nothing(tmp_path: Path) -> None:
    engine = Engine(tmp_path, maintains=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer, module._reachable(tmp_path / SOCKET) as path:
        peer.connect(path)
        assert engine._socket is not None
        eventually(lambda: engine._socket is not None and engine._socket._peer is not None)
        engine.close()
        assert peer.recv(100) == b""


def test_a_directory_of_another_process_without_a_socket_says_what_to_do(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_directory, "STARTING_S", 0.0)
    (tmp_path / SOCKET).unlink()
    with pytest.raises(StorageUnavailable, match="in use by another process, which does not answer on"):
        open_state(tmp_path)


def test_a_command_waits_for_a_server_that_starts_and_for_one_that_stops(tmp_path: Path) -> None:
    tmp_path.joinpath("d").mkdir()
    lock = lock_directory(tmp_path / "d")
    opened: list[RemoteState | JournalState] = []
    command = threading.Thread(target=lambda: opened.append(open_state(tmp_path / "d")))
    command.start()
    lock.close()  # it was one that stopped
    command.join()
    assert isinstance(opened[0], JournalState)
    opened[0].close()


def test_a_socket_that_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left, module._reachable(tmp_path / SOCKET) as path:
        left.bind(path)
    with closing(open_state(tmp_path)) as state:
        assert not isinstance(state, RemoteState), "nobody has the lock"
    with closing(Engine(tmp_path, maintains=False)):
        assert remote(tmp_path).get("kind", "a") is None


def test_a_path_longer_than_the_system_takes_is_reached(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["directory" * 5] * 6)
    assert len(os.fsencode(deep)) > 108
    with closing(Engine(deep, maintains=False)):
        assert remote(deep).put("kind", "a", b"") == 1
