"""What was changed behind the state's back, and what vanished from it, is told and never used."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headwater.core import StateEntry
from headwater.core.errors import StorageCorrupted, StorageUnavailable
from headwater.storage import SqliteState, accept_state_loss, check_directory
from headwater.storage.state import data_directory, files
from headwater.storage.state import sqlite_state as state_module
from headwater.storage.state.data_directory import lock_directory, open_state
from headwater.storage.state.last_confirmed import SLOT_DISTANCE, make_witness, read_witness
from headwater.storage.state.rows import guard_of
from headwater.storage.state.sqlite_state import copy_state

NAME, WAL, WITNESS = "state.sqlite", "state.sqlite-wal", "state.witness"
FLIPS = 80
"""For each file of each image; positions are drawn with a seed."""
WAL_HEADER_BYTES, WAL_FRAME_BYTES = 32, 24 + 4096
PLAIN_SCHEMA = """
CREATE TABLE entry (
    kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID
"""


def fill(state: SqliteState) -> None:
    state.put("user", "alice", b'{"grants": ["all:*"]}')
    for number in range(60):
        state.put("log", f"log-{number}", b'{"directory": "log.01234567", "settings": {"retention_bytes": 90000000}}')
    for number in range(200):
        state.put("consumer/0123", f"owner-{number}\nc", b'{"acknowledged": %d}' % number, is_durable=False)
    with closing(sqlite3.connect(state.path)) as other:  # so that both files have something to say after a kill
        other.execute("PRAGMA wal_checkpoint")
    state.put("log", "log-7", b'{"directory": "log.01234567", "settings": {"retention_bytes": 90000001}}')
    for number in range(40):
        state.put("consumer/0123", f"owner-{number * 5}\nc", b'{"acknowledged": %d}' % (number + 1000))
    state.delete("log", "log-8")
    state.flush()


def found(state: SqliteState) -> dict[str, dict[str, StateEntry]]:
    return {kind: dict(state.items(kind)) for kind in ("user", "log", "consumer/0123")}


def image(source: Path, target: Path) -> Path:
    """What a kill leaves of a state that was open: its files, but for what its processes shared."""
    target.mkdir()
    for name in (NAME, WAL, WITNESS):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    return target


def contents(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in (NAME, WITNESS)} | {
        WAL: (directory / WAL).read_bytes() if (directory / WAL).exists() else b""
    }


def flip(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def edited(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement, values)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A state as a kill leaves it: with what was not checkpointed yet in its WAL."""
    (tmp_path / "open").mkdir()
    with closing(SqliteState(tmp_path / "open" / NAME)) as state:
        fill(state)
        return image(tmp_path / "open", tmp_path / "killed")


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A state that was closed in order."""
    (tmp_path / "closed").mkdir()
    with closing(SqliteState(tmp_path / "closed" / NAME)) as state:
        fill(state)
    return tmp_path / "closed"


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, dict[str, StateEntry]]:
    with closing(SqliteState(tmp_path / "expected.sqlite")) as state:
        fill(state)
        return found(state)


@pytest.mark.parametrize(("how", "name"), [("closed", NAME), ("closed", WITNESS), ("killed", NAME), ("killed", WAL)])
def test_a_flipped_bit_is_told_or_without_effect(
    how: str, name: str, request: pytest.FixtureRequest, tmp_path: Path, expected: dict[str, dict[str, StateEntry]]
) -> None:
    directory: Path = request.getfixturevalue(how)
    size, draw, told = (directory / name).stat().st_size, random.Random(name + how), 0
    for number in range(FLIPS):
        copy = image(directory, tmp_path / f"flipped-{number}")
        flip(copy / name, draw.randrange(size), draw.randrange(8))
        before = contents(copy)
        try:
            with closing(SqliteState(copy / NAME)) as state:
                assert found(state) == expected and state.had_users()
        except (StorageCorrupted, StorageUnavailable):
            told += 1
            assert contents(copy) == before, "what is refused is left as it is"
        shutil.rmtree(copy)
    assert told > FLIPS // 10 or name == WITNESS, "one slot is left"


def test_a_wal_that_sqlite_stops_replaying_is_a_loss(killed: Path) -> None:
    """SQLite says nothing: what comes behind the flip is not there, and everything before is in order."""
    flip(killed / WAL, WAL_HEADER_BYTES + 10 * WAL_FRAME_BYTES + 500, 3)
    with closing(sqlite3.connect(f"file:{killed / NAME}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
    with pytest.raises(
        StorageCorrupted, match=r"ends with change \d+, but change \d+ was confirmed: some changes are lost"
    ):
        SqliteState(killed / NAME)


def test_an_entry_that_was_changed_is_named_and_not_used(closed: Path) -> None:
    with closing(SqliteState(closed / NAME)) as state:
        edited(closed / NAME, "UPDATE entries SET value = replace(value, 90000001, 10000001) WHERE key = 'log-7'")
        edited(closed / NAME, "UPDATE entries SET version = 9 WHERE key = 'alice'")
        uses: list[Callable[[], object]] = [
            lambda: state.get("log", "log-7"),
            lambda: state.put("log", "log-7", b""),
            lambda: state.delete("log", "log-7"),
            lambda: list(state.items("log")),
        ]
        for use in uses:
            with pytest.raises(StorageCorrupted, match="kind 'log' and key 'log-7' is not what was stored"):
                use()
        assert state.get("log", "log-6") is not None
    with pytest.raises(StorageCorrupted, match=r"key 'log-7' is not.*; the entry of kind 'user' and key 'alice'"):
        SqliteState(closed / NAME)


@pytest.mark.parametrize("kind", ["user", "log"])
def test_an_entry_that_vanished_or_came_back_is_missed(kind: str, closed: Path) -> None:
    guard = guard_of(kind, "gone", b"{}", 1)
    edited(closed / NAME, "INSERT INTO entries VALUES (?, 'gone', x'7b7d', 1, ?)", kind, guard)
    with pytest.raises(StorageCorrupted, match="missing or outdated"):
        SqliteState(closed / NAME)
    edited(closed / NAME, "DELETE FROM entries WHERE key = 'gone'")
    SqliteState(closed / NAME).close()
    edited(closed / NAME, "DELETE FROM entries WHERE kind = ?", kind)
    with pytest.raises(StorageCorrupted, match="missing or outdated"):
        SqliteState(closed / NAME)


@pytest.mark.parametrize("column", ["serial", "digest", "had_users", "crc"])
def test_a_summary_that_was_changed_is_refused(column: str, closed: Path) -> None:
    edited(closed / NAME, f"UPDATE summary SET {column} = 1 - {column}")
    with pytest.raises(StorageCorrupted, match="the summary is damaged"):
        SqliteState(closed / NAME)


def test_an_older_state_under_a_newer_witness_is_refused(closed: Path, tmp_path: Path) -> None:
    shutil.copyfile(closed / NAME, tmp_path / "older")
    with closing(SqliteState(closed / NAME)) as state:
        state.put("log", "newer", b"{}")
    shutil.copyfile(tmp_path / "older", closed / NAME)
    with pytest.raises(
        StorageCorrupted, match=r"was confirmed: some changes are lost; restore a backup .*--accept-state-loss"
    ):
        SqliteState(closed / NAME)


@pytest.mark.parametrize("left", [b"", None])
def test_a_state_that_is_gone_is_not_begun_anew(left: bytes | None, closed: Path) -> None:
    (closed / NAME).unlink()
    if left is not None:
        (closed / NAME).write_bytes(left)
    with pytest.raises(StorageCorrupted, match="it is missing, but its change"):
        SqliteState(closed / NAME)


def test_a_witness_that_is_gone_or_unreadable_is_told(closed: Path) -> None:
    kept = (closed / WITNESS).read_bytes()
    flip(closed / WITNESS, 0, 0)
    SqliteState(closed / NAME).close()  # the other slot counts
    flip(closed / WITNESS, SLOT_DISTANCE, 0)
    with pytest.raises(StorageCorrupted, match="neither of its two slots is readable"):
        SqliteState(closed / NAME)
    (closed / WITNESS).unlink()
    with pytest.raises(StorageCorrupted, match=r"state.witness: the file is missing; .*--accept-state-loss"):
        SqliteState(closed / NAME)
    (closed / WITNESS).write_bytes(kept)
    SqliteState(closed / NAME).close()


def test_the_witness_tells_of_durable_changes_alone_and_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteState(tmp_path / NAME)) as state:
        state.put("a", "b", b"1")
        serial = read_witness(tmp_path / WITNESS).serial
        state.put("a", "b", b"2", is_durable=False)
        assert read_witness(tmp_path / WITNESS).serial == serial
        state.flush()
        assert read_witness(tmp_path / WITNESS).serial == serial + 2
        monkeypatch.setattr(state._last_confirmed, "tell", lambda *_: pytest.fail("told of what is not durable"))
        state.put("a", "b", b"3", is_durable=False)
        monkeypatch.setattr(state._last_confirmed, "tell", lambda *_: None)
        state.put("a", "b", b"4")  # killed before the witness was told
        image(tmp_path, tmp_path / "killed")
    with closing(SqliteState(tmp_path / "killed" / NAME)) as state:
        assert state.get("a", "b") == StateEntry(b"4", 4)
    with closing(SqliteState(tmp_path / NAME)) as state:  # a slot that a loss of power tore
        state.put("a", "b", b"5")
        newer = max((0, SLOT_DISTANCE), key=lambda at: (tmp_path / WITNESS).read_bytes()[at + 8 : at + 16][::-1])
        flip(tmp_path / WITNESS, newer + 9, 1)
    SqliteState(tmp_path / NAME).close()


def test_several_writers_keep_one_digest(tmp_path: Path) -> None:
    with closing(SqliteState(tmp_path / NAME)) as one, closing(SqliteState(tmp_path / NAME)) as two:
        for number in range(40):
            (one, two)[number % 2].put("a", str(number % 7), b"%d" % number, is_durable=number % 3 == 0)
            if number % 5 == 0:
                (two, one)[number % 2].delete("a", str(number % 7))
        left = dict(one.items("a"))
    with closing(SqliteState(tmp_path / NAME)) as again:
        assert dict(again.items("a")) == left


def test_a_change_that_fails_leaves_digest_and_entries_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteState(tmp_path / NAME)) as state:
        state.put("a", "b", b"1")
        monkeypatch.setattr(state_module, "_SUM_UP", "UPDATE nothing SET x = ?, y = ?, z = ?, w = ? WHERE ? ? ? ?")
        with pytest.raises(StorageCorrupted):
            state.put("a", "b", b"2")
        monkeypatch.undo()
        assert state.put("a", "c", b"3") == 1
    with closing(SqliteState(tmp_path / NAME)) as again:
        assert [(key, entry.value) for key, entry in again.items("a")] == [("b", b"1"), ("c", b"3")]


def plain(path: Path) -> None:
    """A state as 0.1.0 leaves it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(PLAIN_SCHEMA)
        connection.execute("PRAGMA user_version = 1")
        connection.execute("INSERT INTO entry VALUES ('user', 'alice', x'31', 3)")
        connection.execute("INSERT INTO entry VALUES ('log', 'orders', x'32', 1)")


def test_a_state_of_0_1_0_is_brought_up_to_date_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(tmp_path / NAME)
    with monkeypatch.context() as broken:
        broken.setattr(files, "_fill", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            SqliteState(tmp_path / NAME)
    make_witness(tmp_path / WITNESS, 0, True)  # as if it was killed before it was done
    for _ in range(2):
        with closing(SqliteState(tmp_path / NAME)) as state:
            assert state.get("user", "alice") == StateEntry(b"1", 3)
            assert state.get("log", "orders") == StateEntry(b"2", 1)
            assert state.had_users()
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)  # above 1, 0.1.0 refuses it


def test_a_copy_of_a_state_of_0_1_0_leaves_the_original_to_its_server(tmp_path: Path) -> None:
    plain(tmp_path / NAME)
    before = (tmp_path / NAME).read_bytes()
    copy_state(tmp_path / NAME, tmp_path / "copy.sqlite")
    assert (tmp_path / NAME).read_bytes() == before
    with closing(SqliteState(tmp_path / "copy.sqlite")) as copy:
        assert copy.get("user", "alice") == StateEntry(b"1", 3)


def test_a_state_of_0_1_0_is_left_to_the_server_that_runs_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_directory, "STARTING_S", 0.0)
    plain(tmp_path / NAME)
    with closing(lock_directory(tmp_path)), pytest.raises(StorageUnavailable, match="in use by another process"):
        open_state(tmp_path)
    with closing(open_state(tmp_path)) as state:
        assert state.get("user", "alice") == StateEntry(b"1", 3)
        assert state.had_users()


