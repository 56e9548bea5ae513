"""Consumers of cloud-event-proxy behind one address start again: 409, DELETE of all, POST again, without a pause."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .builders import NODE_SYNC_STATE
from .world import V1, V2, World

RESOURCES = (NODE_SYNC_STATE, NODE_SYNC_STATE.rpartition("/")[0])
REQUESTS_MAX = 20


@dataclass
class Consumer:
    """What a consumer of cloud-event-proxy does, one request at a time."""

    world: World
    endpoint: str
    peer: str
    base: str = V2
    """Of its DELETE."""
    missing: list[str] = field(default_factory=lambda: list(RESOURCES))
    is_deleting: bool = False

    async def step(self) -> None:
        if self.is_deleting:
            self.is_deleting = False
            await self.world.ask("DELETE", f"{self.base}/subscriptions", peer=self.peer)  # whatever the answer is
            return
        body = {"EndpointUri": self.endpoint, "ResourceAddress": self.missing[0]}
        status = (await self.world.ask("POST", f"{V2}/subscriptions", body, peer=self.peer)).status
        assert status in (201, 409)
        if status == 201:
            self.missing.pop(0)
        else:
            self.is_deleting = True


class Node:
    """Some consumers, each with its own port. Every run of them is at an address of its own."""

    def __init__(self, world: World, ports: Sequence[int], base: str = V2) -> None:
        self._world, self._ports, self._base, self._runs = world, ports, base, 0

    async def run(self, next_of: Callable[[list[int]], int]) -> int:
        """Start all of them again, `next_of` says whose turn it is; answers the number of requests."""
        self._runs += 1
        peer = f"10.0.{self._runs // 256}.{self._runs % 256}"
        uris = [f"http://127.0.0.1:{port}/{self._runs}" for port in self._ports]
        for uri in uris:  # from before the restart
            await self._finish(Consumer(self._world, uri, peer))
        consumers = [Consumer(self._world, uri, peer, self._base) for uri in uris]
        requests = 0
        while waiting := [index for index, each in enumerate(consumers) if each.missing]:
            await consumers[next_of(waiting)].step()
            requests += 1
            assert requests <= REQUESTS_MAX * (len(consumers) - 1), "they go on for ever"
        there = [
            each.endpoint for each in self._world.app.service.subscriptions.by_id.values() if each.owner.endswith(peer)
        ]
        assert sorted(there) == sorted(uris * len(RESOURCES)), "each has what it was told that it has"
        await self._world.app.service.unsubscribe(
            *[each for each in self._world.app.service.subscriptions.by_id.values() if each.owner.endswith(peer)]
        )
        return requests

    async def _finish(self, consumer: Consumer) -> None:
        while consumer.missing:
            await consumer.step()


class Schedules:
    """All schedules of two consumers, depth first."""

    def __init__(self) -> None:
        self._choices: list[tuple[int, int]] = []
        """Each with how many there were."""

    def __iter__(self) -> Iterator[Callable[[list[int]], int]]:
        while True:
            self._at = 0
            yield self._next
            while self._choices and self._choices[-1][0] + 1 == self._choices[-1][1]:
                self._choices.pop()
            if not self._choices:
                return
            chosen, of = self._choices[-1]
            self._choices[-1] = chosen + 1, of

    def _next(self, waiting: list[int]) -> int:
        if self._at == len(self._choices):
            self._choices.append((0, len(waiting)))
        chosen, _ = self._choices[self._at]
        self._at += 1
        return waiting[chosen]


async def node(world: World, count: int, base: str = V2) -> Node:
    for resource in RESOURCES:
        await world.publisher(resource)
    return Node(world, [(await world.subscriber()).port for _ in range(count)], base)


@pytest.mark.parametrize("base", [V1, V2])
def test_two_consumers_behind_one_address_subscribe_again_within_20_requests_in_every_order(play, base):
    async def scenario(world: World) -> None:
        two = await node(world, 2, base)
        requests = [await two.run(next_of) for next_of in Schedules()]
        assert len(requests) > 100
        assert max(requests) <= REQUESTS_MAX

    play(scenario)


def test_three_consumers_behind_one_address_subscribe_again_in_any_order(play):
    async def scenario(world: World) -> None:
        three = await node(world, 3)
        schedules: list[list[int]] = []

        @settings(max_examples=150)
        @given(st.lists(st.integers(0, 5), max_size=60))
        def collect(schedule: list[int]) -> None:
            schedules.append(schedule)

        collect()
        for schedule in schedules:
            turns = iter(schedule)
            await three.run(lambda waiting, turns=turns: waiting[next(turns, 0) % len(waiting)])

    play(scenario)


def test_a_delete_of_all_after_no_409_or_an_old_one_is_refused_where_several_callers_share_an_address(
    play, monkeypatch
):
    async def scenario(world: World) -> None:
        await world.publisher(NODE_SYNC_STATE)
        bodies = [
            {"EndpointUri": (await world.subscriber()).uri(), "ResourceAddress": NODE_SYNC_STATE} for _ in range(2)
        ]
        for body in bodies:
            assert (await world.ask("POST", f"{V2}/subscriptions", body)).status == 201
        refused = await world.ask("DELETE", f"{V2}/subscriptions")
        assert refused.status == 400 and "?EndpointUri=HOST:PORT" in refused.problem
        assert (await world.ask("POST", f"{V2}/subscriptions", bodies[0], peer="10.0.0.9")).status == 409
        assert (await world.ask("DELETE", f"{V2}/subscriptions")).status == 400, "another address's 409 does not count"
        monkeypatch.setattr("headwater.cne.conflicts.REMEMBERED_S", 0.0)
        assert (await world.ask("POST", f"{V2}/subscriptions", bodies[0])).status == 409
        assert (await world.ask("DELETE", f"{V2}/subscriptions")).status == 400
        assert len((await world.ask("GET", f"{V2}/subscriptions")).json) == 2

    play(scenario)


def test_so_many_409s_are_remembered_and_the_oldest_is_forgotten_first(play):
    async def scenario(world: World) -> None:
        await world.publisher(NODE_SYNC_STATE)
        bodies = [
            {"EndpointUri": (await world.subscriber()).uri(), "ResourceAddress": NODE_SYNC_STATE} for _ in range(2)
        ]
        for body in bodies:
            assert (await world.ask("POST", f"{V2}/subscriptions", body)).status == 201
        assert (await world.ask("POST", f"{V2}/subscriptions", bodies[0])).status == 409
        for _ in range(1000):
            assert (await world.ask("POST", f"{V2}/subscriptions", bodies[0], peer="10.0.0.9")).status == 409
        assert (await world.ask("DELETE", f"{V2}/subscriptions")).status == 400

    play(scenario)


@pytest.mark.parametrize("query", ["", "EndpointUri=127.0.0.1:{port}"])
def test_a_consumer_whose_address_has_changed_subscribes_again(play, query):
    async def scenario(world: World) -> None:
        await world.publish(await world.publisher(NODE_SYNC_STATE), "LOCKED")
        subscriber, other = await world.subscriber(), await world.subscriber()
        await world.subscribe(other.uri(), NODE_SYNC_STATE)

        async def ask(method: str, peer: str) -> int:
            body = {"EndpointUri": subscriber.uri(), "ResourceAddress": NODE_SYNC_STATE} if method == "POST" else b""
            given = query.format(port=subscriber.port) if method == "DELETE" else ""
            return (await world.ask(method, f"{V2}/subscriptions", body, peer=peer, query=given)).status

        assert await ask("POST", "10.0.0.1") == 201
        assert await ask("DELETE", "10.0.0.2") == 204, "of nothing: it got no 409"
        steps = [await ask(method, "10.0.0.2") for method in ("POST", "DELETE", "POST")]
        assert steps == [409, 204, 201]
        left = (await world.ask("GET", f"{V2}/subscriptions")).json
        assert sorted(each["EndpointUri"] for each in left) == sorted([subscriber.uri(), other.uri()])

    play(scenario)


def test_a_409_takes_no_subscription_of_a_consumer_that_is_known_by_its_certificate(play):
    async def scenario(world: World) -> None:
        await world.publish(await world.publisher(NODE_SYNC_STATE), "LOCKED")
        subscriber = await world.subscriber()
        body = {"EndpointUri": subscriber.uri(), "ResourceAddress": NODE_SYNC_STATE}
        known = {"tls": {"client_cert_name": "CN=consumer"}}
        assert (await world.ask("POST", f"{V2}/subscriptions", body, extensions=known)).status == 201
        assert (await world.ask("POST", f"{V2}/subscriptions", body)).status == 409
        assert (await world.ask("DELETE", f"{V2}/subscriptions")).status == 204
        assert len((await world.ask("GET", f"{V2}/subscriptions")).json) == 1

    play(scenario)
