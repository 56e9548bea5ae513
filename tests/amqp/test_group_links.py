"""Consumer groups by address, `LOG/$group/NAME`: partitions come and go while the link stays (event streams, 4.5.1)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest

from headwater.amqp.client import Client, Receiver
from headwater.amqp.connections.transport import Attach
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.amqp.protocol.performatives import Modified, Rejected, Released
from headwater.amqp.protocol.types import Symbol, ULong
from headwater.amqp.redirect import Elsewhere, attach_reading
from headwater.amqp.settings import AmqpSettings
from headwater.core.local import LocalLog
from headwater.core.watch.notification_types import NotificationType

from ..management.told import Told
from ..waiting import eventually
from .asking import (
    ASSOCIATED_PARTITIONS,
    EARLIEST,
    SOURCE_PARTITION,
    annotation,
    bound,
    drained,
    message,
    numbers,
    put,
)
from .connections.test_login import ACCOUNTS, guard
from .management.test_peers import GROUP, LINK, one
from .served import Served

ASSIGNED, RELEASED = NotificationType.PARTITION_ASSIGNED, NotificationType.PARTITION_RELEASED
PARTITIONS = 4


@pytest.fixture
def log(served: Served) -> LocalLog:
    return served.log("split", partitions=PARTITIONS)


@pytest.fixture
def other(served: Served) -> Iterator[Client]:
    with served.client() as connected:
        yield connected


def join(client: Client, group: str = "G", **options: Any) -> Receiver:
    """A receiver of that group, without credit."""
    return client.receiver(f"split/$group/{quote(group, safe='')}", **{"credit": 0, **options})


def shares(served: Served, group: str = "G") -> list[str | None]:
    """By partition, the name of the link that has it."""
    owners = served.run(lambda: _owners(served, group))
    return [None if owner is None else owner.link_name for owner in owners]


async def _owners(served: Served, group: str) -> list[Any]:
    return (await served.container.nodes.node_of("split")).groups.owners(group)


def refusal(client: Client, address: str, **options: Any) -> AmqpError:
    with pytest.raises(AmqpError) as refused:
        client.receiver(address, credit=0, **options)
    return refused.value


def test_a_link_is_attached_at_once_and_its_answer_names_neither_group_nor_partition(
    served: Served, log: LocalLog, client: Client, other: Client
) -> None:
    links = [join(each, name=name) for each, name in ((client, "a"), (other, "b"), (client, "c"))]
    links += [join(client, name=f"more-{number}") for number in range(PARTITIONS)]
    assert [link.link.remote.properties for link in links] == [None] * len(links)
    assert [link.link.remote.source.address for link in links] == ["split/$group/G"] * len(links)


def test_one_link_has_all_partitions_and_names_them_with_its_first_transfer(
    served: Served, log: LocalLog, client: Client
) -> None:
    link = join(client, name="a")
    eventually(lambda: shares(served) == ["a"] * PARTITIONS)
    for number in range(8):
        put(log, number, partition=number % PARTITIONS)
    got = drained(client, link)
    assert sorted(numbers(got)) == list(range(8))
    assert all(int(annotation(each, SOURCE_PARTITION)) == numbers([each])[0] % PARTITIONS for each in got)
    named = [annotation(each, ASSOCIATED_PARTITIONS) for each in got]
    assert list(named[0]) == ["0", "1", "2", "3"] and type(named[0][0]) is Symbol and named[1:] == [None] * 7


def test_a_rebalance_moves_partitions_and_closes_no_link(
    served: Served, log: LocalLog, client: Client, other: Client
) -> None:
    first = join(client, name="a")
    put(log, 100, partition=0)
    (before,) = drained(client, first)
    assert list(annotation(before, ASSOCIATED_PARTITIONS)) == ["0", "1", "2", "3"]
    before.settle()
    second = join(other, name="b")
    eventually(lambda: shares(served) == ["a", "a", "b", "b"])
    for number in range(8):
        put(log, number, partition=number % PARTITIONS)
    got = drained(client, first), drained(other, second)
    assert sorted(numbers(got[0] + got[1])) == list(range(8)) and len(got[0]) == len(got[1]) == 4
    for name, each in zip("ab", got, strict=True):
        mine = [str(number) for number, owner in enumerate(shares(served)) if owner == name]
        assert list(annotation(each[0], ASSOCIATED_PARTITIONS)) == mine
        assert {annotation(delivery, SOURCE_PARTITION) for delivery in each} == set(mine)
    second.close()
    eventually(lambda: shares(served) == ["a"] * PARTITIONS)
    assert first.error is None and second.error is None
    again = drained(client, first)
    assert sorted(numbers(again)) == sorted(numbers(got[1])), "what the other had not settled comes here"
    assert list(annotation(again[0], ASSOCIATED_PARTITIONS)) == ["0", "1", "2", "3"]


def test_a_partition_moves_once_what_was_sent_from_it_is_settled_and_what_follows_goes_to_the_next() -> None:
    with Served(settings=AmqpSettings(group_drain_ms=60_000)) as served:
        log = served.log("split", partitions=PARTITIONS)
        with served.client() as client, served.client() as other:
            first = join(client, name="a", credit=2)
            put(log, 1, 2, 3, partition=3)
            under_way = first.take(2)
            assert numbers(under_way) == [1, 2]
            second = join(other, name="b", credit=10)
            assert shares(served) == ["a"] * PARTITIONS
            for delivery in under_way:
                delivery.settle()
            client.flush()
            eventually(lambda: shares(served) == ["a", "a", "b", "b"])
            assert numbers(second.take(1)) == [3] and second.take(1, 0) == [] and first.take(1, 0) == []


@pytest.mark.parametrize("pending_max", [0, 2])
def test_links_that_have_partitions_keep_no_place_from_one_that_waits(pending_max: int) -> None:
    with Served(settings=AmqpSettings(group_pending_max=pending_max)) as served, served.client() as client:
        served.log("split", partitions=8)
        for count, name in enumerate("abcd", start=1):
            join(client, name=name)
            eventually(lambda count=count: len(set(shares(served))) == count, lambda: shares(served))


def test_a_link_waits_for_as_long_as_it_is_attached() -> None:
    """The time for which an attach may wait is none of its: a partition that is on its way does not turn back."""
    with Served(settings=AmqpSettings(group_pending_ms=0, group_drain_ms=60_000)) as served:
        log = served.log("split", partitions=2)
        with served.client() as client, served.client() as other:
            told = Told(served.bus)
            first = join(client, name="a", credit=2)
            put(log, 0, partition=0)
            put(log, 1, partition=1)
            under_way = first.take(2)
            join(other, name="b")
            ticked = served.run(lambda: _ticked(served))
            assert ticked and shares(served) == ["a", "a"]
            for delivery in under_way:
                delivery.settle()
            client.flush()
            eventually(lambda: shares(served) == ["a", "b"], lambda: shares(served))
            assigned = [(each["link"], each["partition"]) for each in told.of(ASSIGNED)]
            assert assigned == [("a", 0), ("a", 1), ("b", 1)]


async def _ticked(served: Served) -> bool:
    """Have the server's tick happen, at its own time."""
    served.container.tick(served.loop.time())
    return True


