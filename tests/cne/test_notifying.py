"""Notifications of webhooks: that an endpoint fails, once, and that it has recovered, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headwater.cne import service
from headwater.cne.delivery.endpoint import Endpoint
from headwater.cne.delivery.webhook import shown
from headwater.core import NotificationType
from headwater.core.clocks import wall_clock_ms

from ..management.told import Told
from .builders import NODE_SYNC_STATE
from .delivery.test_delivery import failing, node
from .world import PATIENCE_S, V2, Call, World

FAILING, RECOVERED = NotificationType.WEBHOOK_FAILING, NotificationType.WEBHOOK_RECOVERED
FORGOTTEN = NotificationType.WEBHOOK_FORGOTTEN


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)


def test_an_endpoint_is_reported_once_when_it_fails_and_once_when_it_has_recovered(play):
    async def scenario(world: World) -> None:
        told = Told(world.bus)
        id = await node(world)
        subscriber = await world.subscriber(failing(503, 4))
        await world.subscribe(subscriber.uri("/event?token=secret"), NODE_SYNC_STATE)
        await world.publish(id, "x", "y")
        await subscriber.until(lambda subscriber: subscriber.values[-2:] == ["x", "y"])
        expected = {"log": "cne", "endpoint": subscriber.uri("/event")}
        assert told.of(FAILING) == [{**expected, "reason": "answered 503"}]
        assert told.of(RECOVERED) == [expected]
        assert told.types((FAILING, RECOVERED)) == [FAILING, RECOVERED]

    play(scenario)


def test_the_reason_holds_nothing_of_a_secret_in_the_uri(play):
    greetings = iter([204])

    async def garbled(call: Call) -> int | bytes:
        return next(greetings, b"no status line\r\n\r\n")

    async def scenario(world: World) -> None:
        told = Told(world.bus)
        id = await node(world)
        subscriber = await world.subscriber(garbled)
        await world.subscribe(subscriber.uri("/event?token=secret"), NODE_SYNC_STATE)
        await world.publish(id, "x")
        await until(lambda: told.of(FAILING))
        (failed,) = told.of(FAILING)
        assert str(failed["reason"]).startswith("NotHttp: Expected HTTP/")
        assert "secret" not in str(failed) and "\n" not in str(failed["reason"])

    play(scenario)


def test_an_endpoint_that_delivers_is_not_reported(play):
    async def scenario(world: World) -> None:
        told = Told(world.bus)
        id = await node(world)
        subscriber = await world.subscriber()
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x")
        await subscriber.got("first", "x")
        assert not told.of(FAILING, RECOVERED)

    play(scenario)


def test_an_endpoint_that_is_suspended_and_resumed_in_vain_is_reported_once(play):
    async def scenario(world: World) -> None:
        told = Told(world.bus)
        id = await node(world)
        subscriber = await world.subscriber(failing(410, 2))
        await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        await world.publish(id, "x")
        await subscriber.until(lambda subscriber: subscriber.values.count("x") == 1)
        (endpoint,) = world.app.service.endpoints()
        for count in (2, 3):
            await until(lambda: endpoint.kept.is_suspended)
            endpoint.resume()
            await subscriber.until(lambda subscriber, count=count: subscriber.values.count("x") == count)
        await until(lambda: told.of(RECOVERED))
        assert told.types((FAILING, RECOVERED)) == [FAILING, RECOVERED]

    play(scenario)


async def suspended(world: World, *resources: str) -> tuple[str, Endpoint]:
    """The publisher of a state whose subscriber is suspended, and that endpoint."""
    id = await node(world)
    subscriber = await world.subscriber(failing(410, 1))
    for resource in resources:
        await world.subscribe(subscriber.uri(), resource)
    await world.publish(id, "x")
    (endpoint,) = world.app.service.endpoints()
    await until(lambda: endpoint.kept.is_suspended)
    return id, endpoint


def test_an_endpoint_that_is_suspended_for_too_long_is_forgotten(play, monkeypatch):
    monkeypatch.setattr(service, "FORGET_S", 0.01)

    async def scenario(world: World) -> None:
        told = Told(world.bus)
        id, endpoint = await suspended(world, NODE_SYNC_STATE, "/sync")
        await world.publish(id, "y", "z")
        endpoint.kept.suspended_at = wall_clock_ms() - 604_800_001
        await until(lambda: told.of(FORGOTTEN))
        assert told.of(FORGOTTEN) == [{"log": "cne", "endpoint": endpoint.uri, "subscriptions": 2, "missed": 3}]
        assert (await world.ask("GET", f"{V2}/subscriptions")).json == []
        assert world.app.service.endpoints() == []

    play(scenario)


def test_a_suspended_endpoint_costs_nothing_while_events_come(play):
    async def scenario(world: World) -> None:
        id, endpoint = await suspended(world, NODE_SYNC_STATE)
        feed, state = world.app.service._supervisor.present, world.store.state
        await feed.save()
        kept = state.get("cne/endpoint", endpoint.uri)
        asked = []
        endpoint.concerns = endpoint.recipient = endpoint.offer = asked.append
        await world.publish(id, "y", "z")
        await world.ask("GET", f"{V2}{NODE_SYNC_STATE}/CurrentState")
        await feed.save()
        assert asked == []
        assert state.get("cne/endpoint", endpoint.uri) == kept
        assert b"127.0.0.1" not in state.get("cne/position", "cne").value

    play(scenario)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("http://user:pass@host:8080/a/b?key=1#x", "http://host:8080/a/b"),
        ("http://[::1]:9/", "http://[::1]:9/"),
        ("https://host", "https://host"),
    ],
)
def test_what_may_be_secret_in_a_uri_is_not_shown(uri: str, expected: str) -> None:
    assert shown(uri) == expected
