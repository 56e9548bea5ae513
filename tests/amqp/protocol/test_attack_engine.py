"""What a hostile, careless or merely unusual peer does to an engine, and what it must get for it."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import pytest

from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.codec import decode, encode
from headwater.amqp.protocol.conditions import LinkFault
from headwater.amqp.protocol.events import ConnectionClosed, LinkAttached, LinkDetached, OutcomesReceived, WindowOpened
from headwater.amqp.protocol.frames import AMQP_HEADER, EMPTY_FRAME, frame
from headwater.amqp.protocol.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Flow,
    Open,
    Rejected,
    Source,
    Transfer,
    encode_performative,
)
from headwater.amqp.protocol.settings import ConnectionSettings
from headwater.amqp.protocol.types import Symbol

from .budget import Budget
from .pair import Pair, payloads
from .peer import SOURCE, TARGET, Peer, credit, framed, receiving, sending


def steps_of(work: Any) -> int:
    """How many lines of Python it takes."""
    steps, before = 0, sys.gettrace()

    def count(*_: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def test_a_peer_may_send_all_it_knows_before_it_is_answered() -> None:
    peer = Peer(is_open=False)
    peer.give(AMQP_HEADER + framed(Open("peer")) + framed(Begin(None, 0, 10, 10)) + framed(sending()))
    peer.engine.open()
    assert [type(each) for each in peer.got()] == [Open, Begin]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_transfer_to_a_sender_detaches_that_link_and_costs_no_other(is_answered: bool) -> None:
    peer = Peer().begun()
    link = peer.attached(receiving()) if is_answered else peer.pending(receiving())
    other = peer.attached(sending("other", 1))
    other.grant(10)
    peer.got()
    (event,) = peer.send(Transfer(0, 0, b"tag", 0), b"message")
    assert isinstance(event, LinkDetached) and event.link is link and not event.is_by_peer
    detach = peer.got()[-1]
    assert isinstance(detach, Detach) and detach.error is not None and detach.error.condition == conditions.NOT_ALLOWED
    peer.send(Transfer(0, 1, b"tag", 0), b"message")
    peer.send(Transfer(1, 2, b"tag", 0), b"message")
    assert payloads(other.take()) == [b"message"]


@pytest.mark.parametrize("key", ["name", "é", "\N{SNOWMAN}" * 300])
def test_a_map_with_any_string_as_key_is_echoed(key: str) -> None:
    peer = Peer().begun()
    attach, _ = decode(body := bytes(encode_performative(sending())), 0, len(body))
    attach.value[5].value[5] = {key: 1}  # the source's dynamic-node-properties
    (event,) = peer.give(frame(0, encode(attach)))
    assert isinstance(event, LinkAttached) and event.link.remote is not None
    event.link.refuse(conditions.NOT_FOUND, "")
    answer, _ = peer.got()
    assert isinstance(answer, Attach) and isinstance(answer.source, Source)
    assert answer.source.dynamic_node_properties == {key: 1}


@pytest.mark.parametrize("performative", [Transfer(0, 0, b"tag", 0), Disposition(True, 0, 5, True)])
@pytest.mark.parametrize("descriptor", ["symbol", "ulong"])
def test_a_descriptor_may_be_written_in_any_way(performative: Any, descriptor: str) -> None:
    peer = Peer().begun()
    link = peer.attached(sending())
    link.grant(10)
    peer.got()
    body = bytes(encode_performative(performative))
    name = b"amqp:%s:list" % type(performative).__name__.lower().encode()
    start = b"\x00\xa3%c%b" % (len(name), name) if descriptor == "symbol" else b"\x00\x80" + body[2].to_bytes(8)
    payload = b"message" if isinstance(performative, Transfer) else b""
    events = peer.give(frame(0, start + body[3:] + payload))
    assert not any(isinstance(event, ConnectionClosed) for event in events)
    assert payloads(link.take()) == ([b"message"] if payload else [])


def test_a_message_of_any_size_near_that_of_a_frame_arrives_whole() -> None:
    for size in range(440, 560):
        pair = Pair(server=ConnectionSettings(frame_bytes_max=512)).opened()
        sender, receiver = pair.sender()
        sender.send(bytes(size), 1)
        sender.send(b"next", 2)
        pair.pump()
        assert payloads(receiver.take()) == [bytes(size), b"next"], size


def test_a_drain_without_credit_is_answered() -> None:
    peer = Peer().begun()
    peer.attached(receiving())
    peer.send(credit(0, drain=True))
    flows = [each for each in peer.got() if isinstance(each, Flow)]
    assert [(flow.handle, flow.drain, flow.link_credit) for flow in flows] == [(0, True, 0)]


@pytest.mark.parametrize("size", [7, 200_000])
def test_a_drain_whose_credit_messages_used_up_is_answered_behind_them(size: int) -> None:
    peer = Peer().begun()
    link = peer.attached(receiving())
    peer.send(credit(1, drain=True))
    peer.got()
    link.send(bytes(size), 1)
    *transfers, flow = peer.got()
    assert transfers and all(isinstance(each, Transfer) for each in transfers) and isinstance(flow, Flow)
    assert (flow.drain, flow.delivery_count, flow.link_credit) == (True, 1, 0)


def test_a_sender_that_is_detached_drains_no_more() -> None:
    peer = Peer().begun()
    link = peer.attached(receiving())
    peer.send(credit(5, drain=True))
    peer.send(Detach(0, True))
    assert not link.is_draining


def test_tiny_pieces_of_a_message_cost_no_more_than_their_bytes() -> None:
    peer = Peer().begun()
    link = peer.attached(sending())
    link.grant(10)
    peer.got()
    peer.send(Transfer(0, 0, b"tag", 0, more=True))
    pieces = framed(Transfer(0, more=True), b"ab") * 1000 + framed(Transfer(0, more=True)) * 1000
    tracemalloc.start()
    try:
        for _ in range(30):
            peer.give(pieces)
            peer.engine.data_to_send()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 4 * 60_000
    peer.send(Transfer(0))
    assert payloads(link.take()) == [b"ab" * 30_000]


def test_an_answer_that_the_peer_cannot_take_closes_the_connection_with_the_reason() -> None:
    peer = Peer(open=Open("peer", max_frame_size=512)).begun()
    link = peer.pending(sending(source=Source(address="x" * 600)))
    link.accept(source=link.remote.source, target=TARGET)
    (close,) = peer.got()
    assert isinstance(close, Close) and isinstance(close.error, ErrorCondition)
    assert close.error.condition == conditions.FRAME_SIZE_TOO_SMALL
    peer.send(Close())
    assert peer.engine.is_over


def test_a_reason_is_shortened_to_what_the_peer_takes() -> None:
    peer = Peer(open=Open("peer", max_frame_size=512)).begun()
    link = peer.pending(sending())
    link.refuse(conditions.NOT_FOUND, "\N{SNOWMAN}" * 1000, {Symbol("info"): "more"})
    *_, detach = peer.got()
    assert isinstance(detach, Detach) and isinstance(detach.error, ErrorCondition)
    assert detach.error.condition == conditions.NOT_FOUND
    assert detach.error.description is not None and set(detach.error.description) == {"\N{SNOWMAN}"}


def test_a_rejection_is_shortened_to_what_the_peer_takes() -> None:
    peer = Peer(open=Open("peer", max_frame_size=512)).begun()
    link = peer.attached(sending())
    link.grant(1)
    peer.send(Transfer(0, 0, b"tag", 0), b"message")
    peer.got()
    link.settle(0, 0, Rejected(ErrorCondition(conditions.INVALID_FIELD, "why " * 200)))
    (disposition,) = peer.got()
    assert isinstance(disposition, Disposition) and isinstance(disposition.state, Rejected)


def test_of_many_unsettled_deliveries_those_are_named_that_fit() -> None:
    peer = Peer(open=Open("peer", max_frame_size=1024)).begun()
    link = peer.pending(sending())
    link.accept(source=SOURCE, target=TARGET, unsettled={b"%032d" % number: Accepted() for number in range(1000)})
    (attach,) = peer.got()
    assert isinstance(attach, Attach) and attach.unsettled and attach.incomplete_unsettled


def test_a_link_with_a_long_name_can_be_stolen() -> None:
    peer = Peer(open=Open("peer", max_frame_size=1024)).begun()
    peer.attached(sending("n" * 700))
    peer.send(sending("n" * 700, 1))
    (detach,) = peer.got()
    assert isinstance(detach, Detach) and isinstance(detach.error, ErrorCondition)
    assert detach.error.condition == conditions.LINK_STOLEN


def test_an_attach_costs_the_same_however_many_links_there_are() -> None:
    peer = Peer(channel_max=63)
    for channel in range(64):
        peer.begun(channel)
        peer.give(b"".join(framed(sending(f"{channel}-{n}", n), channel=channel) for n in range(200)))
    last = b"".join(framed(sending(f"63-{n}", n), channel=63) for n in range(200, 256))
    assert steps_of(lambda: peer.give(last)) < 56 * 5000


@pytest.mark.parametrize("ending", [Detach(0, True), End()])
def test_a_name_is_free_again_when_its_link_is_over(ending: Any) -> None:
    peer = Peer().begun()
    for _ in range(3):
        link = peer.attached(sending())
        peer.send(ending)
        assert link.is_over
        if isinstance(ending, End):
            peer.begun()
        assert not any(isinstance(event, LinkDetached) and not event.is_by_peer for event in peer.events)


def test_a_range_of_which_nothing_is_known_costs_nothing() -> None:
    peer = Peer().begun(incoming_window=20_000)
    link = peer.attached(receiving())
    peer.send(credit(10_000, incoming_window=20_000))
    for number in range(10_000):
        link.send(b"", number, number)
    peer.send(Disposition(True, 2500, 7500, True))
    peer.got()
    ranges = (2500, 7500), (10_000, 2**31), (2**31 + 10_000, 2**32 - 1)
    steps = steps_of(lambda: [peer.send(Disposition(True, first, last, True)) for first, last in ranges * 10])
    assert steps < 30 * 1000 and link.unsettled == 4999
    peer.send(Disposition(True, 2**32 - 10, 20_000, True))
    assert link.unsettled == 0


def test_a_delivery_that_was_begun_may_be_settled_before_it_is_whole() -> None:
    peer = Peer().begun()
    link, other = peer.attached(sending()), peer.attached(sending("other", 1))
    link.grant(10), other.grant(10)
    peer.send(Transfer(0, 0, b"a", more=True), b"1")
    peer.send(Transfer(1, 1, b"b"), b"3")
    peer.send(Disposition(False, 0, 0, True))
    peer.send(Transfer(0), b"2")
    assert [(each.payload, each.is_settled) for each in link.take() + other.take()] == [(b"12", True), (b"3", False)]


def test_an_aborted_delivery_is_unsettled_no_more() -> None:
    peer = Peer(unsettled_max=1).begun()
    link = peer.attached(sending())
    link.grant(10)
    for number in range(3):
        peer.send(Transfer(0, number, b"a", more=True), b"1")
        peer.send(Transfer(0, aborted=True))
    peer.send(Transfer(0, 3, b"b"), b"1")
    assert payloads(link.take()) == [b"1"]


def test_when_the_transport_is_lost_every_link_is_over() -> None:
    peer = Peer().begun()
    waiting, attached = peer.pending(sending()), peer.attached(receiving("other", 1))
    peer.engine.lost()
    assert waiting.is_over and not waiting.is_waiting and attached.is_over and not attached.sendable
    assert peer.got() == [] and peer.engine.receive_data(EMPTY_FRAME, 0.0) == []


def test_the_attaches_of_all_links_are_bounded() -> None:
    budget = Budget(140_000)
    peer = Peer(take=budget.take, give=budget.give).begun()
    large = {"properties": {Symbol("x"): "x" * 20_000}}
    for number in range(20):  # none of these stays
        peer.attached(sending(f"a{number}", **large))
        peer.send(Detach(0, True))
    peer.begun(1)
    for handle in range(4):
        peer.send(sending(f"b{handle}", handle, **large), channel=handle % 2)
    peer.got()
    peer.send(sending("one too many", 4, **large))
    (end,) = peer.got()
    assert isinstance(end, End) and isinstance(end.error, ErrorCondition)
    assert end.error.condition == conditions.RESOURCE_LIMIT_EXCEEDED
    peer.send(End())
    assert len(peer.engine.sessions) == 1
    peer.begun().attached(sending("again", **large))


def test_numbers_go_on_after_the_highest_on_the_way_in() -> None:
    top = 2**32
    peer = Peer(incoming_window=4).begun(next_outgoing_id=top - 3)
    link = peer.attached(sending(initial_delivery_count=top - 3))
    link.grant(10)
    for number in range(top - 3, top + 4):
        peer.send(Transfer(0, number % top, b"t", 0), b"%d" % (number % top))
    got = link.take()
    assert payloads(got) == [b"%d" % (number % top) for number in range(top - 3, top + 4)]
    assert (link.delivery_count, link.credit) == (4, 3)
    peer.got()
    link.settle(top - 2, 2, Accepted())
    (disposition,) = peer.got()
    assert isinstance(disposition, Disposition) and (disposition.first, disposition.last) == (top - 2, 2)
    assert [number for number in range(-3, 4) if link.session.is_unsettled(number % top)] == [-3, 3]


def test_a_run_is_sent_like_its_messages_one_by_one_in_a_third_of_the_steps() -> None:
    def sender() -> tuple[Peer, Any]:
        peer = Peer().begun()
        link = peer.attached(receiving())
        link.session.next_delivery_id = 2**32 - 10
        peer.send(credit(64, drain=True))
        return peer, link

    messages, numbers = [bytes(size) for size in range(64)], list(range(1000, 1064))
    (one, its), (other, run) = sender(), sender()
    single_steps = steps_of(lambda: [its.send(*each, each[1]) for each in zip(messages, numbers, strict=True)])
    run_steps = steps_of(lambda: run.send_run(messages, numbers, numbers, is_settled=False))
    assert run_steps < single_steps / 3
    frames = one.frames()
    assert len(frames) == 65 and isinstance(frames[-1][1], Flow) and other.frames() == frames
    outcomes = other.send(Disposition(True, 2**32 - 20, 5, True, Accepted()))
    assert [event.contexts for event in outcomes if isinstance(event, OutcomesReceived)] == [numbers[:16]]
    assert run.unsettled == 64 - 16 and (run.credit, run.delivery_count) == (0, 64)


def test_a_run_ends_before_a_message_that_does_not_fit_into_a_frame() -> None:
    peer = Peer().begun()
    link = peer.attached(receiving())
    peer.send(credit(10))
    large, numbers = bytes(2**20), [1, 2, 3, 4]
    assert link.send_run([b"a", b"b", large, b"c"], numbers, numbers, is_settled=False) == 2
    assert link.send_run([large, b"c"], numbers[2:], numbers[2:], is_settled=False) == 0
    assert [payload for _, _, payload in peer.frames()] == [b"a", b"b"]
    assert (link.credit, link.unsettled, link.sendable) == (8, 2, 8)


def test_a_run_that_there_is_no_memory_for_is_refused_whole() -> None:
    budget = Budget()
    peer = Peer(take=budget.take, give=budget.give).begun()
    link = peer.attached(receiving())
    peer.send(credit(100))
    budget.bytes_max = budget.bytes + 40 * 256
    numbers = list(range(64))
    with pytest.raises(LinkFault) as refused:
        link.send_run([b"x"] * 64, numbers, numbers, is_settled=False)
    assert refused.value.condition == conditions.RESOURCE_LIMIT_EXCEEDED and peer.frames() == []
    link.session.end()
    assert link.send_run([], [], [], is_settled=False) == 0


def test_numbers_go_on_after_the_highest_on_the_way_out() -> None:
    top = 2**32
    peer = Peer().begun(incoming_window=5)
    link = peer.attached(receiving())
    session = link.session
    session._next_outgoing_id = session.next_delivery_id = link.delivery_count = top - 3
    window = {"next_incoming_id": top - 3, "incoming_window": 5, "delivery_count": top - 3}
    peer.send(credit(20, **window))
    assert link.sendable == 5
    for number in range(5):
        link.send(b"x", number, number)
    assert link.sendable == 0
    peer.got()
    events = peer.send(credit(20, next_incoming_id=1, incoming_window=5, delivery_count=1))
    assert link.sendable == 4 and link.credit == 19
    assert any(isinstance(event, WindowOpened) for event in events)
    for number in range(5, 9):
        link.send(b"x", number, number)
    events = peer.send(Disposition(True, top - 2, 4, True, Accepted()))
    (outcomes,) = [event for event in events if isinstance(event, OutcomesReceived)]
    assert outcomes.contexts == list(range(1, 8)) and link.unsettled == 2
