"""The state store in SQLite: compare-and-set between processes, durability, what it says when it cannot be opened."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.core import StateEntry, StateStore
from headwater.core.errors import StateConflict, StorageCorrupted, StorageUnavailable
from headwater.core.state import USER_KIND
from headwater.storage import Engine, MemoryState, SqliteState
from headwater.storage.state.data_directory import open_state
from headwater.storage.state.journaled_state import JournalState
from headwater.storage.state.remote import RemoteState


@pytest.fixture(params=["memory", "sqlite", "journal", "remote"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    if request.param == "memory":
        yield MemoryState()
    elif request.param == "journal":
        with closing(open_state(tmp_path)) as found:
            yield found
    elif request.param == "remote":
        with closing(Engine(tmp_path)), closing(open_state(tmp_path)) as found:
            assert isinstance(found, RemoteState)
            yield found
    else:
        with closing(SqliteState(tmp_path / "state.sqlite")) as found:
            yield found


def test_versions_count_the_puts_of_an_entry(state: StateStore) -> None:
    assert state.get("user", "a") is None
    assert state.put("user", "a", b"1") == 1
    assert state.put("user", "a", b"2") == 2
    assert state.put("user", "a", b"3", expected_version=2) == 3
    assert state.get("user", "a") == StateEntry(b"3", 3)


def test_a_wrong_version_changes_nothing(state: StateStore) -> None:
    state.put("user", "a", b"1")
    for expected in (0, 2):
        with pytest.raises(StateConflict) as conflict:
            state.put("user", "a", b"2", expected_version=expected)
        assert (conflict.value.expected, conflict.value.found) == (expected, 1)
        with pytest.raises(StateConflict):
            state.delete("user", "a", expected_version=expected)
    assert state.get("user", "a") == StateEntry(b"1", 1)
    with pytest.raises(StateConflict):
        state.put("user", "b", b"1", expected_version=1)
    assert state.get("user", "b") is None


def test_a_deleted_entry_is_new_again(state: StateStore) -> None:
    state.put("user", "a", b"1", expected_version=0)
    assert state.delete("user", "a", expected_version=1)
    assert not state.delete("user", "a")
    assert state.put("user", "a", b"2", expected_version=0) == 1


def test_items_are_of_one_kind_in_order_and_may_change_meanwhile(state: StateStore) -> None:
    for key in ("b", "a", "ab", "aé", "a%", "_"):
        state.put("user", key, key.encode())
    state.put("other", "a", b"")
    assert [key for key, _ in state.items("user")] == sorted(["b", "a", "ab", "aé", "a%", "_"])
    assert [key for key, _ in state.items("user", "a")] == ["a", "a%", "ab", "aé"]
    assert [key for key, _ in state.items("user", "_")] == ["_"]
    for key, _ in state.items("user"):
        state.delete("user", key)
    assert list(state.items("user")) == []


def test_several_entries_are_removed_as_one_change(state: StateStore) -> None:
    for key in ("a", "b", "c"):
        state.put("user", key, key.encode())
    assert state.delete_all("user", ["a", "c", "a", "missing"]) == 2
    assert [key for key, _ in state.items("user")] == ["b"]
    assert state.delete_all("user", []) == 0


def test_that_there_were_users_is_remembered_until_it_is_forgotten_on_purpose(state: StateStore) -> None:
    assert not state.had_users()
    state.put(USER_KIND, "alice", b"{}")
    assert state.delete(USER_KIND, "alice")
    assert state.had_users()
    state.keep_had_users(False)
    assert not state.had_users()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put", "put", "put lazily", "delete", "delete_all", "expect", "flush", "apply"]),
            st.sampled_from(["k", "l"]),
            st.sampled_from(["a", "b", "é", ""]),
            st.binary(max_size=3),
        ),
        max_size=30,
    )
)
def test_a_journal_says_what_a_dictionary_says(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    directory = tmp_path_factory.mktemp("state")
    model, state = MemoryState(), open_state(directory)
    assert isinstance(state, JournalState)
    for step, kind, key, value in steps:
        outcomes: list[object] = []
        for each in (model, state):
            try:
                match step:
                    case "put" | "put lazily":
                        outcomes.append(each.put(kind, key, value, is_durable=step == "put"))
                    case "delete":
                        outcomes.append(each.delete(kind, key))
                    case "delete_all":
                        outcomes.append(each.delete_all(kind, [key, "a"]))
                    case "expect":
                        outcomes.append(each.put(kind, key, value, expected_version=len(value)))
                    case "flush":
                        outcomes.append(each.flush())
                    case _:
                        state.apply()
                        outcomes.append(None)
            except StateConflict as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
    expected = {kind: list(model.items(kind)) for kind in ("k", "l")}
    assert {kind: list(state.items(kind)) for kind in ("k", "l")} == expected
    assert {kind: [state.get(kind, key) for key, _ in items] for kind, items in expected.items()} == {
        kind: [entry for _, entry in items] for kind, items in expected.items()
    }
    state.close()
    with closing(open_state(directory)) as again:
        assert {kind: list(again.items(kind)) for kind in ("k", "l")} == expected


def test_one_of_two_processes_wins_a_version(tmp_path: Path) -> None:
    with closing(SqliteState(tmp_path / "s")) as one, closing(SqliteState(tmp_path / "s")) as two:
        one.put("consumer", "c", b"0")
        wins: list[int] = []

        def raise_it(state: SqliteState) -> None:
            done = 0
            while done < 50:
                entry = state.get("consumer", "c")
                assert entry is not None
                try:
                    state.put("consumer", "c", str(int(entry.value) + 1).encode(), entry.version, is_durable=False)
                    done += 1
                except StateConflict:
                    continue
            wins.append(done)

        threads = [threading.Thread(target=raise_it, args=(state,)) for state in (one, two, one)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wins == [50, 50, 50]
        assert one.get("consumer", "c") == two.get("consumer", "c") == StateEntry(b"150", 151)


def test_what_was_put_is_there_after_reopening_and_in_a_copy(tmp_path: Path) -> None:
    with closing(SqliteState(tmp_path / "s")) as state:
        state.put("user", "a", b"1")
        state.put("user", "b", b"2", is_durable=False)
        state.flush()
        state.copy_to(tmp_path / "copy")
        state.put("user", "c", b"3")
    for name, keys in (("s", ["a", "b", "c"]), ("copy", ["a", "b"])):
        with closing(SqliteState(tmp_path / name)) as again:
            assert [key for key, _ in again.items("user")] == keys


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"garbage" * 500)
    with pytest.raises(StorageCorrupted, match="headwater restore"):
        SqliteState(tmp_path / "garbage")
    with pytest.raises(StorageUnavailable):
        SqliteState(tmp_path / "missing" / "s")
    with closing(sqlite3.connect(tmp_path / "newer")) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageUnavailable, match=r"written by a newer headwater \(schema 99"):
        SqliteState(tmp_path / "newer")
