"""Consumer groups by address, for clients that can set no link property: two consumers share a log."""

from __future__ import annotations

from headwater.client import connect
from headwater.core.event import Event

from ..night import IS_NIGHT
from ..waiting import eventually
from .driving import Client, texts
from .serving import Broker

PARTITIONS = 4
OF_EACH_PARTITION = 250 if IS_NIGHT else 5


def shares(broker: Broker, group: str) -> list[int]:
    """How many partitions each link of a group has, by the names of links, ascending; `group` is LOG/GROUP."""
    with connect(broker.url) as server:
        found = server.management.read("consumerGroup", group)
    owners = list(found["owners"].values())
    return sorted(owners.count(owner) for owner in set(owners))


def put(broker: Broker, log: str) -> list[str]:
    """Append as many events to each partition, numbered from 0 on; their payloads."""
    numbers = range(PARTITIONS * OF_EACH_PARTITION)
    with connect(broker.url) as server:
        appended = server.log(log)
        for partition in range(PARTITIONS):
            appended.append(
                [Event("T", b"%d" % number) for number in numbers[partition::PARTITIONS]], partition=partition
            )
    return [str(number) for number in numbers]


class GroupsByAddress:
    """The tests; a class for one client derives from it."""

    def test_two_consumers_of_one_group_get_each_event_once(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=PARTITIONS)
        address, half = f"{log}/$group/billing", PARTITIONS * OF_EACH_PARTITION // 2
        with (
            client.start("receive", address, count=half, link_name="one") as one,
            client.start("receive", address, count=half, link_name="other") as other,
        ):
            for consumer in (one, other):
                consumer.wait_for("attached")
            eventually(lambda: shares(broker, f"{log}/billing") == [2, 2])
            sent = put(broker, log)
            answers = [consumer.end() for consumer in (one, other)]
        assert not any(answer.error for answer in answers), [answer.told for answer in answers]
        got = [text for answer in answers for text in texts(answer.messages)]
        assert sorted(got, key=int) == sent, answers[0].told + answers[1].told

    def test_a_consumer_that_is_killed_leaves_its_partitions_to_the_other(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=PARTITIONS)
        address, all_of_them = f"{log}/$group/billing", PARTITIONS * OF_EACH_PARTITION
        with (
            client.start("receive", address, count=all_of_them, link_name="lost") as lost,
            client.start("receive", address, count=all_of_them, link_name="other") as other,
        ):
            for consumer in (lost, other):
                consumer.wait_for("attached")
            eventually(lambda: shares(broker, f"{log}/billing") == [2, 2])
            lost.kill()
            eventually(lambda: shares(broker, f"{log}/billing") == [PARTITIONS])
            sent = put(broker, log)
            answer = other.end()
        assert answer.error is None and sorted(texts(answer.messages), key=int) == sent, answer.told
