"""A data directory that ever had users lets nobody in without one, until an operator says otherwise; and a server whose
state or whose directories are not what they were says so, instead of beginning anew."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.core.access import ANYBODY, Unauthenticated
from headwater.server.users.accounts import REREAD_S, Account, AccountDirectory
from headwater.server.users.guard import AccountGuard
from headwater.storage import MemoryState, SqliteState
from tests.waiting import eventually

from .running import RunningServer, headwater

EVENT = b'{"events": [{"type": "Placed", "tags": ["order:1"], "data": "{}"}]}'
TOKEN_OF_ALICE = ("user", "add", "alice", "--data", "d", "--grant", "all:*", "--token")
WAL_HEADER_BYTES, WAL_FRAME_BYTES = 32, 24 + 4096


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def token(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A user alice in the directory d, and what she shows."""
    added = headwater(*TOKEN_OF_ALICE, cwd=tmp_path)
    yield {"authorization": f"Bearer {added.stdout.removeprefix('token: ').strip()}"}


def test_removing_the_last_user_of_a_running_server_lets_nobody_in() -> None:
    state, clock = MemoryState(), Clock()
    guard = AccountGuard(AccountDirectory((), state, clock), allows_anybody=True)
    assert guard.is_open and guard.trusted("", "127.0.0.1") is ANYBODY
    state.put("user", "alice", b'{"grants": ["all:*"]}')
    clock.now += REREAD_S
    assert not guard.is_open
    state.delete("user", "alice")
    clock.now += REREAD_S
    assert not guard.is_open
    with pytest.raises(Unauthenticated):
        guard.trusted("", "127.0.0.1")
    state.keep_had_users(False)
    clock.now += REREAD_S
    assert guard.is_open


def test_users_of_the_configuration_are_remembered_too() -> None:
    state = MemoryState()
    AccountDirectory((), state).remember()
    assert not state.had_users()
    AccountDirectory([Account("alice", ())], state).remember()
    assert state.had_users()
    directory = AccountDirectory((), state)
    directory.current()
    assert not directory.never_had_any


def test_a_server_that_lost_its_users_does_not_start_until_it_is_told_to(tmp_path: Path, token: dict[str, str]) -> None:
    with RunningServer("--data", "d", cwd=tmp_path) as server:
        assert server.ask("/logs/default/head", headers=token)[0] == 200
        removed = headwater("user", "remove", "alice", "--data", "d", cwd=tmp_path)
        assert "it was the last user: every request is refused" in removed.stderr
        eventually(lambda: server.ask("/logs/default/head", headers=token)[0] == 401, lambda: server.errors)
        assert server.ask("/logs/default/head")[0] == 401
        server.terminate()
    for arguments in ((), ("--insecure",)):
        refused = headwater("serve", "--data", "d", "--http-port", "0", "--amqp-port", "0", *arguments, cwd=tmp_path)
        assert refused.returncode == 2
        assert "d had users but no longer contains any" in refused.stderr
        assert "headwater user allow-everybody --data" in refused.stderr
    listed = headwater("user", "list", "--data", "d", cwd=tmp_path).stderr
    assert "no users left: every request is refused" in listed
    assert headwater("user", "allow-everybody", "--data", "d", cwd=tmp_path).returncode == 0
    with RunningServer("--data", "d", cwd=tmp_path) as server:
        assert server.ask("/logs/default/head")[0] == 200
        server.wait_for('message="all requests are allowed without credentials"')


def test_everybody_is_not_allowed_where_there_are_users(tmp_path: Path, token: dict[str, str]) -> None:
    refused = headwater("user", "allow-everybody", "--data", "d", cwd=tmp_path)
    assert (refused.returncode, "users exist (alice); remove them first" in refused.stderr) == (1, True)


def test_a_server_that_misses_the_configuration_with_its_users_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text("[users.alice]\ngrants = ['all:*']\n", encoding="utf-8")
    with RunningServer("--data", "d", cwd=tmp_path) as server:
        assert server.ask("/logs/default/head")[0] == 401
        server.terminate()
    (tmp_path / "headwater.toml").unlink()
    refused = headwater("serve", "--data", "d", "--http-port", "0", "--amqp-port", "0", cwd=tmp_path)
    assert (refused.returncode, "--config FILE" in refused.stderr) == (2, True)