def test_a_witness_that_cannot_be_written_is_told_and_the_change_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with closing(SqliteState(tmp_path / NAME)) as state:
        monkeypatch.setattr("headwater.storage.state.last_confirmed.os.pwrite", fail)
        assert state.put("a", "b", b"1") == 1
    assert "state.witness: No space left on device; a loss of state could go unnoticed" in caplog.text
    with closing(SqliteState(tmp_path / NAME)) as state:
        assert state.get("a", "b") == StateEntry(b"1", 1)


def test_a_damaged_state_is_neither_copied_nor_mended_in_silence(closed: Path, tmp_path: Path) -> None:
    edited(closed / NAME, "UPDATE entries SET value = x'00' WHERE key = 'log-7'")
    with pytest.raises(StorageCorrupted, match="log-7"):
        copy_state(closed / NAME, tmp_path / "copy.sqlite")
    assert not (tmp_path / "copy.sqlite").exists()
    report = check_directory_of_state(closed)
    assert len(report) == 1 and "log-7" in report[0] and str(closed) in report[0]


def check_directory_of_state(directory: Path) -> list[str]:
    (directory / "logs").mkdir(exist_ok=True)
    return check_directory(directory).state.problems


def test_what_is_sound_of_a_damaged_state_can_be_taken_for_all(
    closed: Path, expected: dict[str, dict[str, StateEntry]]
) -> None:
    edited(closed / NAME, "UPDATE entries SET value = x'00' WHERE key = 'log-7'")
    edited(closed / NAME, "DELETE FROM entries WHERE kind = 'user'")
    given_up = accept_state_loss(closed)
    assert "'log-7'" in given_up[0]
    assert len(list(closed.glob("state.lost-*/state.sqlite"))) == 1
    with closing(SqliteState(closed / NAME)) as state:
        assert found(state)["consumer/0123"] == expected["consumer/0123"]
        assert len(found(state)["log"]) == len(expected["log"]) - 1
        assert found(state)["user"] == {} and state.had_users()
    assert check_directory_of_state(closed) == []


@pytest.mark.parametrize("lost", [NAME, WITNESS])
def test_a_state_without_one_of_its_files_can_be_taken_as_it_is_and_lets_nobody_in(lost: str, closed: Path) -> None:
    (closed / lost).unlink()
    assert check_directory_of_state(closed)
    accept_state_loss(closed)
    with closing(SqliteState(closed / NAME)) as state:
        assert state.had_users()
    assert check_directory_of_state(closed) == []


def test_that_there_were_users_outlives_the_last_one_until_it_is_forgotten_on_purpose(tmp_path: Path) -> None:
    with closing(SqliteState(tmp_path / NAME)) as state:
        assert not state.had_users()
        state.put("user", "alice", b"{}")
        state.delete("user", "alice")
        assert state.had_users() and read_witness(tmp_path / WITNESS).had_users
    with closing(SqliteState(tmp_path / NAME)) as state:
        assert state.had_users()
        state.keep_had_users(False)
    with closing(SqliteState(tmp_path / NAME)) as state:
        assert not state.had_users() and not read_witness(tmp_path / WITNESS).had_users
