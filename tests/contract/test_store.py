"""Stores: logs by name, and the versioned state beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headwater.core import EventLog, LogSettings, LogStore, StateEntry, StateStore
from headwater.core.errors import (
    Closed,
    InvalidLogName,
    InvalidSettings,
    LogExists,
    LogNotFound,
    StateConflict,
    TooLarge,
)

from ..builders import event, fill, numbers, refusal
from .kinds import Bench

pytestmark = pytest.mark.on(local=True)


@pytest.fixture
def store(bench: Bench) -> LogStore:
    return bench.store


@pytest.fixture
def state(store: LogStore) -> StateStore:
    return store.state


def test_a_new_store_has_no_logs(store: LogStore) -> None:
    assert store.names() == []
    with refusal(LogNotFound("orders")):
        store.open("orders")


def test_logs_are_listed_by_name(store: LogStore) -> None:
    for name in ("b", "a.z", "B", "a", "a-z", "0"):
        store.create(name)
    assert store.names() == sorted(["b", "a.z", "B", "a", "a-z", "0"])


def test_creating_twice_answers_the_same_log(store: LogStore) -> None:
    log = store.create("orders", LogSettings(partitions=2))
    log.append([event()])
    assert store.create("orders").head() == 1
    assert store.create("orders", LogSettings(partitions=2)).head() == 1
    assert store.open("orders").head() == 1
    with refusal(LogExists("orders")):
        store.create("orders", LogSettings())


@pytest.mark.parametrize("name", ["", "../x", "a/b", "$system", "x" * 65, ".", "-"])
def test_a_log_needs_a_proper_name(store: LogStore, name: str) -> None:
    with pytest.raises(InvalidLogName):
        store.create(name)
    assert store.names() == []


@pytest.mark.parametrize("name", ["", "../x", "a/b", "nothing"])
def test_a_name_that_no_log_has_is_not_found(store: LogStore, name: str) -> None:
    for operation in (store.open, store.delete, lambda name: store.change(name, LogSettings())):
        with refusal(LogNotFound(name)):
            operation(name)


def test_settings_change_at_once(store: LogStore) -> None:
    log = store.create("orders")
    changed = store.change("orders", LogSettings(event_bytes_max=1024))
    assert log.info().settings == changed.info().settings == LogSettings(event_bytes_max=1024)
    with refusal(TooLarge(1025, 1024, "bytes", "events[0].data")):
        log.append([event(data=bytes(1025))])
    assert store.create("orders", LogSettings(event_bytes_max=1024)).name == "orders"


def test_settings_and_consumers_are_known_by_the_logs_name(store: LogStore) -> None:
    log = store.create("orders", LogSettings(partitions=3))
    log.register_consumer("alice", "billing", after=0)
    assert store.settings_of("orders") == LogSettings(partitions=3)
    assert list(store.consumers_of("orders")) == list(log.consumers())
    assert store.incarnation_of("orders") == log.info().incarnation
    for known in (store.settings_of, store.incarnation_of, store.consumers_of):
        with pytest.raises(LogNotFound):
            known("absent")


def test_what_is_fixed_at_creation_stays(store: LogStore) -> None:
    log = store.create("orders", LogSettings(partitions=2))
    with refusal(InvalidSettings("cannot change after creation: expected 2, got 3", "partitions")):
        store.change("orders", LogSettings(partitions=3))
    assert log.info().settings == LogSettings(partitions=2)


def test_a_deleted_log_is_gone_and_closed(store: LogStore) -> None:
    log = store.create("orders")
    subscription = log.subscribe()
    fill(log, 2)
    store.delete("orders")
    assert store.names() == []
    with refusal(LogNotFound("orders")):
        store.open("orders")
    with refusal(Closed("orders")):
        log.append([event()])
    assert log.is_closed
    subscription.close()


def test_a_log_of_another_incarnation_is_not_deleted(store: LogStore) -> None:
    incarnation = store.create("orders").info().incarnation
    store.delete("orders", incarnation)
    log = store.create("orders")
    with refusal(LogNotFound("orders", incarnation)):
        store.delete("orders", incarnation)
    fill(log, 1)


def test_closing_ends_whoever_follows(store: LogStore) -> None:
    log = store.create("orders")
    fill(log, 2)
    found: list[int] = []
    reached = threading.Event()

    def follow() -> None:
        for each in log.subscribe():
            found.append(each.sequence_number)
            if each.sequence_number == 2:
                reached.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert reached.wait(20)
    store.close()
    thread.join(20)
    assert (thread.is_alive(), found) == (False, [1, 2])


def test_a_closed_log_refuses_appends(store: LogStore) -> None:
    log = store.create("orders")
    store.close()
    assert log.is_closed
    with refusal(Closed("orders")):
        log.append([event()])


def test_closing_twice_is_allowed(store: LogStore) -> None:
    store.create("orders")
    store.close()
    store.close()


def test_one_of_many_creations_at_once_makes_the_log(store: LogStore) -> None:
    logs: list[EventLog] = []
    barrier = threading.Barrier(8)

    def create() -> None:
        barrier.wait()
        logs.append(store.create("orders"))

    run_together([create] * 8)
    for log in logs:
        log.append([event()])
    assert numbers(store.open("orders").read()) == list(range(1, 9))


def test_an_entry_is_put_and_got(state: StateStore) -> None:
    assert state.get("user", "alice") is None
    assert state.put("user", "alice", b"1") == 1
    assert state.put("user", "alice", b"") == 2
    assert state.get("user", "alice") == StateEntry(b"", 2)
    assert state.get("other", "alice") is None


def test_a_put_may_insist_on_a_version(state: StateStore) -> None:
    assert state.put("user", "alice", b"1", 0) == 1
    with refusal(StateConflict("user", "alice", 0, 1)):
        state.put("user", "alice", b"2", 0)
    assert state.put("user", "alice", b"2", 1) == 2
    with refusal(StateConflict("user", "alice", 1, 2)):
        state.put("user", "alice", b"3", 1)
    with refusal(StateConflict("user", "bob", 1, 0)):
        state.put("user", "bob", b"3", 1)
    assert state.get("user", "alice") == StateEntry(b"2", 2)


def test_an_entry_is_deleted(state: StateStore) -> None:
    assert state.delete("user", "alice") is False
    state.put("user", "alice", b"1")
    with refusal(StateConflict("user", "alice", 2, 1)):
        state.delete("user", "alice", 2)
    assert state.delete("user", "alice", 1) is True
    assert state.get("user", "alice") is None
    with refusal(StateConflict("user", "alice", 1, 0)):
        state.delete("user", "alice", 1)


def test_many_entries_are_deleted_at_once(state: StateStore) -> None:
    for key in ("a", "b", "c"):
        state.put("kind", key, b"1")
    state.put("other", "a", b"1")
    assert state.delete_all("kind", ["a", "c", "d", "a"]) == 2
    assert [key for key, _ in state.items("kind")] == ["b"] and state.get("other", "a") is not None
    assert state.delete_all("kind", []) == 0
    assert state.put("kind", "a", b"2", 0) == 1


def test_items_come_in_order_of_key_and_by_prefix(state: StateStore) -> None:
    for key in ("b", "a", "ab", "a%", "a_", "Ž", "馬", "a\x00z", ""):
        state.put("kind", key, key.encode())
    state.put("kinds", "a", b"other")
    assert [key for key, _ in state.items("kind")] == ["", "a", "a\x00z", "a%", "a_", "ab", "b", "Ž", "馬"]
    assert [key for key, _ in state.items("kind", "a")] == ["a", "a\x00z", "a%", "a_", "ab"]
    assert [key for key, _ in state.items("kind", "a%")] == ["a%"]
    assert [key for key, _ in state.items("kind", "a_")] == ["a_"]
    assert dict(state.items("kind", "Ž")) == {"Ž": StateEntry("Ž".encode(), 1)}
    assert list(state.items("none")) == []


def test_entries_may_change_while_they_are_listed(state: StateStore) -> None:
    for number in range(10):
        state.put("kind", str(number), b"")
    for key, _ in state.items("kind"):
        state.delete("kind", key)
    assert list(state.items("kind")) == []


def test_of_many_who_insist_on_one_version_one_wins(state: StateStore) -> None:
    outcomes: list[str] = []
    barrier = threading.Barrier(6)

    def claim() -> None:
        for version in range(20):
            barrier.wait()
            try:
                state.put("kind", "key", b"mine", version)
                outcomes.append("won")
            except StateConflict:
                outcomes.append("lost")

    run_together([claim] * 6)
    assert (outcomes.count("won"), outcomes.count("lost")) == (20, 100)


def run_together(work: list[Callable[[], None]]) -> None:
    """Each in a thread of its own, to the end."""
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