def test_a_flip_in_the_wal_after_a_kill_lets_nobody_in_and_begins_no_log(tmp_path: Path) -> None:
    with RunningServer("--data", "d", "--log", "l", cwd=tmp_path) as server:
        assert server.ask("/logs/l/append", EVENT)[0] == 200
        assert headwater(*TOKEN_OF_ALICE, cwd=tmp_path).returncode == 0
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    wal = tmp_path / "d" / "state.sqlite-wal"
    content = bytearray(wal.read_bytes())
    assert len(content) > WAL_HEADER_BYTES + 2 * WAL_FRAME_BYTES
    content[WAL_HEADER_BYTES + 700] ^= 16
    wal.write_bytes(content)
    shutil.rmtree(tmp_path / "d" / "journal")  # SQLite alone would be made anew from it, and users found in it
    refused = headwater("serve", "--data", "d", "--log", "l", "--http-port", "0", "--amqp-port", "0", cwd=tmp_path)
    assert refused.returncode == 5
    assert "was confirmed" in refused.stderr and "headwater check --accept-state-loss" in refused.stderr
    assert len(list((tmp_path / "d" / "logs").glob("l.*"))) == 1
    checked = headwater("check", "--data", "d", cwd=tmp_path)
    assert (checked.returncode, "was confirmed" in checked.stdout) == (5, True)
    # the way out, without a backup
    given_up = headwater("check", "--data", "d", "--accept-state-loss", cwd=tmp_path)
    assert "the old files are in" in given_up.stderr
    assert headwater("serve", "--data", "d", "--http-port", "0", "--amqp-port", "0", cwd=tmp_path).returncode == 2
    assert headwater("check", "--data", "d", "--adopt", "l", cwd=tmp_path).returncode == 0
    again = headwater(*TOKEN_OF_ALICE, cwd=tmp_path)
    token = {"authorization": f"Bearer {again.stdout.removeprefix('token: ').strip()}"}
    with RunningServer("--data", "d", "--log", "l", cwd=tmp_path) as server:
        assert '"head":1' in server.ask("/logs/l/head", headers=token)[1].replace(" ", "")


def test_a_server_stops_a_log_that_its_state_forgot_and_serves_the_others(tmp_path: Path) -> None:
    with RunningServer("--data", "d", "--log", "l", cwd=tmp_path) as server:
        assert server.ask("/logs/l/append", EVENT)[0] == 200
        server.terminate()
    with closing(SqliteState(tmp_path / "d" / "state.sqlite")) as state:
        state.delete("log", "l")
    with RunningServer("--data", "d", "--log", "l", "--log", "other", cwd=tmp_path) as server:
        assert "log l is stopped" in server.errors and "headwater check --adopt l" in server.errors
        assert server.ask("/logs/l/append", EVENT)[0] == 500
        assert server.ask("/logs/other/append", EVENT)[0] == 200
        assert server.ask("/health/ready")[0] == 200
        listed = headwater("logs", "list", "--url", server.url, cwd=tmp_path)
        assert listed.returncode == 0
        assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [["l", "stopped"], ["other", "1"]]
        server.terminate()
    assert len(list((tmp_path / "d" / "logs").glob("l.*"))) == 1
    adopted = headwater("check", "--data", "d", "--adopt", "l", cwd=tmp_path)
    assert (adopted.returncode, "is now the directory of this log" in adopted.stderr) == (0, True)
    with RunningServer("--data", "d", "--log", "l", cwd=tmp_path) as server:
        assert '"head":1' in server.ask("/logs/l/head")[1].replace(" ", "")


def test_a_log_whose_directory_is_gone_ends_no_server(tmp_path: Path) -> None:
    with RunningServer("--data", "d", "--log", "l", "--log", "other", cwd=tmp_path) as server:
        server.terminate()
    for directory in (tmp_path / "d" / "logs").glob("l.*"):
        shutil.rmtree(directory)
    with RunningServer("--data", "d", "--log", "l", "--log", "other", cwd=tmp_path) as server:
        assert "the directory of log l is missing" in server.errors
        assert server.ask("/logs/other/append", EVENT)[0] == 200
        assert server.ask("/logs/l/head")[0] == 500
