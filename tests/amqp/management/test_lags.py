"""How far who reads over AMQP is behind: in entities, in what the server looks at each second, and in metrics."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from headwater.amqp.client import Client
from headwater.amqp.protocol.types import Symbol, ULong
from headwater.amqp.streams.followers import Following
from headwater.core.followers import Follower, FollowerKind
from headwater.core.watch.bus import Bus
from headwater.management.entities import TYPES
from headwater.management.notifications.consumers import ConsumerWatch
from headwater.server.monitoring import room_metrics
from headwater.server.monitoring.room_metrics import follower_metrics
from headwater.storage.memory import MemoryStore

from ..asking import DURABLE, EARLIEST, bound, put, sql
from ..served import Served
from .test_peers import CONNECTION, GROUP, LINK, one

DURABLE_LINK = "io.headwater.durableLink"


def followers(served: Served) -> list[tuple[str, ...]]:
    found: list[Follower] = served.run(Following(served.container.nodes).followers)
    return sorted((each.kind.value, each.owner, each.component, str(each.after)) for each in found)


def test_a_receiver_tells_its_filter_its_position_and_how_far_it_is_behind(served: Served, client: Client) -> None:
    put(served.store.open("orders"), *range(5))
    receiver = client.receiver("orders", name="out", credit=2, filter=EARLIEST)
    deliveries = receiver.take(2)
    assert one(client, LINK, linkName="out")["position"] == 0
    for delivery in deliveries:
        delivery.settle()
    client.flush()
    client.wait(lambda: one(client, LINK, linkName="out")["position"] == 2)
    entity = one(client, LINK, linkName="out")
    assert (entity["lag"], entity["partition"], entity["group"], entity["sentAgain"]) == (3, None, None, 0)
    assert 0 <= entity["lagMs"] < 60_000 and list(entity["filter"]) == ["begin"]
    client.receiver("orders", name="some", filter=sql("p.subject = 'T'"))
    assert one(client, LINK, linkName="some")["filter"] == {"only": "p.subject = 'T'"}
    sender = client.sender("orders", name="in")
    assert one(client, LINK, linkName="in")["position"] is None
    sender.close()


def test_a_member_of_a_group_tells_its_group_partition_and_epoch_and_the_group_its_lags() -> None:
    with Served() as served, served.client() as other:
        log = served.log("split", partitions=2)
        put(log, 1, 2, 3, partition=0)
        put(log, 4, 5, 6, partition=1)
        epoch = 2**63 + 7
        receiver = other.receiver(
            "split",
            filter=EARLIEST,
            properties={**bound(0, "workers"), Symbol("event-streams-epoch"): ULong(epoch)},
            credit=1,
        )
        receiver.take(1)[0].settle()
        other.flush()
        other.wait(lambda: one(other, GROUP)["positions"] == {"0": 1})
        entity = one(other, LINK, log="split")
        assert (entity["partition"], entity["group"], entity["epoch"]) == (0, "workers", epoch)
        group = one(other, GROUP)
        assert group["lags"] == {"0": 2} and 0 <= group["lagsMs"]["0"] < 60_000
        assert followers(served) == [("group", "workers", "0", "1")]


def test_a_durable_link_is_an_entity_whether_it_is_attached_or_not(served: Served, client: Client) -> None:
    put(served.store.open("orders"), 1, 2, 3)
    other = served.client(container_id="shop")
    receiver = other.receiver("orders", name="x", source=DURABLE, filter=EARLIEST, credit=1)
    receiver.take(1)[0].settle()
    other.flush()
    client.wait(lambda: one(client, DURABLE_LINK)["position"] == 1)
    entity = one(client, DURABLE_LINK)
    assert (entity["name"], entity["isAttached"], entity["lag"]) == ("orders/shop/x", True, 2)
    assert (entity["detachedAt"], entity["expiresAt"]) == (None, None)
    began = time.time_ns() // 1_000_000
    assert list(entity) == TYPES[DURABLE_LINK].attribute_names
    assert client.manage("DELETE", type=DURABLE_LINK, name="orders/shop/x").status == 409
    assert followers(served) == [("durable", "shop", "x", "1")]
    other.drop()
    client.wait(lambda: not one(client, DURABLE_LINK)["isAttached"])
    assert began <= int(one(client, DURABLE_LINK)["detachedAt"]) <= time.time_ns() // 1_000_000
    assert followers(served) == [("durable", "shop", "x", "1")]
    assert client.manage("DELETE", type=DURABLE_LINK, name="orders/shop/x").status == 204
    assert client.manage("READ", type=DURABLE_LINK, name="orders/shop/x").status == 404
    assert followers(served) == []


def test_plain_receivers_are_looked_at_while_they_are_attached(served: Served, client: Client) -> None:
    put(served.store.open("orders"), 1, 2, 3)
    with served.client(container_id="shop") as other:
        other.receiver("orders", name="x", filter=EARLIEST, credit=0)
        assert followers(served) == [("receiver", "shop", "x", "0")]
    client.wait(lambda: followers(served) == [])


def test_a_group_that_nobody_has_come_back_for_since_a_restart_is_looked_at() -> None:
    store = MemoryStore()
    with Served(store=store) as served, served.client() as client:
        put(served.log(), 1, 2, 3)
        receiver = client.receiver("orders", filter=EARLIEST, properties=bound(None, "workers"), credit=1)
        receiver.take(1)[0].settle()
        client.flush()
        client.wait(lambda: one(client, GROUP)["positions"] == {"0": 1})
    with Served(store=store) as again:
        assert again.container.nodes.all == []
        assert followers(again) == [("group", "workers", "0", "1")]


def samples(watch: ConsumerWatch) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in follower_metrics(watch)
        for sample in family.samples
    }


def test_metrics_tell_groups_by_partition_and_links_by_log(monkeypatch: Any) -> None:
    store = MemoryStore(clock=lambda: 100_000)
    log = store.create("orders")
    put(log, *range(10))
    watch = ConsumerWatch(Bus(), store.opened, wall_clock=lambda: 103_000)
    groups = [Follower(log, FollowerKind.GROUP, f"g{number}", "0", number, 0) for number in range(5)]
    links = [Follower(log, FollowerKind.RECEIVER, "shop", f"l{number}", number) for number in range(5, 9)]
    watch.look([*groups, *links])
    found = samples(watch)
    assert found["headwater_group_lag_events", "orders", "g4", "0"] == 6
    assert found["headwater_group_lag_seconds", "orders", "g4", "0"] == 3
    assert found["headwater_link_lag_events", "orders", "receiver"] == 5
    assert found["headwater_links_following", "orders", "receiver"] == 4
    monkeypatch.setattr(room_metrics, "GROUP_SERIES_MAX", 2)
    assert {key[2] for key in samples(watch) if key[0] == "headwater_group_lag_events"} == {"g0", "g1"}
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert all(f"`{key[0]}`" in reference for key in found)


def test_a_connection_tells_its_port_and_how_it_has_logged_in(served: Served, client: Client) -> None:
    entity = one(client, CONNECTION)
    assert (entity["mechanism"], entity["tls"]) == ("ANONYMOUS", None) and entity["port"] > 0
