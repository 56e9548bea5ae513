"""What is told of logs and consumers, by the acts that cause it; on disk and, where that can, in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.core import Bus, Event, LogSettings, NotificationType
from headwater.core.errors import InvalidSettings, LogExists, LogNotFound
from headwater.storage import Engine, MemoryStore

from ..crash.faults import FaultyDisk
from ..management.told import Told


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    bus = Bus()
    if request.param == "disk":
        made: Any = Engine(tmp_path, bus=bus, reserve_bytes=0, maintains=False)
    else:
        made = MemoryStore(bus=bus)
    yield made
    made.close()


@pytest.fixture
def told(store: Any) -> Told:
    return Told(store.bus)


def test_a_log_that_is_made_is_told_once(store: Any, told: Told) -> None:
    log = store.create("orders", LogSettings(partitions=4))
    store.create("orders", LogSettings(partitions=4))
    with pytest.raises(LogExists):
        store.create("orders", LogSettings(partitions=5))
    expected = {"log": "orders", "incarnation": log.info().incarnation, "partitions": 4}
    assert told.of(NotificationType.LOG_CREATED) == [expected]


def test_changed_settings_are_told_by_what_differs(store: Any, told: Told) -> None:
    log = store.create("orders")
    store.change("orders", log.settings)
    assert not told.of(NotificationType.LOG_CHANGED)
    store.change("orders", replace(log.settings, retention_ms=1000, keeps_history=False))
    (change,) = told.of(NotificationType.LOG_CHANGED)
    assert change["log"] == "orders"
    assert json.loads(str(change["settings"])) == {"retentionMs": 1000, "keepsHistory": False}
    with pytest.raises(InvalidSettings):
        store.change("orders", replace(log.settings, partitions=9))
    assert len(told.of(NotificationType.LOG_CHANGED)) == 1


def test_a_deleted_log_is_told_with_its_last_number(store: Any, told: Told) -> None:
    log = store.create("orders")
    log.append([Event("Placed")] * 3)
    incarnation = log.info().incarnation
    store.delete("orders")
    assert told.of(NotificationType.LOG_DELETED) == [{"log": "orders", "incarnation": incarnation, "head": 3}]
    with pytest.raises(LogNotFound):
        store.delete("orders")
    assert len(told.of(NotificationType.LOG_DELETED)) == 1


def test_a_trim_is_told_if_it_drops_something(store: Any, told: Told) -> None:
    log = store.create("orders")
    log.append([Event("Placed")] * 10)
    log.trim(1)
    assert not told.of(NotificationType.LOG_TRIMMED)
    log.trim(4)
    log.register_consumer("alice", "Billing", after=6)
    log.trim(11)
    log.trim(11)
    assert told.of(NotificationType.LOG_TRIMMED) == [
        {"log": "orders", "firstRetained": 4, "previousFirstRetained": 1},
        {"log": "orders", "firstRetained": 7, "previousFirstRetained": 4},
    ]


def test_a_consumer_is_told_when_it_registers_and_when_it_is_gone(store: Any, told: Told) -> None:
    log = store.create("orders")
    log.append([Event("Placed")] * 5)
    log.register_consumer("alice", "Billing", after=2)
    log.acknowledge("alice", "Billing", 4)
    log.register_consumer("alice", "Billing")
    log.unregister_consumer("alice", "Billing")
    consumer = {"log": "orders", "owner": "alice", "component": "Billing"}
    assert told.of(NotificationType.CONSUMER_REGISTERED) == [
        {**consumer, "acknowledged": 2, "epoch": 1},
        {**consumer, "acknowledged": 4, "epoch": 2},
    ]
    assert told.of(NotificationType.CONSUMER_UNREGISTERED) == [{**consumer, "acknowledged": 4}]


def test_a_consumer_that_was_not_heard_of_is_told_with_for_how_long(tmp_path: Path) -> None:
    clock = Clock()
    with Engine(tmp_path, clock=clock, maintains=False, reserve_bytes=0) as engine:
        told = Told(engine.bus)
        log = engine.create("orders", LogSettings(consumer_age_ms_max=5000))
        log.register_consumer("alice", "Billing")
        clock.now += 6000
        engine.maintain()
        (consumer,) = told.of(NotificationType.CONSUMER_UNREGISTERED)
        assert consumer["silentMs"] == 6000 and consumer["owner"] == "alice"


def test_what_retention_drops_is_told(tmp_path: Path) -> None:
    clock = Clock()
    with Engine(tmp_path, clock=clock, maintains=False, reserve_bytes=0) as engine:
        told = Told(engine.bus)
        log = engine.create("orders", LogSettings(retention_ms=1000))
        log.append([Event("Placed")] * 5)
        clock.now += 2000
        log.append([Event("Placed")])
        engine.maintain()
        expected = {"log": "orders", "firstRetained": 6, "previousFirstRetained": 1}
        assert told.of(NotificationType.LOG_TRIMMED) == [expected]


@pytest.mark.usefixtures("small_segments", "in_line")
def test_a_sealed_segment_is_told_once(tmp_path: Path) -> None:
    with Engine(tmp_path, maintains=False, reserve_bytes=0) as engine:
        told = Told(engine.bus)
        log = engine.create("orders")
        for _ in range(250):
            log.append([Event("Placed", bytes(40))])
        engine.maintain()
        engine.maintain()
        sealed = told.of(NotificationType.SEGMENT_SEALED)
        segments = log.frames.segments[:-1]
        assert len(segments) >= 2
        assert [(seal["first"], seal["last"], seal["bytes"]) for seal in sealed] == [
            (segment.first, segment.last, segment.end) for segment in segments
        ]
        assert all(seal["log"] == "orders" for seal in sealed)


def test_a_disk_that_gets_full_is_told_once_and_once_when_it_has_room_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with Engine(tmp_path, disk=disk, maintains=False, reserve_bytes=1000, ballast_bytes=0) as engine:
        told = Told(engine.bus)
        for free in (5000, 999, 500, 1000, 2000, 10):
            disk.free = free
            engine.maintain()
        place = {"path": str(tmp_path), "reserveBytes": 1000}
        assert told.of(NotificationType.DISK_LOW) == [{**place, "freeBytes": 999}, {**place, "freeBytes": 10}]
        assert told.of(NotificationType.DISK_RECOVERED) == [{**place, "freeBytes": 1000}]


def test_appends_and_acknowledgements_tell_nothing(store: Any) -> None:
    log = store.create("orders")
    log.register_consumer("alice", "Billing")
    told = Told(store.bus)
    for number in range(1, 20):
        log.append([Event("Placed")])
        log.acknowledge("alice", "Billing", number)
    assert not told.notifications