def test_a_drain_ends_while_a_partition_is_on_its_way_to_another_link() -> None:
    with Served(settings=AmqpSettings(group_drain_ms=60_000)) as served:
        log = served.log("split", partitions=2)
        with served.client() as client, served.client() as other:
            first = join(client, name="a")
            eventually(lambda: shares(served) == ["a", "a"])
            put(log, 0, partition=0)
            put(log, 1, partition=1)
            under_way = drained(client, first, 2)
            join(other, name="b")
            put(log, 2, partition=0)
            put(log, 3, partition=1)
            assert numbers(drained(client, first)) == [2], "it is answered, and nothing comes of the other partition"
            assert shares(served) == ["a", "a"] and len(under_way) == 2


def test_a_link_that_stands_by_takes_over_from_one_that_is_lost(
    served: Served, log: LocalLog, client: Client, other: Client
) -> None:
    served.log("one")
    lost = other.receiver("one/$group/G", credit=100)
    standing_by = client.receiver("one/$group/G")
    put(served.log("one"), 1, 2, 3)
    assert numbers(lost.take(3)) == [1, 2, 3] and standing_by.take(1, 0) == []
    assert drained(client, standing_by) == [], "a drain ends where there is no partition"
    standing_by.link.grant(100)
    other.drop()
    assert numbers(standing_by.take(3)) == [1, 2, 3]


