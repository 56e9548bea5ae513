"""Large deliveries on the engine: their frames are made as they can be written, and everything else keeps its order."""

from __future__ import annotations

import pytest

from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import LinkFault
from headwater.amqp.protocol.events import OutcomesReceived, SessionEnded, WindowOpened
from headwater.amqp.protocol.performatives import (
    Accepted,
    Detach,
    Disposition,
    Flow,
    Transfer,
)
from headwater.amqp.protocol.settings import ConnectionSettings
from headwater.amqp.protocol.types import Symbol

from .budget import Budget
from .pair import Pair, payloads
from .peer import Peer, credit, receiving, sending

LARGE = bytes(range(256)) * 1024


def receiver_of(peer: Peer, name: str = "link", handle: int = 0, count: int = 10) -> object:
    """The server's sender, attached, with credit."""
    link = peer.attached(receiving(name, handle))
    peer.send(credit(count, handle))
    return link


def test_frames_of_a_large_delivery_are_made_only_as_far_as_they_are_asked_for() -> None:
    peer = Peer().begun()
    link = receiver_of(peer)
    link.send(b"head", 1, rest=memoryview(LARGE))
    assert peer.engine.bytes_to_send == 0 and peer.engine.has_large
    sizes = []
    while peer.engine.has_large:
        sizes.append(len(peer.engine.data_to_send(1)))
    assert len(sizes) == 5 and max(sizes) <= peer.engine.frame_bytes_max


def test_a_large_delivery_comes_whole_in_whatever_steps_it_is_written() -> None:
    pair = Pair().opened()
    receiver, sender = pair.receiver()
    sender.send(b"head", 1, "first", rest=memoryview(LARGE))
    sender_may_not = sender.sendable
    while data := pair.server.data_to_send(1):
        pair._carry(pair.client, data, pair.client_events)
    assert payloads(receiver.take()) == [b"head" + LARGE]
    assert sender_may_not == 0 and sender.sendable
    assert any(isinstance(event, WindowOpened) for event in pair.server.take_events())


def test_a_view_is_not_counted_and_bytes_are_until_they_are_written() -> None:
    budget = Budget()
    peer = Peer(take=budget.take, give=budget.give).begun()
    link = receiver_of(peer)
    before = budget.bytes
    link.send(b"", 1, is_settled=True, rest=memoryview(LARGE))
    assert budget.bytes == before
    peer.got()
    link.send(LARGE, 2, is_settled=True)
    assert budget.bytes == before + len(LARGE)
    peer.got()
    assert budget.bytes == before


def test_bytes_that_find_no_room_are_refused_and_use_no_delivery_id() -> None:
    budget = Budget(100_000)
    peer = Peer(take=budget.take, give=budget.give).begun()
    link, other = receiver_of(peer), receiver_of(peer, "other", 1)
    with pytest.raises(LinkFault) as refused:
        link.send(LARGE, 1)
    assert refused.value.condition == conditions.RESOURCE_LIMIT_EXCEEDED
    link.detach()
    assert other.send(b"small", 2) == 0


def test_a_link_that_ends_in_the_middle_of_its_delivery_lets_others_go_on() -> None:
    budget = Budget()
    peer = Peer(take=budget.take, give=budget.give).begun()
    link, other = receiver_of(peer), receiver_of(peer, "other", 1)
    held = budget.bytes
    link.send(LARGE, 1)
    peer.engine.data_to_send(1)
    link.detach()
    assert not peer.engine.has_large
    assert any(isinstance(event, WindowOpened) for event in peer.engine.take_events())
    assert other.send(b"small", 2) == 1
    (detach, transfer) = peer.got()
    assert isinstance(detach, Detach) and isinstance(transfer, Transfer) and transfer.delivery_id == 1
    peer.send(Detach(0))
    peer.send(Disposition(True, 1, 1, True, Accepted()))
    assert budget.bytes < held + 32 * 256


def test_a_delivery_of_which_nothing_was_sent_leaves_no_gap_in_the_ids() -> None:
    peer = Peer().begun()
    link, other = receiver_of(peer), receiver_of(peer, "other", 1)
    link.send(LARGE, 1)
    other.send(LARGE, 2, "second")
    link.detach()
    peer.engine.take_events()
    transfers = [each for each in peer.got() if isinstance(each, Transfer)]
    assert transfers[0].delivery_id == 0 and transfers[0].handle == other.handle
    assert not transfers[-1].more
    *_, outcome = peer.send(Disposition(True, 0, 0, True, Accepted()))
    assert isinstance(outcome, OutcomesReceived) and outcome.contexts == ["second"]


def test_two_sessions_take_turns_frame_by_frame() -> None:
    peer = Peer().begun().begun(1)
    first = receiver_of(peer)
    peer.send(receiving("other", 0), channel=1)
    second = peer.events[-1].link  # type: ignore[attr-defined]
    second.accept()
    peer.send(credit(10), channel=1)
    peer.got()
    first.send(LARGE, 1)
    second.send(LARGE, 2)
    channels = [channel for channel, each, _ in peer.frames() if isinstance(each, Transfer)]
    assert channels == [0, 1] * 5


