"""Consumers that fall behind and catch up, and archivers that come on."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core import Bus, Event, Grant, Notification, NotificationType, Right, User
from headwater.core.followers import Follower, FollowerKind, Lag
from headwater.core.settings import LogSettings
from headwater.management import may_see
from headwater.management.notifications import consumers
from headwater.management.notifications.consumers import ConsumerWatch
from headwater.storage.memory import MemoryStore

LAGGING, CAUGHT_UP, PROGRESSED = (
    NotificationType.CONSUMER_LAGGING,
    NotificationType.CONSUMER_CAUGHT_UP,
    NotificationType.ARCHIVE_PROGRESSED,
)


class Clock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms

    def seconds(self) -> float:
        return self.ms / 1000


class World:
    """A log with one consumer, and what is told of it."""

    def __init__(self, component: str = "Billing", **bounds: int) -> None:
        self.clock = Clock()
        self.told: list[Notification] = []
        self.bus = Bus()
        self.bus.subscribe(self.told.append, [LAGGING, CAUGHT_UP, PROGRESSED])
        self.store = MemoryStore(self.clock)
        self.log = self.store.create("orders")
        self.component = component
        self.log.register_consumer("alice", component, after=0)
        self.watch = ConsumerWatch(
            self.bus, self.store.opened, wall_clock=self.clock, clock=self.clock.seconds, **bounds
        )

    def look(self) -> list[tuple[NotificationType, dict[str, object]]]:
        self.clock.ms += 1000
        self.watch.look()
        told = [(each.type, {k: v for k, v in each.attributes.items() if k not in ("eventType", "time")})
                for each in self.told]  # fmt: skip
        self.told.clear()
        return told

    def acknowledge(self, number: int) -> None:
        self.log.acknowledge("alice", self.component, number)


def test_a_consumer_that_is_further_behind_than_allowed_lags_and_is_told_once() -> None:
    world = World(lag_events=10)
    world.log.append([Event("Placed")] * 10)
    assert world.look() == []
    world.log.append([Event("Placed")])
    ((type, found),) = world.look()
    assert type is LAGGING
    assert found == {
        "log": "orders", "owner": "alice", "component": "Billing", "acknowledged": 0, "head": 11,
        "lagEvents": 11, "lagMs": 2000, "kind": "registered",
    }  # fmt: skip
    assert world.look() == []


def test_it_has_caught_up_when_it_is_within_the_bound_again() -> None:
    world = World(lag_events=10)
    world.log.append([Event("Placed")] * 20)
    assert [type for type, _ in world.look()] == [LAGGING]
    world.acknowledge(9)
    assert world.look() == []
    world.acknowledge(20)
    ((type, found),) = world.look()
    assert type is CAUGHT_UP and found["lagEvents"] == 0 and found["lagMs"] == 0 and found["acknowledged"] == 20


def test_a_consumer_whose_next_event_is_too_old_lags() -> None:
    world = World(lag_ms=3000)
    world.log.append([Event("Placed")])
    assert [world.look() for _ in range(3)] == [[], [], []]
    world.log.append([Event("Placed")])
    ((type, found),) = world.look()
    assert type is LAGGING and found["lagMs"] == 4000 and found["lagEvents"] == 2
    world.acknowledge(1)  # the next one is younger
    ((type, found),) = world.look()
    assert type is CAUGHT_UP and found["lagMs"] == 2000


def test_without_a_bound_nobody_lags() -> None:
    world = World()
    world.log.append([Event("Placed")] * 1000)
    world.clock.ms += 10**9
    assert world.look() == []


def test_a_consumer_that_is_gone_or_whose_log_is_gone_is_forgotten() -> None:
    world = World(lag_events=1)
    world.log.append([Event("Placed")] * 5)
    world.look()
    world.log.unregister_consumer("alice", "Billing")
    assert world.look() == [] and not world.watch._seen
    world.log.register_consumer("alice", "Billing", after=0)
    assert [type for type, _ in world.look()] == [LAGGING]
    world.store.delete("orders")
    assert world.look() == [] and not world.watch._seen


@pytest.mark.parametrize("component", ["archiver", "ARCHIVER", "Billing"])
def test_what_an_archiver_acknowledges_is_told_once_a_second_with_the_count(component: str) -> None:
    world = World(component)
    world.log.append([Event("Placed")] * 10)
    for number in (2, 3, 7):
        world.acknowledge(number)
    told = world.look()
    if component == "Billing":
        assert told == []
        return
    ((type, found),) = told
    assert type is PROGRESSED
    assert found == {
        "log": "orders", "owner": "alice", "component": component, "acknowledged": 7, "count": 7, "intervalMs": 1000,
    }  # fmt: skip
    assert world.look() == []
    world.acknowledge(8)
    assert [found["count"] for _, found in world.look()] == [1]
    world.log.reset_consumer("alice", component, 1)
    assert world.look() == []


def test_a_log_that_closes_under_the_look_is_passed_over() -> None:
    world = World(lag_events=1, lag_ms=1)
    world.log.append([Event("Placed")] * 5)
    world.log.close()
    ((type, found),) = world.look()
    assert type is LAGGING and found["lagMs"] in (0, 1000)


# Who is not registered


def group(world: World, after: int, partition: int = 0) -> Follower:
    return Follower(world.log, FollowerKind.GROUP, "workers", str(partition), after, partition)


def looked(world: World, *followers: Follower) -> list[tuple[NotificationType, object, object, object]]:
    world.clock.ms += 1000
    world.watch.look(followers)
    told = [(each.type, each.attributes["owner"], each.attributes["lagEvents"], each.attributes["lagMs"])
            for each in world.told]  # fmt: skip
    world.told.clear()
    return told


def test_a_group_that_falls_behind_in_a_partition_lags_as_a_consumer_does() -> None:
    world = World(lag_events=10)
    world.log.append([Event("Placed")] * 11)
    world.acknowledge(11)
    assert looked(world, group(world, 0)) == [(LAGGING, "workers", 11, 1000)]
    assert looked(world, group(world, 0)) == []
    assert looked(world, group(world, 11)) == [(CAUGHT_UP, "workers", 0, 0)]


def test_where_nothing_of_its_partition_waits_nobody_lags() -> None:
    world = World(lag_events=10, lag_ms=1500)
    world.store.delete("orders")
    world.log = world.store.create("orders", LogSettings(partitions=2))
    world.log.append([Event("Placed")] * 20, partition=1)
    assert looked(world, group(world, 0)) == []
    assert looked(world, group(world, 0)) == []
    world.log.append([Event("Placed")], partition=0)  # number 21
    assert looked(world, group(world, 0)) == []
    assert looked(world, group(world, 0)) == [(LAGGING, "workers", 1, 2000)]
    assert world.watch.lag(group(world, 0)) == Lag(1, 2000)


def test_who_wants_no_more_than_it_has_does_not_lag() -> None:
    world = World(lag_events=2)
    world.log.append([Event("Placed")] * 10)
    world.acknowledge(10)
    one = Follower(world.log, FollowerKind.RECEIVER, "shop", "in", 5, upto=5)
    assert looked(world, one) == []
    assert looked(world, one._replace(after=1)) == [(LAGGING, "shop", 4, 2000)]


def test_nothing_is_looked_up_for_who_keeps_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(lag_events=10, lag_ms=5000)
    world.log.append([Event("Placed")] * 5)
    reads: list[object] = []
    monkeypatch.setattr(consumers, "first_waiting", lambda *given: reads.append(given))
    many = [Follower(world.log, FollowerKind.RECEIVER, "shop", str(number), 3) for number in range(1000)]
    for _ in range(4):
        assert looked(world, *many) == []
    assert not reads


def test_what_one_look_looks_up_is_bounded_and_the_rest_has_its_turn_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "LOOKUPS_MAX", 10)
    world = World(lag_events=1)
    world.log.append([Event("Placed")] * 5)
    world.acknowledge(5)
    many = [Follower(world.log, FollowerKind.RECEIVER, "shop", str(number), 0) for number in range(25)]
    assert [len(looked(world, *many)) for _ in range(4)] == [10, 10, 5, 0]


def test_what_is_told_of_links_is_for_who_manages_the_server_and_for_their_users() -> None:
    world = World(lag_events=1)
    world.log.append([Event("Placed")] * 5)
    world.acknowledge(5)
    world.clock.ms += 1000
    one = Follower(world.log, FollowerKind.DURABLE, "alice@shop", "in", 0, user="alice")
    world.watch.look([one, group(world, 0)])
    of_link, of_group = world.told
    reader, alice = (User(name, (Grant("orders", frozenset({Right.READ})),)) for name in ("reader", "alice"))
    assert (may_see(reader, of_link), may_see(alice, of_link), may_see(reader, of_group)) == (False, True, True)


def test_a_lag_that_is_asked_for_while_somebody_moves_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.log.append([Event("Placed")] * 5)
    world.clock.ms += 1000
    world.log.append([Event("Placed")] * 5)
    world.watch.look([group(world, 0)])
    found = consumers.first_waiting

    def moved_meanwhile(*arguments: Any) -> Any:
        monkeypatch.setattr(consumers, "first_waiting", found)
        world.watch.look([group(world, 5)])
        return found(*arguments)

    monkeypatch.setattr(consumers, "first_waiting", moved_meanwhile)
    assert world.watch.lag(group(world, 0)) == Lag(10, 1000)
    assert world.watch.lag(group(world, 5)) == Lag(5, 0)