def test_a_link_with_a_credit_of_one_gets_events_of_each_of_its_partitions(
    served: Served, log: LocalLog, client: Client
) -> None:
    link = join(client, name="a")
    eventually(lambda: shares(served) == ["a"] * PARTITIONS)
    for number in range(80):
        put(log, number, partition=number % PARTITIONS)
    got = [number for _ in range(8) for number in numbers(drained(client, link, 1))]
    assert {number % PARTITIONS for number in got} == set(range(PARTITIONS)), got


def test_where_too_much_is_unsettled_each_partition_goes_on_after_outcomes() -> None:
    with Served(settings=AmqpSettings(unsettled_max=4)) as served, served.client() as client:
        log = served.log("split", partitions=PARTITIONS)
        link = join(client, name="a", credit=1000)
        eventually(lambda: shares(served) == ["a"] * PARTITIONS)
        for number in range(40):
            put(log, number, partition=number % PARTITIONS)
        got: list[int] = []
        while len(got) < 40:
            deliveries = link.take(4)
            assert 1 <= len(deliveries) <= 4, got
            got += numbers(deliveries)
            for delivery in deliveries:
                delivery.settle()
        assert sorted(got) == list(range(40))
        assert link.take(1, 0) == []


def test_what_is_given_back_comes_again_and_the_group_goes_on_where_it_was_left(
    served: Served, log: LocalLog, client: Client
) -> None:
    link = join(client, filter=EARLIEST)
    put(log, 1, 2, partition=0)
    put(log, 3, 4, partition=3)
    deliveries = {numbers([each])[0]: each for each in drained(client, link)}
    deliveries[1].settle()
    deliveries[3].settle(Released())
    deliveries[4].settle(Modified(delivery_failed=True))
    again = {numbers([each])[0]: each for each in drained(client, link)}
    assert set(again) == {3, 4}
    assert again[4].message.header is not None and again[4].message.header.delivery_count == 1
    again[3].settle()
    link.close()
    assert sorted(numbers(drained(client, join(client)))) == [2, 4]


def test_a_late_outcome_of_a_partition_that_has_moved_does_not_count() -> None:
    with Served(settings=AmqpSettings(group_drain_ms=50)) as served, served.client() as client:
        log = served.log("split", partitions=2)
        first = join(client, name="a")
        eventually(lambda: shares(served) == ["a", "a"])
        put(log, 0, partition=0)
        put(log, 1, partition=1)
        late = sorted(drained(client, first), key=lambda delivery: numbers([delivery]))
        assert numbers(late) == [0, 1]
        with served.client() as other:
            second = join(other, name="b")
            eventually(lambda: sorted(map(str, shares(served))) == ["a", "b"])
            moved = shares(served).index("b")
            late[moved].settle()
            client.flush()
            (got,) = drained(other, second)
            assert numbers([got]) == [moved]
        eventually(lambda: shares(served) == ["a", "a"])
        (back,) = drained(client, first)
        assert numbers([back]) == [moved] and back.received.tag not in {each.received.tag for each in late}
        back.settle()
        late[1 - moved].settle()
        first.close()
        assert first.error is None and drained(client, join(client)) == []


def test_links_with_the_property_and_links_by_address_share_one_group(
    served: Served, log: LocalLog, client: Client, other: Client
) -> None:
    by_address = join(client, name="a")
    eventually(lambda: shares(served) == ["a"] * PARTITIONS)
    by_property = other.receiver("split", name="p", credit=0, properties=bound(group="G"))
    assert by_property.link.remote.properties == bound(3, "G", 0)
    assert shares(served) == ["a", "a", "a", "p"]
    with pytest.raises(AmqpError) as locked:
        other.receiver("split", credit=0, properties=bound(0, "G"))
    assert locked.value.condition == conditions.RESOURCE_LOCKED
    claimed = other.receiver("split", name="q", credit=0, properties=bound(0, "G", ULong(1)))
    assert shares(served) == ["q", "a", "a", "p"] and by_address.error is None
    claimed.close()
    eventually(lambda: shares(served) == ["a", "a", "a", "p"])


