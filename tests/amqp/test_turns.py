"""Nobody who scans holds a neighbour up: the loop has other turns in between, however many receivers there are."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol.message import DATA, Message, Properties, encode_message
from headwater.amqp.protocol.performatives import Accepted
from headwater.core import Event
from headwater.core.loop.scheduler import BUDGET_S, STEP_S

from ..waiting import eventually
from .asking import EARLIEST, message, sql
from .served import Served

NOTHING = sql("p.subject LIKE '%a_b%a_b%' OR x = 'a'")
"""A filter that lets nothing through, and cannot be answered by the index."""


def scanning(client: Client, count: int) -> None:
    """So many receivers that look at all there is, and get nothing."""
    for _ in range(count):
        client.receiver("orders", credit=100, filter={**EARLIEST, **NOTHING}, waits=False)
    client.flush()


class Watched:
    """Counts what the loop does between two moments."""

    def __init__(self, served: Served) -> None:
        self.turns = served.container.shared.turns
        self.loop_turns = 0
        self.longest_s = 0.0
        turn, cpu = self.turns._turn, self.turns.cpu

        def counted() -> None:
            began = cpu()
            turn()
            self.loop_turns += 1
            self.longest_s = max(self.longest_s, cpu() - began)

        self.turns._turn = counted  # type: ignore[method-assign]


@pytest.fixture
def long(served: Served) -> Iterator[Watched]:
    """A log that takes long to look through; and a look at the turns of the loop."""
    log = served.log("orders")
    for _ in range(100):
        log.append([Event("T" * 200, b"x" * 100)] * 500)
    gc.collect()
    gc.freeze()  # else a turn may have a collection of all that the other tests left in this process
    yield Watched(served)
    gc.unfreeze()


def test_a_hundred_scanning_receivers_leave_the_loop_to_others(served: Served, client: Client, long: Watched) -> None:
    scanners = [served.client(container_id=f"scanner-{number}") for number in range(4)]
    try:
        for each in scanners:
            scanning(each, 25)
        eventually(lambda: long.turns.steps > 200)
        sender = client.sender("orders")
        before = long.loop_turns
        assert sender.send(message()) == Accepted()
        waited, steps = long.loop_turns - before, long.turns.steps
        eventually(lambda: long.turns.steps > steps + 10)  # the scanners had not come to the end
    finally:
        for each in scanners:
            each.drop()
    assert waited <= 60  # its commit is on other threads, to which the loop gives way: without it, thousands
    assert long.longest_s < 20 * (BUDGET_S + STEP_S)  # CPU time: without a budget it is that of a hundred receivers


def test_a_step_is_as_short_as_its_filter_is_dear(served: Served, client: Client) -> None:
    dear = " AND ".join(f"NOT x LIKE '%a_b{number}%'" for number in range(8))
    log = served.log("orders")
    message = encode_message(
        Message([b""], DATA, properties=Properties(subject="T"), application_properties={"x": "a" * 4000})
    )
    with served.client(container_id="producer") as producer:
        producer.sender("orders").send_all([message] * 300)
    assert log.head() == 300
    watched = Watched(served)
    receiver = client.receiver("orders", credit=1000, filter={**EARLIEST, **sql(dear + " AND x = ''")})
    eventually(lambda: watched.turns.steps >= 150)  # two events in a step at most
    assert receiver.take(1, 0.01) == []