def test_a_small_delivery_begins_behind_a_large_one_of_its_session() -> None:
    peer = Peer().begun()
    link, other = receiver_of(peer), receiver_of(peer, "other", 1)
    link.send(LARGE, 1)
    other.send(b"small", 2)
    transfers = [each for each in peer.got() if isinstance(each, Transfer)]
    assert [each.delivery_id for each in transfers if each.delivery_id is not None] == [0, 1]
    assert transfers[-1].handle == other.handle


def test_a_drain_ends_behind_the_last_transfer() -> None:
    peer = Peer().begun()
    link = receiver_of(peer, count=0)
    peer.send(credit(1, drain=True))
    peer.got()
    link.credit, link.is_draining = 1, True
    link.send(LARGE, 1)
    kinds = [type(each) for each in peer.got()]
    assert kinds == [Transfer] * 5 + [Flow]


def test_a_flow_counts_no_delivery_that_was_not_begun() -> None:
    peer = Peer().begun()
    link = receiver_of(peer)
    link.send(LARGE, 1)
    peer.send(credit(10, echo=True))
    (flow, *_) = [each for each in peer.got() if isinstance(each, Flow)]
    assert (flow.delivery_count, flow.link_credit) == (0, 10)


def test_a_window_that_closes_in_the_middle_opens_again() -> None:
    peer = Peer().begun(incoming_window=2)
    link = receiver_of(peer)
    peer.send(Flow(next_incoming_id=0, incoming_window=2, next_outgoing_id=0, outgoing_window=1000))
    link.send(LARGE, 1)
    assert len(peer.got()) == 2 and not peer.engine.has_large
    peer.send(Flow(next_incoming_id=2, incoming_window=100, next_outgoing_id=0, outgoing_window=1000))
    assert len(peer.got()) == 3


def test_everything_that_a_connection_held_is_given_back_at_its_end() -> None:
    budget = Budget()
    server = ConnectionSettings(take=budget.take, give=budget.give)
    pair = Pair(server=server).opened()
    sender, _ = pair.sender()
    session = next(iter(pair.client.sessions))
    _, theirs = pair.receiver(session=session, name="other")
    sender.send(b"x", 1)
    pair.pump()
    theirs.send(LARGE, 1)
    pair.client.send_body(0, b"", b"")
    head = Transfer(handle=sender.handle, delivery_id=1, delivery_tag=b"t", more=True)
    pair.client.send(0, head)
    data = pair.client.data_to_send()
    pair.server.receive_data(data[:-3], 0.0)
    assert budget.bytes > len(LARGE) + 2 * 6144
    pair.server.lost()
    assert budget.bytes == 0


def test_unsettled_deliveries_of_both_directions_are_counted() -> None:
    budget = Budget()
    pair = Pair(server=ConnectionSettings(take=budget.take, give=budget.give)).opened()
    sender, receiver = pair.sender(credit=1000)
    base = budget.bytes
    for number in range(1000):
        sender.send(b"x", number)
    pair.pump()
    assert budget.bytes - base >= 1000 * 256
    receiver.settle(0, 999, Accepted())
    assert budget.bytes - base <= 100 * 256


def test_more_unsettled_deliveries_than_there_is_memory_for_end_the_session() -> None:
    budget = Budget()
    pair = Pair(server=ConnectionSettings(take=budget.take, give=budget.give)).opened()
    sender, _ = pair.sender(credit=1000)
    budget.bytes_max = budget.bytes + 50_000
    for number in range(1000):
        sender.send(b"x", number)
    pair.pump()
    ended = pair.last(pair.client_events, SessionEnded)
    assert ended.error.condition == conditions.RESOURCE_LIMIT_EXCEEDED
    assert budget.bytes <= 3072


def test_a_message_that_is_kept_in_part_is_counted_twice_and_given_back() -> None:
    budget = Budget()
    pair = Pair(server=ConnectionSettings(take=budget.take, give=budget.give)).opened()
    sender, receiver = pair.sender()
    base = budget.bytes
    sender.send(LARGE, 1, is_settled=True)
    pair.server.receive_data(pair.client.data_to_send(200_000), 0.0)
    assert budget.bytes - base >= 2 * 196_000
    pair.pump()
    assert payloads(receiver.take()) == [LARGE]
    assert budget.bytes == base


def test_an_attach_counts_what_it_takes_decoded() -> None:
    budget = Budget()
    peer = Peer(take=budget.take, give=budget.give).begun()
    base = budget.bytes
    peer.attached(sending(properties={Symbol(f"{number:x}"): None for number in range(1000)}))
    assert budget.bytes - base > 6144 + 1000 * 100
    peer.send(Detach(0, True))
    assert budget.bytes == base


def test_a_sender_that_holds_half_a_message_gives_it_back_with_the_link() -> None:
    budget = Budget()
    pair = Pair(server=ConnectionSettings(take=budget.take, give=budget.give)).opened()
    sender, receiver = pair.sender()
    session = budget.bytes
    sender.send(LARGE, 1)
    pair.server.receive_data(pair.client.data_to_send(100_000), 0.0)
    assert budget.bytes > session
    receiver.detach()
    sender.detach()
    pair.pump()
    assert budget.bytes <= 3072 + 64 * 256
