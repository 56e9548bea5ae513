"""Runtime information on a server: `LOG/$info`, as section 6 of event streams has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.amqp.client import Client
from headwater.amqp.filters import format_offset
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.message import VALUE
from headwater.amqp.protocol.types import Symbol
from headwater.amqp.settings import AmqpSettings

from .asking import drained, put
from .served import Served


@pytest.fixture
def patient() -> Iterator[Client]:
    """A client of a server that takes a long pause between two messages."""
    with Served(settings=AmqpSettings(info_pause_ms=3_600_000)) as served:
        served.log("orders")
        with served.client() as connected:
            yield connected


@pytest.fixture
def busy() -> Iterator[Served]:
    """A server that takes nearly none."""
    with Served(settings=AmqpSettings(info_pause_ms=1)) as running:
        running.log("orders")
        yield running


def test_the_message_is_a_map_of_partitions(served: Served, client: Client) -> None:
    log = served.log("split", partitions=3)
    put(log, 1, 2, partition=0)
    put(log, 3, partition=2)
    (delivery,) = client.receiver("split/$info", credit=1).take(1)
    assert delivery.message.body_kind == VALUE
    assert delivery.message.properties is None and delivery.message.application_properties is None
    entries = delivery.message.body["partitions"]
    assert [(each["partition"], each["earliest-offset"], each["latest-offset"]) for each in entries] == [
        ("0", format_offset(1), format_offset(2)), ("1", None, None), ("2", format_offset(3), format_offset(3)),
    ]  # fmt: skip
    assert {type(entries[0][name]) for name in ("partition", "earliest-offset", "latest-offset")} == {Symbol}
    assert delivery.message.body["head-offset"] == format_offset(3)


def test_a_log_without_partitions_has_its_main_partition(client: Client) -> None:
    (delivery,) = client.receiver("orders/$info", credit=1).take(1)
    (entry,) = delivery.message.body["partitions"]
    assert entry["partition"] == "0"


@pytest.mark.parametrize("address", ["/orders/$info", "amqp://elsewhere:1/orders/$info"])
def test_its_address_is_that_of_the_log_and_info(client: Client, address: str) -> None:
    assert client.receiver(address, credit=1).take(1)[0].message.body["log"] == "orders"


def test_an_offset_that_it_tells_is_where_a_receiver_may_begin(served: Served, client: Client) -> None:
    from .asking import annotations_filter, numbers

    log = served.log("orders")
    put(log, 1, 2, 3)
    (delivery,) = client.receiver("orders/$info", credit=1).take(1)
    put(log, 4, 5)
    (entry,) = delivery.message.body["partitions"]
    receiver = client.receiver("orders", filter=annotations_filter(offset=entry["latest-offset"]))
    assert numbers(receiver.take(2)) == [4, 5]


def test_info_is_answered_for_each_credit(busy: Served) -> None:
    with busy.client() as client:
        receiver = client.receiver("orders/$info", credit=0)
        for head in range(1, 4):
            put(busy.log("orders"), head)
            receiver.link.grant(1)
            (delivery,) = receiver.take(1)
            assert delivery.message.body["head-offset"] == format_offset(head)
        receiver.link.grant(3)
        assert len(receiver.take(3)) == 3
        assert receiver.link.credit == 0


def test_there_is_a_pause_between_two_messages(patient: Client) -> None:
    receiver = patient.receiver("orders/$info", credit=0)
    receiver.link.grant(5)
    assert len(receiver.take(1)) == 1
    assert drained(patient, receiver, 4) == []
    assert receiver.link.delivery_count == 5


def test_a_drain_gets_one_message_at_most(patient: Client) -> None:
    receiver = patient.receiver("orders/$info", credit=0)
    assert len(drained(patient, receiver, 5)) == 1


def test_receivers_do_not_wait_for_each_other(patient: Client) -> None:
    assert [len(patient.receiver("orders/$info", credit=1).take(1)) for _ in range(3)] == [1, 1, 1]


def test_outcomes_of_information_mean_nothing(busy: Served) -> None:
    from headwater.amqp.protocol.performatives import Modified, Released

    with busy.client() as client:
        receiver = client.receiver("orders/$info", credit=1)
        for state in (Released(), Modified(delivery_failed=True), None):
            (delivery,) = receiver.take(1)
            delivery.settle(state)
        assert len(receiver.take(1)) == 1


def test_information_may_come_settled(client: Client) -> None:
    (delivery,) = client.receiver("orders/$info", credit=1, snd_settle_mode=1).take(1)
    assert delivery.received.is_settled


@pytest.mark.parametrize("address", ["nowhere/$info", "$info", "orders/$info/more", "orders/$Info"])
def test_information_of_nothing_is_refused(client: Client, address: str) -> None:
    with pytest.raises(AmqpError) as refused:
        client.receiver(address)
    assert refused.value.condition == conditions.NOT_FOUND


def test_information_ends_with_its_log(busy: Served) -> None:
    with busy.client() as client:
        receiver = client.receiver("orders/$info", credit=0)
        busy.store.delete("orders")
        with pytest.raises(AmqpError) as ended:
            receiver.take(1)
        assert ended.value.condition == conditions.RESOURCE_DELETED