@pytest.mark.parametrize("group", ["G", "a/b", "100 %", "é", "$group", "x" * 256])
def test_the_name_of_the_group_is_percent_encoded(served: Served, log: LocalLog, client: Client, group: str) -> None:
    join(client, group, name="a")
    eventually(lambda: shares(served, group) == ["a"] * PARTITIONS)


@pytest.mark.parametrize(
    ("address", "condition"),
    [
        ("split/$group", conditions.NOT_FOUND),
        ("split/$group/", conditions.NOT_FOUND),
        ("split/$group/a/b", conditions.NOT_FOUND),
        ("split/$group/100%", conditions.NOT_FOUND),
        ("split/$group/%ff", conditions.NOT_FOUND),
        ("nowhere/$group/a", conditions.NOT_FOUND),
        ("split/$group/%0a", conditions.INVALID_FIELD),
        ("split/$group/" + "x" * 257, conditions.INVALID_FIELD),
    ],
)
def test_other_names_are_refused(log: LocalLog, client: Client, address: str, condition: str) -> None:
    assert refusal(client, address).condition == condition


@pytest.mark.parametrize(
    "properties", [bound(group="G"), bound(1), bound(epoch=1), {Symbol("headwater:reset-position"): True}]
)
def test_link_properties_that_bind_are_refused_at_such_an_address(
    log: LocalLog, client: Client, properties: dict[Symbol, Any]
) -> None:
    refused = refusal(client, "split/$group/G", properties=properties)
    assert (
        refused.condition == conditions.INVALID_FIELD and "the address names the consumer group" in refused.description
    )


def test_a_browse_takes_no_events_from_a_group(served: Served, log: LocalLog, client: Client) -> None:
    join(client, name="a")
    browse = {"distribution_mode": Symbol("copy"), "expiry_policy": Symbol("link-detach")}
    refused = refusal(client, "split/$group/G", source=browse)
    assert refused.condition == conditions.NOT_ALLOWED and "browse the log 'split' instead" in refused.description
    assert shares(served) == ["a"] * PARTITIONS


def test_it_is_no_target(log: LocalLog, client: Client) -> None:
    with pytest.raises(AmqpError) as refused:
        client.sender("split/$group/G")
    assert refused.value.condition == conditions.NOT_ALLOWED
    assert refused.value.description == "'split/$group/G' is read-only"
    to_it = Message([b"{}"], DATA, properties=Properties(to="split/$group/G"))
    outcome = client.sender(None).send(to_it)
    assert isinstance(outcome, Rejected) and outcome.error.condition == conditions.NOT_ALLOWED


def test_a_link_without_room_for_a_position_of_each_partition_is_detached_and_says_why() -> None:
    """One that had some of them only would miss the events of the others, and look well."""
    with Served(settings=AmqpSettings(termini_max=2)) as served, served.client() as client:
        served.log("split", partitions=PARTITIONS)
        link = join(client, name="a")
        client.wait(lambda: link.error is not None)
        assert link.error.condition == conditions.RESOURCE_LIMIT_EXCEEDED and "group positions" in str(link.error)
        eventually(lambda: not any(shares(served)))


def test_what_a_group_gives_and_takes_is_told(served: Served, log: LocalLog) -> None:
    told = Told(served.bus)
    with served.client(container_id="one") as client, served.client(container_id="two") as other:
        join(client, name="a")
        eventually(lambda: shares(served) == ["a"] * PARTITIONS)
        second = join(other, name="b")
        eventually(lambda: shares(served) == ["a", "a", "b", "b"])
        second.close()
        eventually(lambda: shares(served) == ["a"] * PARTITIONS)
    common = {"log": "split", "group": "G", "epoch": 0}
    first, second = {**common, "container": "one", "link": "a"}, {**common, "container": "two", "link": "b"}
    moves = [notification for notification in told.notifications if notification.type in (ASSIGNED, RELEASED)]
    assert [(each.type, each.attributes["link"], each.attributes["partition"]) for each in moves[:8]] == [
        *((ASSIGNED, "a", number) for number in range(PARTITIONS)),
        *((type, link, number) for number in (3, 2) for type, link in ((RELEASED, "a"), (ASSIGNED, "b"))),
    ]
    assert told.of(ASSIGNED)[3:5] == [{**first, "partition": 3}, {**second, "partition": 3}]
    assert told.of(RELEASED)[0] == {**first, "partition": 3}


