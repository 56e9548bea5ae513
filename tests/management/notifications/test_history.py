"""The log of what happens: everything is kept, and nothing that keeping it does is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.core import Bus, Event, LogSettings, Notification, NotificationType, Query
from headwater.core.errors import DiskFull, InvalidLogName
from headwater.core.local import LocalLog
from headwater.core.settings import SYSTEM_LOG
from headwater.core.store import LogStore
from headwater.management.notifications.history import History, event_of
from headwater.storage import Engine, MemoryStore
from tests.waiting import eventually

from ..told import Told

CREATED = NotificationType.LOG_CREATED


def kept(log: LocalLog) -> list[tuple[str, dict[str, Any]]]:
    return [(event.type, json.loads(event.data)) for event in log.read()]


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    bus = Bus()
    made = Engine(tmp_path, bus=bus, reserve_bytes=0) if request.param == "disk" else MemoryStore(bus=bus)
    yield made
    made.close()


def test_what_happens_is_kept_in_order_with_all_its_attributes(store: Any) -> None:
    log = store.create(SYSTEM_LOG, is_own=True)
    history = History(store.bus, log)
    history.start()
    store.create("orders").register_consumer("spark", "archiver")
    store.delete("orders")
    history.close()
    events = list(log.read())
    assert [event.type for event in events] == [
        "io.headwater.log.created",
        "io.headwater.consumer.registered",
        "io.headwater.log.deleted",
    ]
    assert json.loads(events[1].data) == {
        "eventType": "io.headwater.consumer.registered",
        "time": json.loads(events[1].data)["time"],
        "log": "orders",
        "owner": "spark",
        "component": "archiver",
        "acknowledged": 0,
        "epoch": 1,
    }
    assert sorted(events[1].tags) == ["component:archiver", "log:orders", "owner:spark"]
    assert events[1].attributes["datacontenttype"] == "application/json" and events[1].source == "/server"


def test_its_history_can_be_asked_by_type_and_by_log(store: Any) -> None:
    log = store.create(SYSTEM_LOG, is_own=True)
    history = History(store.bus, log)
    history.start()
    for name in ("orders", "invoices"):
        store.create(name)
    store.delete("orders")
    history.close()
    found = log.read(Query.where(tags=["log:orders"]))
    assert [event.type for event in found] == ["io.headwater.log.created", "io.headwater.log.deleted"]
    assert len(list(log.read(Query.where(types=["io.headwater.log.created"])))) == 2


def test_nothing_that_happens_to_the_log_itself_is_told(store: Any) -> None:
    told = Told(store.bus)
    log = store.create(SYSTEM_LOG, LogSettings(retention_ms=10**6), is_own=True)
    log.append([Event("a")] * 10)
    log.register_consumer("spark", "archiver", after=5)
    log.trim(3)
    log.unregister_consumer("spark", "archiver")
    store.change(SYSTEM_LOG, replace(log.settings, retention_ms=10**7))
    assert not told.notifications


def test_only_the_server_makes_it_and_nobody_deletes_it(store: Any) -> None:
    with pytest.raises(InvalidLogName):
        store.create(SYSTEM_LOG)
    log = store.create(SYSTEM_LOG, is_own=True)
    assert store.create(SYSTEM_LOG, is_own=True) is log
    with pytest.raises(InvalidLogName):
        store.delete(SYSTEM_LOG)
    assert SYSTEM_LOG in store.names() and store.open(SYSTEM_LOG) is log


def test_it_is_there_after_a_restart_and_still_told_to_nobody(tmp_path: Path) -> None:
    with Engine(tmp_path, reserve_bytes=0) as engine:
        engine.create(SYSTEM_LOG, is_own=True).append([Event("a")] * 3)
    with Engine(tmp_path, reserve_bytes=0, bus=Bus()) as engine:
        told = Told(engine.bus)
        log = engine.open(SYSTEM_LOG)
        assert log.head() == 3 and log.trim(2) == 2
        assert not told.notifications


class Stubborn:
    """A log that takes nothing as long as `is_full`, or takes nothing large."""

    def __init__(self, log: LocalLog) -> None:
        self.log, self.is_full, self.tried = log, True, threading.Event()
        self._append = log.append
        log.append = self.append  # type: ignore[method-assign]

    def append(self, events: Sequence[Event], *rest: Any, **more: Any) -> Any:
        self.tried.set()
        if self.is_full:
            raise DiskFull("$system", 0, 1)
        return self._append(events, *rest, **more)


def test_while_the_disk_is_full_it_waits_and_then_tells_what_was_lost(store: Any) -> None:
    log = store.create(SYSTEM_LOG, is_own=True)
    stubborn = Stubborn(log)
    history = History(store.bus, log, waiting_max=5, retry_s=0.01)
    history.start()
    store.bus.emit(CREATED, log="first", incarnation="", partitions=0)
    assert stubborn.tried.wait(30)
    for number in range(20):
        store.bus.emit(CREATED, log=f"log{number}", incarnation="", partitions=number)
    stubborn.is_full = False
    eventually(lambda: log.head() >= 6)
    history.close()
    assert [attributes["log"] for _, attributes in kept(log)] == ["first", "log15", "log16", "log17", "log18", "log19"]
    assert [attributes.get("lost") for _, attributes in kept(log)] == [None, 15, None, None, None, None]


def test_what_the_log_does_not_take_costs_nothing_else(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    log = store.create(SYSTEM_LOG, LogSettings(event_bytes_max=1024), is_own=True)
    history = History(store.bus, log)
    store.bus.emit(CREATED, log="small", incarnation="", partitions=1)
    store.bus.emit(NotificationType.LOG_CHANGED, log="large", settings="x" * 1000)
    store.bus.emit(CREATED, log="other", incarnation="", partitions=1)
    history.start()
    history.close()
    assert [attributes["log"] for _, attributes in kept(log)] == ["small", "other"]
    assert "cannot store a notification" in caplog.text


def test_whatever_a_peer_calls_itself_can_be_kept(store: Any) -> None:
    log = store.create(SYSTEM_LOG, is_own=True)
    history = History(store.bus, log)
    history.start()
    names = ["", "a b", "new\nline", "\x00", "x" * 5000, "ž:š", "a:b:c", '"{}"', "\ud800"]
    for name in names:
        store.bus.emit(
            NotificationType.LINK_ATTACHED, address="orders", link=name, role="sender", container=name, peer=""
        )
    history.close()
    assert log.head() == len(names)
    assert [len(str(attributes["link"])) for _, attributes in kept(log)] == [0, 3, 8, 1, 1024, 3, 5, 4, 1]


def test_a_log_that_was_closed_ends_it(store: LogStore) -> None:
    log = store.create(SYSTEM_LOG, is_own=True)
    bus = Bus()
    history = History(bus, log)
    history.start()
    log.close()  # type: ignore[attr-defined]
    bus.emit(CREATED, log="orders", incarnation="", partitions=1)
    history.close()
    assert not history._thread.is_alive()


def test_an_event_has_the_time_at_which_it_happened() -> None:
    attributes = {"eventType": CREATED.value, "time": 1_700_000_000_123, "log": "orders"}
    event = event_of(Notification(CREATED, 1_700_000_000_123, attributes))
    assert event.attributes["time"] == "2023-11-14T22:13:20.123Z"
