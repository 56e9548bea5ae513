"""Who holds trimming back, and what becomes of a reader that asks for what was trimmed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.core import AppendCondition, Event, Query
from headwater.core.errors import AppendConditionFailed, PositionTrimmed
from headwater.flight.wire import Ticket
from headwater.spark.archive.archiver import Archiver
from tests.amqp.asking import after, drained, offsets
from tests.docs.documents import ROOT, table_after
from tests.spark.archive_tables import step

from ..waiting import eventually
from .cases import CASES, resource
from .readers import of_batches
from .world import CNE, LOG, World, served
from .writers import WRITERS

pytestmark = pytest.mark.timeout(180)

WRITER = {writer.name: writer for writer in WRITERS}
PLAIN = next(case for case in CASES if case.name == "plain")
NOTIFICATION = next(case for case in CASES if case.name == "notification")
RETAINED = 9
"""The first number that is still there, of the twelve that were."""


def futoin(world: World, log: str, function: str, **parameters: Any) -> Any:
    """The answer to a call of futoin.evt.poll."""
    call = {"f": f"futoin.evt.poll:1.1:{function}", "p": parameters, "sec": "bob:secret"}
    return world.call("POST", f"/futoin/{log}", json.dumps(call).encode()).json


def test_futoin_consumer_and_spark_archive_hold_trimming_back(world: World, tmp_path: Path) -> None:
    orders = world.client.create("orders")
    orders.append([Event("ORDER_NEW", b"{}") for _ in range(30)])
    assert futoin(world, "orders", "registerConsumer", component="BILLING")["r"] is True
    archiver = Archiver.open(world.bulk, "orders", tmp_path / "orders")
    assert orders.trim(31) == 1, "neither has anything"
    assert len(futoin(world, "orders", "pollEvents", component="BILLING")["r"]) == 30
    assert orders.trim(31) == 1, "FutoIn's consumer was given all, and has acknowledged nothing"
    futoin(world, "orders", "pollEvents", component="BILLING", last_id="20")
    assert world.bulk.trim("orders", 31) == 1, "the archive has nothing"
    step(archiver, world.bulk, upto=10)
    assert world.bulk.trim("orders", 31) == 11, "the archive has ten"
    step(archiver, world.bulk)
    assert orders.trim(31) == 21, "the archive has all, FutoIn's consumer twenty"
    held = {(each.owner, each.component): each.acknowledged for each in orders.consumers()}
    assert held == {("bob", "BILLING"): 20, ("spark", "ARCHIVER"): 30}
    assert [each["id"] for each in futoin(world, "orders", "pollEvents", component="BILLING")["r"]] == [
        str(number) for number in range(21, 31)
    ]
    futoin(world, "orders", "pollEvents", component="BILLING", last_id="30")
    assert orders.trim(31) == 31
    assert list(orders.read()) == []


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Twelve events of an AMQP producer, of which the last four are left; one reader appends another."""
    with served(tmp_path_factory.mktemp("trimmed")) as world:
        for number in range(1, 13):
            world.write(WRITER["amqp"], replace(PLAIN, name=f"e-{number}", type=f"T{number}"))
        eventually(lambda: world.log.trim(RETAINED) == RETAINED)  # the feed of the notifications has to get there first
        yield world


def asked_below(world: World, path: str, body: bytes, **headers: str) -> None:
    """An HTTP read below the trim point is refused, and told where it may begin."""
    answer = world.call("POST" if body else "GET", path, body, {"content-type": "application/json", **headers})
    assert (answer.status, answer.json["type"]) == (410, "urn:headwater:problem:position_trimmed")
    assert answer.json["first_retained"] == RETAINED


def retained(world: World) -> list[int]:
    """The numbers that are there."""
    return [*range(RETAINED, world.log.head() + 1)]


def dcb(world: World) -> None:
    asked_below(world, f"/logs/{LOG}/read", b'{"query": "all", "after": 2}')
    assert [event.sequence_number for event in world.log.read()] == retained(world)


