"""What a log refuses is told with its count, once a second, and every one of it is counted."""

from __future__ import annotations

import pytest

from headwater.core import (
    AppendCondition,
    Bus,
    Event,
    LogSettings,
    Notification,
    NotificationType,
    Query,
)
from headwater.core.errors import AppendConditionFailed, DuplicateEventId
from headwater.core.local import LocalLog
from headwater.management.notifications.summaries import Summaries
from headwater.storage.memory import MemoryStore

TAKEN = AppendCondition(Query.where(types=["Placed"]))


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class World:
    """A store, its summaries, and what they told."""

    def __init__(self) -> None:
        self.told: list[Notification] = []
        bus = Bus()
        bus.subscribe(self.told.append, [NotificationType.APPEND_REJECTED, NotificationType.CONDITION_FAILED])
        self.clock = Seconds()
        self.store = MemoryStore()
        self.log = self.store.create("orders")
        self.log.append([Event("Placed", id="1")])
        self.summaries = Summaries(bus, self.store.opened, self.clock)

    def look(self) -> list[dict[str, object]]:
        self.clock.now += 1.0
        self.summaries.look()
        told = [dict(notification.attributes) for notification in self.told]
        self.told.clear()
        for attributes in told:
            del attributes["time"]
        return told


def fail(log: LocalLog, times: int) -> None:
    for _ in range(times):
        with pytest.raises(AppendConditionFailed):
            log.append([Event("Placed")], TAKEN)


def repeat(log: LocalLog, times: int) -> None:
    for _ in range(times):
        with pytest.raises(DuplicateEventId):
            log.append([Event("Other", b"other", id="1")])


@pytest.fixture
def world() -> World:
    return World()


def test_failed_conditions_are_told_with_their_count(world: World) -> None:
    fail(world.log, 3)
    expected = {"eventType": "io.headwater.condition.failed", "log": "orders", "count": 3, "intervalMs": 1000}
    assert world.look() == [expected]
    assert world.look() == []
    fail(world.log, 1)
    assert [attributes["count"] for attributes in world.look()] == [1]


def test_refused_appends_are_told_with_their_count(world: World) -> None:
    repeat(world.log, 2)
    world.log.statistics.refused += 5
    (attributes,) = world.look()
    assert attributes == {
        "eventType": "io.headwater.append.rejected",
        "log": "orders",
        "count": 7,
        "duplicates": 2,
        "intervalMs": 1000,
    }


def test_nothing_is_told_of_appends_that_go_in(world: World) -> None:
    world.log.append([Event("Placed")] * 100)
    assert world.look() == []


def test_what_was_counted_before_is_not_told(world: World) -> None:
    fail(world.log, 2)
    again = Summaries(Bus(), world.store.opened, world.clock)
    again.look()
    assert [attributes["count"] for attributes in world.look()] == [2]


def test_a_log_that_was_opened_meanwhile_is_counted_from_its_first_append(world: World) -> None:
    other = world.store.create("other", LogSettings())
    other.append([Event("Placed", id="1")])
    fail(other, 4)
    assert [(attributes["log"], attributes["count"]) for attributes in world.look()] == [("other", 4)]


def test_a_deleted_log_has_its_last_word_and_is_forgotten(world: World) -> None:
    fail(world.log, 2)
    world.store.delete("orders")
    assert [attributes["count"] for attributes in world.look()] == [2]
    assert world.look() == [] and not world.summaries._seen


def test_the_counts_of_all_notifications_are_the_counter(world: World) -> None:
    total = 0
    for times in (5, 0, 7, 1):
        fail(world.log, times)
        total += sum(int(str(attributes["count"])) for attributes in world.look())
    assert total == world.log.statistics.conditions_failed == 13


def test_nothing_is_told_of_the_log_that_keeps_what_is_told(world: World) -> None:
    system = world.store.create("$system", is_own=True)
    system.append([Event("Placed", id="1")])
    fail(system, 2)
    assert world.look() == []
