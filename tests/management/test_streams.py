"""Streams that tell their positions: as entities, in what is looked at each second, and in metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.core import Event
from headwater.core.watch.bus import Bus, Notification
from headwater.core.watch.notification_types import NotificationType
from headwater.management.entities import STREAM
from headwater.management.logs import LogRights, Streams
from headwater.management.notifications.consumers import ConsumerWatch
from headwater.management.operations import Management
from headwater.server.monitoring import room_metrics
from headwater.server.monitoring.room_metrics import follower_metrics
from headwater.storage.memory import MemoryStore

from .asking import Node, StrictGuard, user

TYPE = STREAM.name


class Streaming(Node):
    """A node with the entities of streams, and a log of ten events that two read."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000
        super().__init__(MemoryStore(lambda: self.now))
        self.orders = self.store.create("orders")
        self.orders.append([Event(f"E{number}") for number in range(10)])
        self.orders.streams.tell("ann", "a/b", 4)
        self.orders.streams.tell("bob", "copy", 10)

    def management(self) -> Management:
        management = super().management()
        management.serve(STREAM, Streams(LogRights(self.store, StrictGuard())))
        return management


@pytest.fixture
def node() -> Streaming:
    return Streaming()


def test_a_stream_is_an_entity_for_who_may_read_or_manage_its_log(node: Streaming) -> None:
    assert node.query("name", entityType=TYPE) == [["orders/ann/a%2Fb"], ["orders/bob/copy"]]
    for role in (user("x", read="orders"), user("x", manage="orders")):
        answer = node.ask("READ", by=role, type=TYPE, name="orders/ann/a%2Fb")
        assert isinstance(answer.body, dict)
        assert answer.status == 200 and list(answer.body) == STREAM.attribute_names
        assert [answer.body[key] for key in ("log", "owner", "stream", "position", "lag", "seenAt")] == [
            "orders", "ann", "a/b", 4, 6, node.now,
        ]  # fmt: skip
        assert answer.body["lagMs"] > 0
    assert node.query("name", by=user("x", append="orders", read="others"), entityType=TYPE) == []
    assert node.ask("READ", by=user("x", append="orders"), type=TYPE, name="orders/bob/copy").status == 403
    for name in ("orders/ann/nothing", "orders", "nowhere/ann/x"):
        assert node.ask("READ", type=TYPE, name=name).status == 404


def test_a_stream_is_forgotten_by_who_manages_its_log(node: Streaming) -> None:
    assert node.ask("DELETE", by=user("x", read="orders"), type=TYPE, name="orders/bob/copy").status == 403
    assert node.ask("DELETE", by=user("x", manage="orders"), type=TYPE, name="orders/bob/copy").status == 204
    assert node.ask("DELETE", type=TYPE, name="orders/bob/copy").status == 404
    assert node.query("name", entityType=TYPE) == [["orders/ann/a%2Fb"]]


def test_a_stream_of_a_deleted_log_is_none_of_the_next_of_that_name(node: Streaming) -> None:
    node.store.delete("orders")
    node.store.create("orders")
    assert node.query("name", entityType=TYPE) == []


def test_a_stream_that_falls_behind_is_told_as_lagging_and_when_it_has_caught_up(node: Streaming) -> None:
    told: list[Notification] = []
    bus = Bus()
    bus.subscribe(told.append, [NotificationType.CONSUMER_LAGGING, NotificationType.CONSUMER_CAUGHT_UP])
    watch = ConsumerWatch(bus, node.store.opened, lag_events=5, wall_clock=lambda: node.now + 3000)
    watch.look()
    watch.look()
    [lagging] = told
    names = ("log", "kind", "owner", "component", "acknowledged", "head", "lagEvents", "lagMs")
    assert [lagging.attributes[name] for name in names] == ["orders", "stream", "ann", "a/b", 4, 10, 6, 3000]
    node.orders.streams.tell("ann", "a/b", 9)
    watch.look()
    assert [each.type for each in told[1:]] == [NotificationType.CONSUMER_CAUGHT_UP]


def test_metrics_tell_streams_by_name_and_no_users(node: Streaming, monkeypatch: pytest.MonkeyPatch) -> None:
    node.orders.streams.tell("ann", "copy", 7)
    watch = ConsumerWatch(Bus(), node.store.opened, wall_clock=lambda: node.now + 2000)
    watch.look()

    def samples() -> dict[tuple[str, ...], float]:
        found = [sample for family in follower_metrics(watch) for sample in family.samples]
        assert len({(its.name, *its.labels.values()) for its in found}) == len(found)
        return {(sample.name, *sample.labels.values()): sample.value for sample in found}

    assert samples() == {
        ("headwater_stream_lag_events", "orders", "a/b"): 6,
        ("headwater_stream_lag_events", "orders", "copy"): 3,
        ("headwater_stream_lag_seconds", "orders", "a/b"): 2,
        ("headwater_stream_lag_seconds", "orders", "copy"): 2,
    }
    reference = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert all(f"`{key[0]}`" in reference for key in samples())
    monkeypatch.setattr(room_metrics, "STREAM_SERIES_MAX", 1)
    assert {key[2] for key in samples()} == {"a/b"}