def subscription(world: World) -> None:
    asked_below(world, f"/logs/{LOG}/subscribe?query=all&after=2", b"")


def cloudevents(world: World) -> None:
    asked_below(
        world, f"/logs/{LOG}/read", b'{"query": "all", "after": 2}', accept="application/cloudevents-batch+json"
    )


def amqp(world: World) -> None:
    receiver = world.amqp.receiver(LOG, credit=0, filter=after(2))
    assert offsets(drained(world.amqp, receiver)) == retained(world)
    receiver.close()


def futoin_consumer(world: World) -> None:
    assert futoin(world, LOG, "registerConsumer", component="LATE")["r"] is True
    found = futoin(world, LOG, "pollEvents", component="LATE")["r"]
    assert [each["id"] for each in found] == [str(number) for number in retained(world)]


def futoin_live(world: World) -> None:
    found = futoin(world, LOG, "pollEvents", component="LIVE", last_id="2")["r"]
    assert [each["id"] for each in found] == [str(number) for number in retained(world)]


def flight(world: World) -> None:
    with pytest.raises(PositionTrimmed) as refused:
        list(world.bulk.read(Ticket(LOG, after=2)))
    assert refused.value.first_retained == RETAINED
    assert [seen.number for seen in of_batches(world.bulk.read(Ticket(LOG)))] == retained(world)


def condition(world: World) -> None:
    with pytest.raises(AppendConditionFailed) as failed:
        world.log.append([Event("Decided")], AppendCondition(Query.where(types=["T2"])))
    assert failed.value.conflict == 2


def repeat(world: World) -> None:
    head = world.log.head()
    WRITER["dcb"].write(world, replace(PLAIN, name="e-12", type="T12", id_form="amqp-{case}"))
    assert world.log.head() == head
    WRITER["dcb"].write(world, replace(PLAIN, name="e-2", type="T13", id_form="amqp-{case}"))
    assert world.log.head() == head + 1


BELOW = {
    "a read over HTTP": dcb,
    "a subscription over HTTP": subscription,
    "a read of CloudEvents": cloudevents,
    "a receiver over AMQP": amqp,
    "a FutoIn consumer that registers": futoin_consumer,
    "a FutoIn poll of `LIVE`": futoin_live,
    "a Flight ticket": flight,
    "an append condition": condition,
    "an event that is repeated": repeat,
}


@pytest.mark.parametrize("reader", BELOW)
def test_below_the_trim_point(trimmed: World, reader: str) -> None:
    BELOW[reader](trimmed)


def test_page_says_what_becomes_of_each_reader() -> None:
    rows = [cells[0] for cells in table_after(ROOT / "docs" / "reference" / "mapping.md", "trimmed")]
    assert rows == [*BELOW, "a webhook that was away", "a current state", "a read with Spark"]


def test_webhook_that_was_away_gets_the_state_and_a_gap(tmp_path: Path) -> None:
    """Of more events than wait in memory; and the state outlives the events that it was made of."""
    with served(tmp_path, "--cne-queue-events-max", "1") as world:
        world.listen()
        world.webhook.is_up = False
        for second in range(6):
            attributes = {"time": f"2026-01-31T12:00:0{second}Z"}
            world.write(WRITER["cne"], replace(NOTIFICATION, name="away", attributes=attributes))
        last = world.log.head()
        eventually(lambda: world.log.trim(last + 1) == last + 1)
        state = world.call("GET", f"{CNE}{resource('cne', 'away')}/CurrentState").json
        assert (state["sequence"], state["time"]) == (f"{last:018d}", "2026-01-31T12:00:05Z")
        world.webhook.is_up = True
        world.webhook.until(last)
        [made] = world.call("GET", f"{CNE}/subscriptions").json
        told = world.call("GET", f"{CNE}/subscriptions/{made['SubscriptionId']}/delivery").json
        assert told["gaps"], told
