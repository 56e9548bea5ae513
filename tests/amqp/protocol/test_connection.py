"""Connections between two engines: headers, SASL, opening, sessions, closing, time, and what breaks them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.amqp.protocol import conditions, sasl
from headwater.amqp.protocol.connection import Connection
from headwater.amqp.protocol.events import (
    ConnectionClosed,
    ConnectionOpened,
    MechanismChosen,
    MechanismsOffered,
    SaslEnded,
    SaslResponded,
    SessionBegun,
    SessionEnded,
)
from headwater.amqp.protocol.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, frame
from headwater.amqp.protocol.negotiation import Stage
from headwater.amqp.protocol.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Open,
    Source,
    Target,
    Transfer,
    encode_performative,
)
from headwater.amqp.protocol.settings import ConnectionSettings
from headwater.amqp.protocol.types import Symbol

from .pair import Pair


@pytest.fixture(params=[None, 1], ids=["whole", "byte-by-byte"])
def step(request: pytest.FixtureRequest) -> int | None:
    return request.param


def server(**fields: object) -> Connection:
    return Connection(ConnectionSettings(**fields), "server", is_server=True)


def body(performative: object) -> bytes:
    return bytes(encode_performative(performative))


def test_both_sides_open_and_close(step: int | None) -> None:
    pair = Pair(step=step).opened()
    assert pair.last(pair.server_events, ConnectionOpened).open.container_id == "client"
    assert pair.last(pair.client_events, ConnectionOpened).open.container_id == "server"
    pair.client.close()
    pair.pump()
    assert pair.server_events[-1] == ConnectionClosed(None)
    assert pair.client_events[-1] == ConnectionClosed(None)
    assert pair.client.is_over and pair.server.is_over


def test_the_error_of_a_close_reaches_the_peer(step: int | None) -> None:
    pair = Pair(step=step).opened()
    pair.server.close(ErrorCondition(conditions.CONNECTION_FORCED, "bye", None))
    pair.pump()
    closed = pair.client_events[-1]
    assert isinstance(closed, ConnectionClosed) and closed.error.description == "bye" and not closed.is_fault


def test_sasl_comes_first_and_the_verdict_lets_the_client_go_on(step: int | None) -> None:
    pair = Pair(server=ConnectionSettings(sasl_mechanisms=("PLAIN", "ANONYMOUS"), needs_sasl=True), step=step)
    pair.client.start(uses_sasl=True)
    pair.pump()
    assert pair.client_events == [MechanismsOffered(("PLAIN", "ANONYMOUS"))]
    pair.client.sasl_init("PLAIN", sasl.plain("alice", "secret"), "host")
    pair.pump()
    chosen = pair.last(pair.server_events, MechanismChosen)
    assert (chosen.mechanism, chosen.hostname) == ("PLAIN", "host")
    assert sasl.parse_plain(chosen.response)[1:] == ("alice", "secret")
    pair.server.sasl_outcome(0)
    pair.pump()
    assert pair.client_events[-1] == SaslEnded(0)
    pair.client.open()
    pair.pump()
    assert isinstance(pair.server_events[-1], ConnectionOpened)


def test_a_challenge_is_answered(step: int | None) -> None:
    pair = Pair(server=ConnectionSettings(sasl_mechanisms=("PLAIN",)), step=step)
    pair.client.start(uses_sasl=True)
    pair.pump()
    pair.client.sasl_init("PLAIN", None)
    pair.pump()
    pair.server.sasl_challenge(b"")
    pair.pump()
    pair.client.sasl_response(b"\0a\0b")
    pair.pump()
    assert pair.last(pair.server_events, SaslResponded) == SaslResponded(b"\0a\0b")


def test_a_refused_login_ends_the_connection(step: int | None) -> None:
    pair = Pair(server=ConnectionSettings(sasl_mechanisms=("PLAIN",)), step=step)
    pair.client.start(uses_sasl=True)
    pair.pump()
    pair.client.sasl_init("PLAIN", b"\0a\0b")
    pair.pump()
    pair.server.sasl_outcome(1)
    pair.pump()
    assert pair.client_events[-2:] == [SaslEnded(1), ConnectionClosed(None)]
    assert pair.server.is_over


def test_what_is_sent_ahead_of_the_verdict_waits_for_it() -> None:
    it = server(sasl_mechanisms=("ANONYMOUS",))
    init = bytes(sasl.encode_sasl(sasl.SaslInit(mechanism=Symbol("ANONYMOUS"))))
    ahead = SASL_HEADER + frame(0, init, 1) + AMQP_HEADER + frame(0, body(Open(container_id="eager")))
    events = it.receive_data(ahead, 0)
    assert [type(event) for event in events] == [MechanismChosen]
    it.sasl_outcome(0)
    (opened,) = it.receive_data(b"", 0)
    assert isinstance(opened, ConnectionOpened) and opened.open.container_id == "eager"


def test_a_server_that_needs_sasl_refuses_with_its_header() -> None:
    it = server(sasl_mechanisms=("PLAIN",), needs_sasl=True)
    (closed,) = it.receive_data(AMQP_HEADER, 0)
    assert isinstance(closed, ConnectionClosed) and closed.is_fault
    assert it.data_to_send() == SASL_HEADER


@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"GET / HT", b"AMQP\x00\x01\x00\x01", SASL_HEADER]
)
def test_other_protocols_are_refused_with_our_header(header: bytes) -> None:
    it = server()
    (closed,) = it.receive_data(header, 0)
    assert isinstance(closed, ConnectionClosed) and closed.is_fault
    assert it.data_to_send() == AMQP_HEADER
    assert it.is_over


def opened_server(**fields: object) -> Connection:
    it = server(**fields)
    it.receive_data(AMQP_HEADER + frame(0, body(Open(container_id="c"))), 0)
    it.open()
    it.data_to_send()
    return it


def closes_with(it: Connection, data: bytes) -> str:
    event = it.receive_data(data, 0)[-1]
    assert isinstance(event, ConnectionClosed) and event.is_fault, event
    assert it.is_over
    assert b"\x00\x53\x18" in it.data_to_send()
    return str(event.error.condition)


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_frame_smaller_than_its_header_is_a_framing_error(size: int) -> None:
    assert (
        closes_with(opened_server(), size.to_bytes(4, "big") + b"\x02\x00\x00\x00")
        == conditions.CONNECTION_FRAMING_ERROR
    )


def test_a_frame_over_the_limit_is_refused_before_it_has_come() -> None:
    it = opened_server(frame_bytes_max=1024)
    assert closes_with(it, (1025).to_bytes(4, "big") + b"\x02\x00\x00\x00") == conditions.CONNECTION_FRAMING_ERROR


@pytest.mark.parametrize("head", [b"\x01\x00", b"\x00\x00", b"\xff\x00", b"\x02\x01", b"\x02\x07"])
def test_a_bad_frame_header_is_a_framing_error(head: bytes) -> None:
    assert closes_with(opened_server(), b"\x00\x00\x00\x10" + head + bytes(10)) == conditions.CONNECTION_FRAMING_ERROR


def test_an_extended_header_is_skipped() -> None:
    it = opened_server()
    begin = body(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    size = (16 + len(begin)).to_bytes(4, "big")
    (event,) = it.receive_data(size + b"\x04\x00\x00\x00" + bytes(8) + begin, 0)
    assert isinstance(event, SessionBegun)


@pytest.mark.parametrize(
    "garbage",
    [b"\x00", b"\x00\x53", b"\x00\x53\x99\x45", b"\x40", b"\x00\x53\x12\xc0\x01", b"\x00\x53\x10\x45", b"\xff\xff"],
)
def test_what_cannot_be_decoded_is_a_decode_error(garbage: bytes) -> None:
    assert closes_with(opened_server(), frame(0, garbage)) == conditions.DECODE_ERROR


def test_bytes_behind_a_performative_are_a_decode_error() -> None:
    assert closes_with(opened_server(), frame(0, body(Close()) + b"more")) == conditions.DECODE_ERROR


def test_a_frame_on_a_channel_without_session_closes_the_connection() -> None:
    attach = Attach(name="n", handle=0, role=False)
    assert closes_with(opened_server(), frame(3, body(attach))) == conditions.NOT_ALLOWED


def test_a_second_open_closes_the_connection() -> None:
    assert closes_with(opened_server(), frame(0, body(Open(container_id="c")))) == conditions.ILLEGAL_STATE


def test_anything_before_the_open_closes_the_connection() -> None:
    it = server()
    begin = frame(0, body(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)))
    assert closes_with(it, AMQP_HEADER + begin) == conditions.ILLEGAL_STATE


@pytest.mark.parametrize("channel", [1, 7, 65_535])
def test_an_open_on_another_channel_than_0_closes_the_connection(channel: int) -> None:
    opened = frame(channel, body(Open(container_id="c")))
    assert closes_with(server(), AMQP_HEADER + opened) == conditions.CONNECTION_FRAMING_ERROR


def test_a_channel_over_the_limit_closes_the_connection() -> None:
    begin = frame(8, body(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)))
    assert closes_with(opened_server(channel_max=7), begin) == conditions.CONNECTION_FRAMING_ERROR


def test_a_handle_over_the_limit_closes_the_connection() -> None:
    begin = frame(0, body(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)))
    attach = frame(0, body(Attach(name="n", handle=8, role=False, source=Source(), target=Target())))
    assert closes_with(opened_server(handle_max=7), begin + attach) == conditions.CONNECTION_FRAMING_ERROR


def test_a_max_frame_size_below_512_closes_the_connection() -> None:
    it = server()
    assert (
        closes_with(it, AMQP_HEADER + frame(0, body(Open(container_id="c", max_frame_size=511))))
        == conditions.INVALID_FIELD
    )


def test_sessions_end_on_both_sides_and_their_channels_are_free(step: int | None) -> None:
    pair = Pair(step=step).opened()
    ours, theirs = pair.session()
    sender, receiver = pair.sender(session=ours)
    ours.end()
    pair.pump()
    ended = pair.last(pair.server_events, SessionEnded)
    assert ended.session is theirs and ended.links == (receiver,)
    assert sender.is_over and receiver.is_over
    again, _ = pair.session()
    assert again.channel == ours.channel


def test_a_session_is_asked_for_by_either_side() -> None:
    pair = Pair().opened()
    ours = pair.server.begin()
    pair.pump()
    assert pair.last(pair.client_events, SessionBegun).session.remote is not None
    assert pair.last(pair.server_events, SessionBegun).session is ours


def test_a_detach_on_an_ended_channel_is_ignored() -> None:
    it = opened_server()
    begin = frame(0, body(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)))
    late = frame(0, body(Detach(handle=0, closed=True)))
    events = it.receive_data(begin + frame(0, body(End())) + late, 0)
    assert [type(event) for event in events] == [SessionBegun, SessionEnded]
    assert not it.is_over


def test_transfers_beyond_the_incoming_window_end_the_session() -> None:
    pair = Pair(server=ConnectionSettings(incoming_window=1)).opened()
    sender, receiver = pair.sender()
    receiver.session._incoming_window = 0
    transfer = Transfer(handle=sender.handle, delivery_id=0, delivery_tag=b"t")
    pair.client.send_body(0, body(transfer), b"x")
    pair.pump()
    assert pair.last(pair.client_events, SessionEnded).error.condition == conditions.SESSION_WINDOW_VIOLATION


def test_delivery_ids_must_follow_each_other() -> None:
    pair = Pair().opened()
    sender, _ = pair.sender()
    for delivery_id in (0, 2):
        transfer = Transfer(handle=sender.handle, delivery_id=delivery_id, delivery_tag=b"t%d" % delivery_id)
        pair.client.send_body(0, body(transfer), b"x")
    pair.pump()
    assert pair.last(pair.client_events, SessionEnded).error.condition == conditions.INVALID_FIELD


def test_unsettled_deliveries_are_bounded() -> None:
    pair = Pair(server=ConnectionSettings(unsettled_max=5)).opened()
    sender, _ = pair.sender()
    for number in range(6):
        sender.send(b"x", number)
    pair.pump()
    assert pair.last(pair.client_events, SessionEnded).error.condition == conditions.RESOURCE_LIMIT_EXCEEDED


@pytest.mark.parametrize("rcv_settle_mode", [0, 1])
def test_senders_with_more_credit_than_may_be_unsettled_wait_for_outcomes(rcv_settle_mode: int) -> None:
    pair = Pair(server=ConnectionSettings(unsettled_max=50, incoming_window=20)).opened()
    session, _ = pair.session()
    fields = {"session": session, "rcv_settle_mode": rcv_settle_mode}
    links = [pair.sender(name=f"link {number}", **fields) for number in range(4)]
    sent, received = 0, []
    while sent < 400:
        before = sent
        for sender, _ in links:
            while sender.sendable > 0:
                sender.send(b"%d" % sent, sent)
                sent += 1
        pair.pump()
        received += [(receiver, each) for _, receiver in links for each in receiver.take()]
        assert len(received) <= 50
        if sent == before:
            assert len(received) > 30
            for receiver, each in received:
                receiver.settle(each.id, each.id, Accepted())
            received.clear()
            pair.pump()
    assert not [event for event in pair.client_events if isinstance(event, SessionEnded)]


def test_a_link_that_goes_makes_room_for_what_others_send() -> None:
    pair = Pair(server=ConnectionSettings(unsettled_max=20, incoming_window=20)).opened()
    session, _ = pair.session()
    (greedy, _), (other, receiver) = (pair.sender(name=name, session=session) for name in ("greedy", "other"))
    while greedy.sendable > 0:
        greedy.send(b"x", greedy.delivery_count)
    pair.pump()
    assert other.sendable == 0
    greedy.detach()
    pair.pump()
    other.send(b"y", 1)
    pair.pump()
    assert [each.payload for each in receiver.take()] == [b"y"]


def test_a_disposition_of_half_of_all_ids_costs_nothing_and_ends_the_session() -> None:
    pair = Pair().opened()
    receiver, sender = pair.receiver()
    sender.send(b"x", 1)
    pair.client.send(0, Disposition(role=True, first=0, last=0x7FFFFFFF, settled=True))
    pair.pump()
    assert sender.unsettled == 0
    pair.client.send(0, Disposition(role=True, first=5, last=4, settled=True))
    pair.pump()
    assert isinstance(pair.client_events[-1], SessionEnded)
    assert receiver.is_over


def test_a_server_keeps_a_connection_alive_as_the_client_wants_it() -> None:
    it = server()
    it.receive_data(AMQP_HEADER + frame(0, body(Open(container_id="c", idle_time_out=4000))), 10.0)
    it.open()
    it.data_to_send()
    assert it.next_tick() == 12.0
    assert it.tick(11.9) == [] and it.data_to_send() == b""
    assert it.tick(12.0) == [] and it.data_to_send() == EMPTY_FRAME
    assert it.next_tick() == 14.0


def test_a_silent_peer_is_closed_with_a_reason() -> None:
    it = Connection(ConnectionSettings(idle_ms=8000), "server", is_server=True, now=10.0)
    it.receive_data(AMQP_HEADER + frame(0, body(Open(container_id="c"))), 10.0)
    it.open()
    assert b"\x70\x00\x00\x0f\xa0" in it.data_to_send()  # half of it is announced
    it.receive_data(EMPTY_FRAME, 13.0)
    assert it.next_tick() == 21.0
    assert it.tick(20.9) == []
    (closed,) = it.tick(21.0)
    assert isinstance(closed, ConnectionClosed) and "idle" in closed.error.description
    assert it.tick(22.0) == []


def test_an_idle_time_out_that_nobody_can_keep_is_refused() -> None:
    it = server()
    data = AMQP_HEADER + frame(0, body(Open(container_id="c", idle_time_out=10)))
    assert closes_with(it, data) == conditions.NOT_ALLOWED


def test_calls_after_the_end_do_nothing() -> None:
    pair = Pair().opened()
    sender, _ = pair.sender()
    pair.client.close()
    pair.pump()
    sender.detach()
    sender.session.end()
    pair.client.close()
    assert pair.client.data_to_send() == b""
    assert pair.client.receive_data(b"anything", 0) == []
    assert sender.sendable == 0


PIECES = [
    AMQP_HEADER,
    SASL_HEADER,
    frame(0, body(Open(container_id="c"))),
    frame(0, body(Begin(next_outgoing_id=0, incoming_window=5, outgoing_window=5))),
    frame(0, body(Attach(name="s", handle=0, role=False, source=Source(), target=Target(), initial_delivery_count=0))),
    frame(0, body(Attach(name="r", handle=1, role=True, source=Source(), target=Target()))),
    frame(0, body(Transfer(handle=0, delivery_id=0, delivery_tag=b"t")) + b"payload"),
    frame(0, body(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True)) + b"payload"),
    frame(0, body(Disposition(role=True, first=0, last=3, settled=True))),
    frame(0, body(Detach(handle=0, closed=True))),
    frame(0, body(End())),
    frame(0, body(Close())),
    EMPTY_FRAME,
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.data())
def test_any_bytes_lead_to_events_or_to_a_clean_close(pieces: list[bytes], data: st.DataObject) -> None:
    wire = bytearray(b"".join([AMQP_HEADER, PIECES[2], PIECES[3], *pieces]))
    for _ in range(data.draw(st.integers(0, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    it = server(sasl_mechanisms=("ANONYMOUS",))
    step = data.draw(st.integers(1, len(wire)))
    events = []
    for at in range(0, len(wire), step):
        events += it.receive_data(bytes(wire[at : at + step]), 0)
    closed = [event for event in events if isinstance(event, ConnectionClosed)]
    assert len(closed) == (1 if it.stage is Stage.OVER else 0)
    assert it.bytes_to_send == len(it.data_to_send())