def test_management_shows_such_a_link_and_who_has_which_partition(
    served: Served, log: LocalLog, client: Client, other: Client
) -> None:
    first = join(other, name="a", credit=6, filter=EARLIEST)
    eventually(lambda: shares(served) == ["a"] * PARTITIONS)
    put(log, *range(6), partition=2)
    first.take(6)[0].settle(Released())
    first.take(1)
    shown = one(client, LINK, linkName="a")
    wanted = {"address": "split/$group/G", "log": "split", "partition": None, "group": "G", "epoch": None}
    wanted |= {"deliveries": 7, "unsettled": 6, "unsettledMax": 5000, "position": 0, "lag": 6, "sentAgain": 1}
    assert {name: shown[name] for name in wanted} == wanted
    assert list(shown["filter"]) == ["begin"] and shown["messageAt"] and shown["waitsFor"] == "events"
    group = one(client, GROUP)
    assert (group["name"], group["owners"], group["members"]) == ("split/G", {f"{n}": "a" for n in range(4)}, 4)
    served.log("one")
    for name in ("b", "c"):
        other.receiver("one/$group/G", name=name, credit=0)
    assert (one(client, LINK, linkName="b")["waitsFor"], one(client, LINK, linkName="c")["waitsFor"]) == (
        "credit", "partition",
    )  # fmt: skip
    assert one(client, LINK, linkName="c")["position"] is None


def test_a_user_needs_the_right_to_read_the_log() -> None:
    with Served(guard=guard(*ACCOUNTS)) as served:
        for name in ("orders", "split"):
            served.log(name)
        with served.client("reader:correct%20horse@") as reader:
            assert reader.receiver("orders/$group/G").link.is_attached
            assert refusal(reader, "split/$group/G").condition == conditions.UNAUTHORIZED_ACCESS


class ReadPort(Served):
    """Serves as a port for reading does."""

    def attach(self) -> Attach:
        """See Served."""
        return partial(attach_reading, self.container, Elsewhere(lambda: "amqp://a.example", lambda log: None))


def test_the_port_for_reading_sends_it_to_the_primary() -> None:
    with ReadPort() as served, served.client() as client:
        served.log("split")
        refused = refusal(client, "split/$group/G")
        assert refused.condition == conditions.LINK_REDIRECT and refused.info is not None
        assert (refused.info["network-host"], refused.info["address"]) == ("a.example", "split/$group/G")


# Links that are lost under load


class Consuming(threading.Thread):
    """A consumer with one link, which accepts what it gets until it is told to stop, or lost."""

    def __init__(self, served: Served, number: int) -> None:
        super().__init__(name=f"consumer-{number}", daemon=True)
        self._served = served
        self.is_lost = self.is_stopped = False
        self.accepted: list[int] = []
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            client = self._served.client()
            link = join(client, name=self.name, credit=20)
            while not (self.is_lost or self.is_stopped):
                for delivery in link.take(1, 0.02):
                    self.accepted += numbers([delivery])
                    delivery.settle()
            client.drop() if self.is_lost else client.close()
        except BaseException as problem:
            self.problem = problem


def test_links_that_are_lost_under_load_cost_no_event(served: Served, log: LocalLog) -> None:
    events, consumers = 2000, [Consuming(served, number) for number in range(PARTITIONS + 2)]
    for consumer in consumers:
        consumer.start()
    eventually(lambda: None not in shares(served) and len(set(shares(served))) == PARTITIONS)
    with served.client() as client:
        sender = client.sender("split")
        for begin in range(0, events, 100):
            sender.send_all([message(b"%d" % number) for number in range(begin, begin + 100)])
            if begin == events // 2:
                lost = set(shares(served)[:2])
                for consumer in consumers:
                    consumer.is_lost = consumer.name in lost
    eventually(lambda: {number for each in consumers for number in each.accepted} == set(range(events)))
    assert lost.isdisjoint(shares(served)) and len(set(shares(served))) == PARTITIONS
    for consumer in consumers:
        consumer.is_stopped = True
        consumer.join(20)
    assert [consumer.problem for consumer in consumers] == [None] * len(consumers)
