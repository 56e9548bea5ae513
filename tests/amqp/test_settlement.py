"""Outcomes that the receiver leaves to the sender to settle (rcv-settle-mode second): settled when they are durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.amqp.client import Client, Delivery, Receiver
from headwater.amqp.protocol.performatives import Modified
from headwater.amqp.settings import AmqpSettings
from headwater.core.errors import StorageUnavailable

from ..volatile import VolatileState, VolatileStore
from .asking import DURABLE, EARLIEST, bound, numbers, put
from .served import Served

SECOND = {"rcv_settle_mode": 1}
JOINS: dict[str, Callable[[Client], Receiver]] = {
    "durable": lambda client: client.receiver("orders", credit=5, filter=EARLIEST, source=DURABLE, **SECOND),
    "group": lambda client: client.receiver("orders", credit=5, filter=EARLIEST, properties=bound(group="G"), **SECOND),
    "group by address": lambda client: client.receiver("orders/$group/G", credit=5, filter=EARLIEST, **SECOND),
}


class Settled:
    """A receiver, and the tags that the sender has settled."""

    def __init__(self, client: Client, receiver: Receiver) -> None:
        self.client, self.receiver = client, receiver
        self.tags: list[bytes] = []
        receiver.link.on_settled = self.tags.extend  # type: ignore[method-assign]

    def answers(self) -> None:
        """Whatever the server answered before this has come."""
        self.client.receiver("orders", credit=0)

    def wait_for(self, deliveries: list[Delivery]) -> None:
        expected = [each.received.tag for each in deliveries]
        self.client.wait(lambda: self.tags == expected)


@pytest.fixture
def store() -> VolatileStore:
    return VolatileStore()


@pytest.fixture
def state(store: VolatileStore) -> VolatileState:
    return store.volatile


@pytest.fixture
def served(store: VolatileStore) -> Iterator[Served]:
    with Served(store=store, settings=AmqpSettings(unsettled_max=3)) as served:
        put(served.log("orders"), *range(1, 10))
        yield served


@pytest.fixture(params=JOINS)
def settled(request: pytest.FixtureRequest, served: Served) -> Iterator[Settled]:
    with served.client(container_id="shop") as client:
        yield Settled(client, JOINS[request.param](client))


def test_an_outcome_is_settled_by_the_commit_that_carries_its_position(settled: Settled, state: VolatileState) -> None:
    deliveries = settled.receiver.take(3)
    state.hold()
    deliveries[0].settle()
    settled.client.flush()
    assert state.is_flushing.wait(10)
    deliveries[1].settle()
    settled.answers()
    assert settled.tags == []
    state.let_go()
    settled.wait_for(deliveries[:2])
    assert any(b'"after": 2' in value for value in state.kept_values("reader"))
    deliveries[2].settle()
    settled.wait_for(deliveries)
    assert numbers(settled.receiver.take(2)) == [4, 5], "what is settled makes room for more"


def test_what_cannot_be_stored_is_settled_when_it_can(settled: Settled, state: VolatileState) -> None:
    deliveries = settled.receiver.take(3)
    state.failure = StorageUnavailable("the home does not answer")
    state.is_flushing.clear()
    for each in deliveries:
        each.settle()
    settled.client.flush()
    assert state.is_flushing.wait(10)
    settled.answers()
    assert settled.tags == [] and settled.receiver.take(1, 0) == [], "so many may be unsettled"
    state.failure = None
    settled.wait_for(deliveries)
    assert any(b'"after": 3' in value for value in state.kept_values("reader"))
    assert numbers(settled.receiver.take(1)) == [4]


def test_what_is_given_back_is_settled_too(settled: Settled, state: VolatileState) -> None:
    deliveries = settled.receiver.take(2)
    deliveries[0].settle(Modified(delivery_failed=True))
    settled.wait_for(deliveries[:1])
    assert any(b'"after": 0' in value for value in state.kept_values("reader"))


def test_a_connection_that_ends_before_hears_nothing_and_harms_none(served: Served, state: VolatileState) -> None:
    join: Any = JOINS["durable"]
    with served.client(container_id="shop") as client:
        deliveries = join(client).take(2)
        state.hold()
        deliveries[0].settle()
        client.flush()
        assert state.is_flushing.wait(10)
        client.drop()
    state.let_go()
    with served.client(container_id="shop") as client:
        assert numbers(join(client).take(1)) == [2]


def test_a_link_whose_position_is_not_kept_is_settled_at_once(served: Served, state: VolatileState) -> None:
    with served.client() as client:
        settled = Settled(client, client.receiver("orders", credit=5, filter=EARLIEST, **SECOND))
        state.hold()
        [first] = settled.receiver.take(1)
        first.settle()
        settled.wait_for([first])
        state.let_go()
