"""How far behind everybody is whose position lasts, as the console keeps it: who is measured, by which name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from headwater.core import Event
from headwater.core.errors import StorageCorrupted
from headwater.core.followers import Follower, FollowerKind, Lag
from headwater.core.local import LocalLog
from headwater.core.settings import SYSTEM_LOG, LogSettings
from headwater.core.watch.bus import Bus
from headwater.management.notifications.consumers import ConsumerWatch
from headwater.server.monitoring import console_samples
from headwater.server.monitoring.console_samples import Lags
from headwater.storage.memory import MemoryStore

MADE_MS, NOW_MS = 100_000, 102_500
EVENT = Event("T", b"")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=lambda: MADE_MS)


def with_events(store: MemoryStore, name: str, count: int) -> LocalLog:
    log = store.create(name)
    log.append([EVENT] * count)
    return log


def measured(
    store: MemoryStore, followers: Iterable[Follower] = (), webhooks: Iterable[Follower] = ()
) -> Mapping[str, Lag]:
    watch = ConsumerWatch(Bus(), store.opened, wall_clock=lambda: NOW_MS)
    watch.look(list(followers))
    return now(watch, webhooks)


def now(watch: ConsumerWatch, webhooks: Iterable[Follower] = ()) -> Mapping[str, Lag]:
    async def told() -> Iterable[Follower]:
        return webhooks

    return asyncio.run(Lags(watch, told).now())


def test_the_lag_of_each_consumer_is_measured_by_its_name_and_the_furthest_behind_come_first(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, events in (("orders", 3), ("audit", 1)):
        with_events(store, name, events).register_consumer("billing", "a/b,c%", after=0)
    store.open("orders").register_consumer("ship", "robot", after=3)
    found = measured(store)
    assert list(found) == ["orders/billing/a%2Fb%2Cc%25", "audit/billing/a%2Fb%2Cc%25", "orders/ship/robot"]
    assert found["orders/billing/a%2Fb%2Cc%25"] == Lag(3, 2500)
    assert found["orders/ship/robot"] == Lag(0, 0)
    monkeypatch.setattr(console_samples, "CONSUMERS_MAX", 1)
    assert list(measured(store)) == ["orders/billing/a%2Fb%2Cc%25"]


def test_groups_durable_links_streams_and_webhooks_are_measured_by_their_kinds(store: MemoryStore) -> None:
    log = with_events(store, "orders", 10)
    log.register_consumer("workers", "x", after=0)
    log.streams.tell("ann", "copy", 4)
    found = measured(
        store,
        [
            Follower(log, FollowerKind.GROUP, "workers/x", "0", 1, 0),
            Follower(log, FollowerKind.DURABLE, "ann@shop", "in,1", 2, user="ann"),
            Follower(log, FollowerKind.RECEIVER, "ann@shop", "out", 3, user="ann"),
            Follower(log, FollowerKind.DURABLE, "shop", "", 8),
            Follower(log, FollowerKind.DURABLE, "shop", "x" * console_samples.NAME_BYTES_MAX, 0),
        ],
        [Follower(log, FollowerKind.WEBHOOK, "7b1c", "", 7)],
    )
    assert found == {
        "orders/workers/x": Lag(10, 2500),
        "group:orders/workers%2Fx": Lag(9, 2500),
        "durable:orders/ann@shop/in%2C1": Lag(8, 2500),
        "stream:orders/ann/copy": Lag(6, 2500),
        "webhook:orders/7b1c": Lag(3, 2500),
        "durable:orders/shop/": Lag(2, 2500),
    }
    assert list(found) == sorted(found, key=lambda name: -found[name].events)


def test_a_group_is_as_far_behind_as_its_last_partition_and_as_its_oldest_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = MADE_MS
    store = MemoryStore(clock=lambda: made)
    log = store.create("split", LogSettings(partitions=3))
    for partition in (0, 1):
        log.append([EVENT] * 2, partition=partition)
        made += 1000
    group = [Follower(log, FollowerKind.GROUP, "g", str(number), 0, number) for number in range(3)]
    assert measured(store, group) == {"group:split/g": Lag(2, 2500)}, "nothing waits in the third"
    assert measured(store, [each._replace(after=2) for each in group]) == {"group:split/g": Lag(2, 1500)}
    monkeypatch.setattr(console_samples, "POSITIONS_MAX", 2)
    assert measured(store, group) == {}, "too many to look up"
    assert measured(store, [*group, group[0]._replace(owner="h")]) == {"group:split/h": Lag(2, 2500)}


def test_what_cannot_be_read_is_a_gap_and_what_the_server_keeps_for_itself_is_not_measured(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = store.create(SYSTEM_LOG, is_own=True)
    own.append([EVENT])
    log, gone = with_events(store, "orders", 2), with_events(store, "gone", 2)
    for each in (log, gone, own):
        each.register_consumer("billing", "x", after=0)
    watch = ConsumerWatch(Bus(), store.opened, wall_clock=lambda: NOW_MS)
    watch.look([Follower(each, FollowerKind.DURABLE, "shop", "in", 0) for each in (log, gone, own)])
    store.delete("gone")
    assert set(now(watch)) == {"orders/billing/x", "durable:orders/shop/in"}

    def damaged(*_: Any, **__: Any) -> None:
        raise StorageCorrupted("orders", "a segment is damaged", "restore it")

    monkeypatch.setattr(log, "read_page", damaged)
    assert set(measured(store)) == set()
