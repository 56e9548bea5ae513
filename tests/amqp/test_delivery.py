"""Deliveries to a consumer: credit, outcomes, redelivery, and consumers that are slow."""

from __future__ import annotations

import pytest

from headwater.amqp.client import Client, Receiver
from headwater.amqp.connections.transport import WRITE_BYTES_MAX
from headwater.amqp.positions import position
from headwater.amqp.protocol.performatives import Accepted, Flow, Modified, Rejected, Released
from headwater.amqp.settings import AmqpSettings
from headwater.core.local import LocalLog
from headwater.core.loop.memory import PIECE_BYTES_MAX

from .asking import EARLIEST, bound, drained, message, numbers, payloads, put
from .served import Served


@pytest.fixture
def log(served: Served) -> LocalLog:
    return served.log("orders")


@pytest.fixture
def receiver(log: LocalLog, client: Client) -> Receiver:
    """A receiver of the events 1 to 9, without credit."""
    put(log, *range(1, 10))
    return client.receiver("orders", credit=0, filter=EARLIEST)


def flows_of(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> list[Flow]:
    """The flows that come on a link from now on."""
    flows: list[Flow] = []
    on_flow = receiver.link.on_flow

    def hear(flow: Flow) -> None:
        flows.append(flow)
        on_flow(flow)

    monkeypatch.setattr(receiver.link, "on_flow", hear)
    return flows


def ask_for_echo(client: Client, receiver: Receiver, credit: int) -> None:
    flow = Flow(
        next_incoming_id=0,
        incoming_window=1000,
        next_outgoing_id=0,
        outgoing_window=1000,
        handle=receiver.link.handle,
        delivery_count=receiver.link.delivery_count,
        link_credit=credit,
        echo=True,
    )
    receiver.link.credit = credit
    client.session.send(flow)


def delivery_counts(deliveries: list) -> list[int]:
    return [delivery.message.header.delivery_count if delivery.message.header else 0 for delivery in deliveries]


# Credit


def test_no_more_comes_than_there_is_credit(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.link.grant(3)
    assert numbers(receiver.take(3)) == [1, 2, 3]
    flows = flows_of(receiver, monkeypatch)
    ask_for_echo(client, receiver, 0)
    client.wait(lambda: bool(flows))
    assert (flows[0].delivery_count, flows[0].link_credit) == (3, 0)
    assert receiver.take(9, 0) == []
    receiver.link.grant(100)
    assert numbers(receiver.take(6)) == [4, 5, 6, 7, 8, 9]


def test_credit_may_be_taken_back(log: LocalLog, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = client.receiver("orders", credit=0)
    receiver.link.grant(10)
    flows = flows_of(receiver, monkeypatch)
    ask_for_echo(client, receiver, 0)
    client.wait(lambda: bool(flows))
    put(log, 1)
    assert drained(client, client.receiver("orders", credit=0, filter=EARLIEST)) and receiver.take(1, 0) == []
    receiver.link.grant(1)
    assert numbers(receiver.take(1)) == [1]


def test_a_flow_is_echoed_where_it_asks_for_it(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = flows_of(receiver, monkeypatch)
    ask_for_echo(client, receiver, 0)
    client.wait(lambda: bool(flows))
    assert (flows[0].handle, flows[0].link_credit, flows[0].delivery_count) == (receiver.link.remote.handle, 0, 0)


def test_drain_gives_what_is_there_and_uses_up_the_credit(
    log: LocalLog, client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows = flows_of(receiver, monkeypatch)
    assert numbers(drained(client, receiver, 50)) == list(range(1, 10))
    assert (flows[-1].drain, flows[-1].link_credit, flows[-1].delivery_count) == (True, 0, 50)
    put(log, 10)
    assert drained(client, receiver, 1) and receiver.link.delivery_count == 51
    assert drained(client, receiver, 5) == [] and receiver.link.delivery_count == 56


def test_drain_ends_though_too_much_is_unsettled() -> None:
    with Served(settings=AmqpSettings(unsettled_max=5)) as served, served.client() as client:
        put(served.log("orders"), *range(1, 10))
        receiver = client.receiver("orders", credit=0, filter=EARLIEST)
        first = drained(client, receiver, 50)
        assert numbers(first) == [1, 2, 3, 4, 5]
        for delivery in first:
            delivery.settle()
        assert numbers(drained(client, receiver, 50)) == [6, 7, 8, 9]


# Outcomes


@pytest.mark.parametrize(
    ("state", "comes_again", "failures"),
    [
        (Accepted(), False, 0),
        (Rejected(), False, 0),
        (Modified(delivery_failed=True, undeliverable_here=True), False, 0),
        (Released(), True, 0),
        (Modified(), True, 0),
        (Modified(delivery_failed=True), True, 1),
    ],
    ids=str,
)
def test_an_outcome_is_final_or_sends_the_event_again(
    client: Client, receiver: Receiver, state: object, comes_again: bool, failures: int
) -> None:
    receiver.link.grant(3)
    deliveries = receiver.take(3)
    deliveries[1].settle(state)
    receiver.link.grant(1)
    (next_one,) = receiver.take(1)
    assert numbers([next_one]) == ([2] if comes_again else [4])
    assert delivery_counts([next_one]) == [failures]


def test_released_events_come_again_in_their_order_before_new_ones(client: Client, receiver: Receiver) -> None:
    receiver.link.grant(5)
    deliveries = receiver.take(5)
    for place in (4, 1, 2):
        deliveries[place].settle(Released())
    receiver.link.grant(4)
    again = receiver.take(4)
    assert numbers(again) == [2, 3, 5, 6]
    assert [delivery.received.payload for delivery in again[:3]] == [
        deliveries[at].received.payload for at in (1, 2, 4)
    ]


def test_each_failure_is_counted(client: Client, log: LocalLog) -> None:
    put(log, 1)
    receiver = client.receiver("orders", credit=0, filter=EARLIEST)
    for failures in range(4):
        receiver.link.grant(1)
        (delivery,) = receiver.take(1)
        assert (numbers([delivery]), delivery_counts([delivery])) == ([1], [failures])
        delivery.settle(Modified(delivery_failed=True))
    receiver.link.grant(1)
    (delivery,) = receiver.take(1)
    assert delivery_counts([delivery]) == [4]
    delivery.settle(Released())
    receiver.link.grant(1)
    assert delivery_counts(receiver.take(1)) == [4]


def test_events_come_again_after_pauses_that_are_over_at_once(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's event loop makes no timer of a pause shorter than about half a millisecond."""
    monkeypatch.setattr(position, "PAUSE_S", 0.0001)
    monkeypatch.setattr(position, "PAUSE_S_MAX", 0.0001)
    receiver.link.grant(3)
    for delivery in receiver.take(3):
        delivery.settle(Released())
    for _ in range(60):
        receiver.link.grant(1)
        (delivery,) = receiver.take(1)
        delivery.settle(Released())


@pytest.mark.parametrize("state", [Released(), Modified(delivery_failed=True)], ids=str)
def test_an_event_that_is_given_back_a_third_time_pauses_and_holds_up_no_other(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, state: object
) -> None:
    monkeypatch.setattr(position, "PAUSE_S", 3600.0)
    monkeypatch.setattr(position, "PAUSE_S_MAX", 3600.0)
    for _ in range(3):
        (delivery,) = drained(client, receiver, 1)
        assert numbers([delivery]) == [1]
        delivery.settle(state)
    (second, third) = drained(client, receiver, 2)
    assert numbers([second, third]) == [2, 3]
    monkeypatch.undo()
    third.settle()
    for _ in range(5):
        second.settle(state)
        receiver.link.grant(1)
        (second,) = receiver.take(1)
        while numbers([second]) != [2]:
            second.settle()
            receiver.link.grant(1)
            (second,) = receiver.take(1)


def test_what_is_given_back_is_sent_again_though_nothing_new_may_be(
    client: Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position, "OPEN_MAX", 3)
    first, *others = drained(client, receiver, 3)
    for delivery in others:
        delivery.settle()
    first.settle(Released())
    (again,) = drained(client, receiver, 2)
    assert numbers([again]) == [1]
    again.settle()
    assert numbers(drained(client, receiver, 2)) == [4, 5]


def test_who_takes_over_is_sent_at_once_what_pauses(
    served: Served, log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(position, "PAUSE_S", 3600.0)
    monkeypatch.setattr(position, "PAUSE_S_MAX", 3600.0)
    put(log, 1, 2)
    group = bound(group="billing")
    for returns in (3, 1):
        with served.client() as client:
            receiver = client.receiver("orders", credit=0, filter=EARLIEST, properties=group)
            for _ in range(returns):
                (delivery,) = drained(client, receiver, 1)
                assert numbers([delivery]) == [1]
                delivery.settle(Released())
            assert numbers(drained(client, receiver)) == [2]
            receiver.close(is_closed=False)


def test_outcomes_may_be_given_for_a_range(client: Client, receiver: Receiver) -> None:
    receiver.link.grant(6)
    first, *_, last = [delivery.received.id for delivery in receiver.take(6)]
    receiver.link.settle(first, last, Released())
    receiver.link.grant(7)
    assert numbers(receiver.take(7)) == [1, 2, 3, 4, 5, 6, 7]


def test_the_default_outcome_of_the_source_counts_where_none_is_given(log: LocalLog, client: Client) -> None:
    put(log, 1, 2)
    for outcome, expected in ((Released(), 1), (Accepted(), 2)):
        receiver = client.receiver("orders", credit=0, filter=EARLIEST, source={"default_outcome": outcome})
        receiver.link.grant(1)
        (delivery,) = receiver.take(1)
        client.session.give_outcome(receiver.link, delivery.received.id, delivery.received.id, None, is_settled=True)
        receiver.link.grant(1)
        assert numbers(receiver.take(1)) == [expected]


def test_a_presettled_delivery_needs_no_outcome(client: Client, log: LocalLog) -> None:
    put(log, *range(1, 10))
    receiver = client.receiver("orders", filter=EARLIEST, snd_settle_mode=1)
    assert receiver.link.remote is not None and receiver.link.remote.snd_settle_mode == 1
    deliveries = receiver.take(9)
    assert numbers(deliveries) == list(range(1, 10))
    assert all(delivery.received.is_settled for delivery in deliveries)


def test_in_mode_second_the_sender_settles_after_the_outcome(
    log: LocalLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(log, 1, 2, 3)
    receiver = client.receiver("orders", filter=EARLIEST, rcv_settle_mode=1)
    assert receiver.link.is_second and receiver.link.remote.rcv_settle_mode == 1
    settled: list[list[bytes]] = []
    monkeypatch.setattr(receiver.link, "on_settled", settled.append)
    first, second, _ = receiver.take(3)
    first.settle()
    second.settle(Released())
    (again,) = receiver.take(1)
    assert numbers([again]) == [2]
    assert [tag for tags in settled for tag in tags] == [first.received.tag, second.received.tag]


# Limits, and consumers that are slow


def test_no_more_is_sent_than_may_be_unsettled() -> None:
    with Served(settings=AmqpSettings(unsettled_max=5)) as served, served.client() as client:
        put(served.log("orders"), *range(1, 20))
        receiver = client.receiver("orders", credit=0, filter=EARLIEST)
        deliveries = drained(client, receiver, 100)
        assert numbers(deliveries) == [1, 2, 3, 4, 5]
        deliveries[3].settle()
        deliveries[0].settle(Released())
        assert numbers(drained(client, receiver, 100)) == [1, 6]


def test_a_stalled_consumer_costs_bounded_memory_and_no_other_consumer(served: Served, client: Client) -> None:
    log = served.log("wide")
    expected = [b"%04d" % number for number in range(600)]
    with served.client() as stalled:
        slow, quick = stalled.receiver("wide", credit=100_000), client.receiver("wide")
        put(log, *[number.ljust(50_000, b".") for number in expected])
        assert [payload[:4] for payload in payloads(quick.take(600))] == expected
        (transport,) = [each for each in served.container.connections if not each.has_room]
        assert (
            transport._transport.get_write_buffer_size() + transport.engine.bytes_to_send
            < 2 * WRITE_BYTES_MAX + PIECE_BYTES_MAX
        )
        assert [payload[:4] for payload in payloads(slow.take(600))] == expected


def test_a_shut_window_stops_one_session_only(served: Served, client: Client, log: LocalLog) -> None:
    put(log, *range(1, 10))
    receiver = client.receiver("orders", credit=0, filter=EARLIEST)
    shut = client.engine.begin()
    shut._incoming_window = shut._incoming_window_max = 0
    client.wait(lambda: shut.remote is not None)
    assert numbers(drained(client, receiver)) == list(range(1, 10))
    assert client.sender("orders").send(message()) == Accepted()
