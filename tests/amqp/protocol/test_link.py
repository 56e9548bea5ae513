"""Links between two engines: credit, messages large and small, outcomes, detaching."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.events import (
    CreditChanged,
    DeliveriesSettled,
    FlowReceived,
    LinkAttached,
    LinkDetached,
    MessagesReceived,
    OutcomesReceived,
    SessionEnded,
)
from headwater.amqp.protocol.performatives import (
    Accepted,
    Attach,
    ErrorCondition,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
    encode_performative,
)
from headwater.amqp.protocol.settings import ConnectionSettings

from .budget import Budget
from .pair import Pair, payloads


@pytest.fixture(params=[None, 1], ids=["whole", "byte-by-byte"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(step=request.param).opened()


def test_messages_arrive_in_order_with_their_tags(pair: Pair) -> None:
    sender, receiver = pair.sender()
    for number in range(10):
        sender.send(b"message %d" % number, number)
    pair.pump()
    deliveries = receiver.take()
    assert payloads(deliveries) == [b"message %d" % number for number in range(10)]
    assert [int.from_bytes(delivery.tag, "big") for delivery in deliveries] == list(range(10))
    assert receiver.credit == sender.credit == 90
    assert receiver.take() == []


def test_one_event_tells_of_all_messages_of_one_read() -> None:
    pair = Pair().opened()
    sender, receiver = pair.sender()
    before = len(pair.server_events)
    for number in range(10):
        sender.send(b"x", number)
    pair.pump()
    assert pair.server_events[before:] == [MessagesReceived(receiver)]


def test_an_outcome_comes_back_with_the_contexts_of_its_deliveries(pair: Pair) -> None:
    sender, receiver = pair.sender()
    ids = [sender.send(b"x", number, f"context {number}") for number in range(4)]
    pair.pump()
    receiver.settle(ids[0], ids[2], Accepted())
    receiver.settle(ids[3], ids[3], Rejected(error=ErrorCondition(conditions.NOT_ALLOWED, "no", None)))
    pair.pump()
    outcomes = [event for event in pair.client_events if isinstance(event, OutcomesReceived)]
    assert [event.contexts for event in outcomes] == [["context 0", "context 1", "context 2"], ["context 3"]]
    assert outcomes[0].state == Accepted()
    assert isinstance(outcomes[1].state, Rejected) and outcomes[1].state.error.description == "no"
    assert sender.unsettled == 0


@pytest.mark.parametrize("state", [Released(), Modified(delivery_failed=True, undeliverable_here=True)])
def test_every_outcome_travels(pair: Pair, state: object) -> None:
    sender, receiver = pair.sender()
    delivery_id = sender.send(b"x", 1, "context")
    pair.pump()
    receiver.settle(delivery_id, delivery_id, state)
    pair.pump()
    assert pair.last(pair.client_events, OutcomesReceived).state == state


def test_settled_deliveries_have_no_outcome(pair: Pair) -> None:
    sender, receiver = pair.sender()
    sender.send(b"x", 1, is_settled=True)
    pair.pump()
    (delivery,) = receiver.take()
    assert delivery.is_settled
    assert sender.unsettled == 0


def test_a_large_message_goes_in_pieces_and_arrives_whole(pair: Pair) -> None:
    sender, receiver = pair.sender()
    large = bytes(range(256)) * 1024
    sender.send(large, 7)
    assert not sender.sendable  # until it is written
    sender.send(b"small", 8)
    pair.pump()
    assert payloads(receiver.take()) == [large, b"small"]
    assert sender.sendable


def test_pieces_wait_for_the_window() -> None:
    pair = Pair(server=ConnectionSettings(incoming_window=2, frame_bytes_max=512)).opened()
    sender, receiver = pair.sender()
    large = bytes(5000)
    sender.send(large, 7)
    assert sender.sendable == 0
    pair.pump()
    assert payloads(receiver.take()) == [large]
    assert sender.sendable > 0


def test_a_message_over_the_limit_is_let_go_and_the_link_lives_on(pair: Pair) -> None:
    ours, _ = pair.session()
    sender = ours.attach_sender("big", source=Source(address="a"), target=Target(address="b"))
    pair.pump()
    receiver = pair.last(pair.server_events, LinkAttached).link
    receiver.accept(target=Target(address="b"), max_message_size=100_000)
    receiver.grant(10)
    pair.pump()
    sender.send(bytes(300_000), 1, "large")
    sender.send(bytes(100_000), 2, "fits")
    sender.send(bytes(10), 3, "small")
    pair.pump()
    assert [(each.payload and len(each.payload), each.bytes) for each in receiver.take()] == [
        (None, 300_000),
        (100_000, 100_000),
        (10, 10),
    ]


def test_unfinished_messages_are_bounded_over_all_links() -> None:
    budget = Budget()
    pair = Pair(server=ConnectionSettings(take=budget.take, give=budget.give)).opened()
    sender, _ = pair.sender()
    budget.bytes_max = budget.bytes + 10_000
    head = encode_performative(Transfer(handle=sender.handle, delivery_id=0, delivery_tag=b"t", more=True))
    pair.client.send_body(0, bytes(head), bytes(2000))
    pair.pump()
    detached = pair.last(pair.client_events, LinkDetached)
    assert detached.error.condition == conditions.RESOURCE_LIMIT_EXCEEDED


def test_an_aborted_message_is_not_delivered(pair: Pair) -> None:
    sender, receiver = pair.sender()
    handle = sender.handle
    first = Transfer(handle=handle, delivery_id=0, delivery_tag=b"t", more=True)
    last = Transfer(handle=handle, aborted=True)
    pair.client.send_body(0, bytes(encode_performative(first)), b"half")
    pair.client.send_body(0, bytes(encode_performative(last)), b"")
    after = Transfer(handle=handle, delivery_id=1, delivery_tag=b"u")
    pair.client.send_body(0, bytes(encode_performative(after)), b"whole")
    pair.pump()
    assert payloads(receiver.take()) == [b"whole"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"message_format": 1}, "message-format"),
        ({"delivery_tag": b"u"}, "delivery-tag"),
        ({"delivery_id": 1}, "delivery"),
    ],
    ids=str,
)
def test_a_further_transfer_that_says_something_else_detaches_the_link(pair: Pair, change: dict, field: str) -> None:
    sender, receiver = pair.sender()
    first = Transfer(handle=sender.handle, delivery_id=0, delivery_tag=b"t", message_format=0, more=True)
    pair.client.send_body(0, bytes(encode_performative(first)), b"half")
    same = Transfer(handle=sender.handle, delivery_id=0, delivery_tag=b"t", message_format=0, more=True)
    pair.client.send_body(0, bytes(encode_performative(same)), b"more")
    pair.client.send_body(0, bytes(encode_performative(Transfer(handle=sender.handle, **change))), b"other half")
    pair.pump()
    error = pair.last(pair.client_events, LinkDetached).error
    assert error.condition == conditions.INVALID_FIELD and field in error.description
    assert receiver.take() == []


@pytest.mark.parametrize("at", ["first", "last"])
def test_a_transfer_of_mode_second_on_a_link_of_mode_first_detaches_it(pair: Pair, at: str) -> None:
    sender, receiver = pair.sender()
    more = {"rcv_settle_mode": 1}
    first = Transfer(
        handle=sender.handle, delivery_id=0, delivery_tag=b"t", more=True, **(more if at == "first" else {})
    )
    last = Transfer(handle=sender.handle, **(more if at == "last" else {}))
    for transfer in (first, last):
        pair.client.send_body(0, bytes(encode_performative(transfer)), b"half")
    pair.pump()
    error = pair.last(pair.client_events, LinkDetached).error
    assert error.condition == conditions.INVALID_FIELD and "rcv-settle-mode" in error.description
    assert receiver.take() == []


def test_the_mode_of_a_settled_transfer_does_not_matter(pair: Pair) -> None:
    sender, receiver = pair.sender()
    settled = Transfer(handle=sender.handle, delivery_id=0, delivery_tag=b"t", settled=True, rcv_settle_mode=1)
    pair.client.send_body(0, bytes(encode_performative(settled)), b"whole")
    pair.pump()
    assert payloads(receiver.take()) == [b"whole"]


def test_a_transfer_without_credit_detaches_the_link(pair: Pair) -> None:
    sender, receiver = pair.sender(credit=1)
    sender.send(b"x", 1)
    sender.credit = 1
    sender.send(b"y", 2)
    pair.pump()
    assert payloads(receiver.take()) == [b"x"]
    error = pair.last(pair.client_events, LinkDetached).error
    assert error.condition == conditions.LINK_TRANSFER_LIMIT_EXCEEDED
    assert not sender.is_attached


def test_what_was_under_way_when_a_link_was_detached_costs_no_other_link(pair: Pair) -> None:
    sender, receiver = pair.sender(name="first")
    other, other_receiver = pair.sender(name="other", session=sender.session)
    sender.send(b"x", 1)
    receiver.detach()
    sender.send(b"y", 2)
    pair.pump()
    other.send(b"z", 3)
    pair.pump()
    assert payloads(other_receiver.take()) == [b"z"]


def test_credit_is_counted_from_what_the_receiver_has_seen(pair: Pair) -> None:
    sender, receiver = pair.sender(credit=10)
    for number in range(4):
        sender.send(b"x", number)
    receiver.grant(10)  # written before the four were seen
    pair.pump()
    assert sender.credit == 6 or sender.credit == 10 - 4
    assert receiver.credit == 6


def test_a_drain_uses_up_the_credit(pair: Pair) -> None:
    receiver, sender = pair.receiver(credit=10)
    sender.send(b"x", 1)
    receiver.grant(10, drain=True)
    pair.pump()
    assert pair.last(pair.server_events, CreditChanged).link.is_draining
    sender.drained()
    pair.pump()
    ended = pair.last(pair.client_events, FlowReceived)
    assert ended.is_drained and ended.available == 0
    assert receiver.credit == sender.credit == 0
    assert receiver.delivery_count == sender.delivery_count


def test_a_sender_says_nothing_of_what_is_available_but_at_the_end_of_a_drain(pair: Pair) -> None:
    _, sender = pair.receiver(credit=10)
    sender.session.send_flow(sender)
    pair.pump()
    flow = pair.last(pair.client_events, FlowReceived)
    assert (flow.is_drained, flow.available) == (False, None)


def test_an_echo_is_answered(pair: Pair) -> None:
    from headwater.amqp.protocol.performatives import Flow

    receiver, sender = pair.receiver(credit=3)
    before = len(pair.client_events)
    flow = Flow(next_incoming_id=0, incoming_window=10, next_outgoing_id=0, outgoing_window=10, echo=True)
    flow.handle, flow.delivery_count, flow.link_credit = receiver.handle, 0, 3
    pair.client.send(0, flow)
    pair.pump()
    assert any(isinstance(event, FlowReceived) for event in pair.client_events[before:])
    assert sender.credit == 3


def test_in_mode_second_the_sender_settles_after_the_outcome(pair: Pair) -> None:
    sender, receiver = pair.sender(rcv_settle_mode=1)
    assert receiver.is_second
    delivery_id = sender.send(b"x", 1, "context")
    pair.pump()
    receiver.take()
    receiver.settle(delivery_id, delivery_id, Accepted())
    pair.pump()
    assert pair.last(pair.client_events, OutcomesReceived).contexts == ["context"]
    assert pair.last(pair.server_events, DeliveriesSettled).tags == [(1).to_bytes(8, "big")]
    assert sender.unsettled == 0


def test_a_refused_link_has_no_terminus_and_is_closed_with_the_error(pair: Pair) -> None:
    ours, _ = pair.session()
    sender = ours.attach_sender("refused", source=Source(address="a"), target=Target(address="nowhere"))
    pair.pump()
    pair.last(pair.server_events, LinkAttached).link.refuse(conditions.NOT_FOUND, "there is no nowhere")
    pair.pump()
    assert sender.remote.target is None
    detached = pair.last(pair.client_events, LinkDetached)
    assert detached.is_closed
    assert (detached.error.condition, detached.error.description) == (conditions.NOT_FOUND, "there is no nowhere")


def test_a_refused_receiver_sees_no_source(pair: Pair) -> None:
    ours, _ = pair.session()
    receiver = ours.attach_receiver("refused", source=Source(address="nowhere"), target=Target(address="a"))
    pair.pump()
    pair.last(pair.server_events, LinkAttached).link.refuse(conditions.NOT_FOUND, "there is no nowhere")
    pair.pump()
    assert receiver.remote.source is None


def test_an_attach_may_be_answered_late_and_keeps_the_credit_given_meanwhile(pair: Pair) -> None:
    ours, _ = pair.session()
    receiver = ours.attach_receiver("late", source=Source(address="a"), target=Target(address="b"))
    receiver.grant(5)
    pair.pump()
    sender = pair.last(pair.server_events, LinkAttached).link
    assert receiver.remote is None and sender.sendable == 0
    sender.accept(source=sender.remote.source, target=sender.remote.target)
    assert sender.sendable == 5
    pair.pump()
    assert receiver.is_attached


def test_a_link_detached_before_its_answer_is_over_on_both_sides(pair: Pair) -> None:
    ours, _ = pair.session()
    receiver = ours.attach_receiver("impatient", source=Source(address="a"), target=Target(address="b"))
    pair.pump()
    sender = pair.last(pair.server_events, LinkAttached).link
    receiver.detach()
    pair.pump()
    assert sender.is_over and receiver.is_over
    with pytest.raises(ValueError):
        sender.accept()


def test_a_detach_is_answered_and_the_handle_is_free_again(pair: Pair) -> None:
    sender, receiver = pair.sender()
    sender.detach(is_closed=False)
    pair.pump()
    event = pair.last(pair.server_events, LinkDetached)
    assert (event.link, event.is_closed) == (receiver, False)
    assert sender.is_over and receiver.is_over
    again, _ = pair.sender(session=sender.session, name="other")
    assert again.handle == sender.handle


def test_unsettled_deliveries_are_forgotten_with_their_link(pair: Pair) -> None:
    sender, receiver = pair.sender()
    delivery_id = sender.send(b"x", 1, "context")
    pair.pump()
    receiver.detach()
    pair.pump()
    receiver.settle(delivery_id, delivery_id, Accepted())
    pair.pump()
    assert not any(isinstance(event, OutcomesReceived) for event in pair.client_events)
    assert sender.unsettled == 0


def test_an_attach_of_a_name_in_use_steals_the_link(pair: Pair) -> None:
    first, old = pair.sender(name="same")
    second, new = pair.sender(name="same")
    assert first.is_over and old.is_over
    assert second.is_attached and new.is_attached
    error = pair.last(pair.client_events, LinkDetached).error
    assert error.condition == conditions.LINK_STOLEN


def test_one_name_serves_both_directions(pair: Pair) -> None:
    sender, _ = pair.sender(name="same")
    receiver, _ = pair.receiver(name="same", session=sender.session)
    assert sender.is_attached and receiver.is_attached


def test_a_handle_in_use_ends_the_session(pair: Pair) -> None:
    sender, _ = pair.sender()
    attach = Attach(name="other", handle=sender.handle, role=False, source=Source(), target=Target())
    pair.client.send(0, attach)
    pair.pump()
    ended = pair.last(pair.client_events, SessionEnded)
    assert ended.error.condition == conditions.SESSION_HANDLE_IN_USE


def test_a_transfer_on_an_unknown_handle_ends_the_session_only(pair: Pair) -> None:
    pair.session()
    other, _ = pair.sender()
    pair.client.send_body(0, bytes(encode_performative(Transfer(handle=9, delivery_id=0, delivery_tag=b"t"))), b"x")
    pair.pump()
    assert pair.last(pair.client_events, SessionEnded).error.condition == conditions.SESSION_UNATTACHED_HANDLE
    assert other.is_attached


def test_unsettled_maps_travel_with_the_attach(pair: Pair) -> None:
    ours, _ = pair.session()
    ours.attach_receiver(
        "recovered", source=Source(address="a"), target=Target(address="b"), unsettled={b"1": Accepted(), b"2": None}
    )
    pair.pump()
    link = pair.last(pair.server_events, LinkAttached).link
    assert link.remote.unsettled == {b"1": Accepted(), b"2": None}
    link.accept(source=Source(address="a"), target=Target(address="b"), unsettled={b"3": Released()})
    pair.pump()
    assert pair.last(pair.client_events, LinkAttached).link.remote.unsettled == {b"3": Released()}


def test_a_resumed_delivery_shows_its_state(pair: Pair) -> None:
    sender, receiver = pair.sender()
    resumed = Transfer(handle=sender.handle, delivery_id=0, delivery_tag=b"t", state=Accepted(), resume=True)
    pair.client.send_body(0, bytes(encode_performative(resumed)), b"")
    pair.pump()
    (delivery,) = receiver.take()
    assert delivery.whole is not None and delivery.whole.resume and delivery.whole.state == Accepted()


@given(st.lists(st.binary(max_size=3000), max_size=20), st.integers(512, 1500), st.integers(1, 40), st.integers(1, 7))
def test_whatever_the_sizes_what_is_sent_arrives(
    messages: list[bytes], frame_bytes_max: int, window: int, step: int
) -> None:
    settings = ConnectionSettings(frame_bytes_max=frame_bytes_max, incoming_window=window)
    pair = Pair(server=settings, step=step * 100).opened()
    sender, receiver = pair.sender(credit=100)
    arrived: list[bytes | None] = []
    for number, message in enumerate(messages):
        while not sender.sendable:
            pair.pump()
        sender.send(message, number)
    pair.pump()
    arrived += payloads(receiver.take())
    assert arrived == messages
