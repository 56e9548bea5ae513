"""What peers make a connection hold: it is counted, bounded, refused with a condition, and given back."""

from __future__ import annotations

import contextlib
import gc
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.frames import EMPTY_FRAME, SASL_FRAME, SASL_HEADER, frame
from headwater.amqp.protocol.performatives import Source, Target, Transfer, encode_performative
from headwater.amqp.protocol.sasl import SaslInit, encode_sasl, plain
from headwater.core.event import Event
from headwater.core.loop import memory
from headwater.core.loop.memory import MemoryAccount
from headwater.core.shared_bytes import FREE_BYTES
from headwater.storage.engine import Engine

from ...waiting import eventually
from ..asking import EARLIEST, message
from ..served import Served
from .test_login import ACCOUNTS, ALICE, APPENDER, guard

MIB = 2**20
BUDGET = 16 * MIB


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Served]:
    """A server with a small budget, and a log on disk with some large events."""
    with Engine(tmp_path) as store, Served(store=store, memory=MemoryAccount(BUDGET)) as served:
        log = served.log("orders", event_bytes_max=8 * MIB)
        for _ in range(3):
            log.append([Event("T", bytes(8 * MIB - 1000))])
        yield served


def receiving(served: Served, count: int) -> list[Client]:
    """So many clients that are sent all events, and read nothing."""
    clients = []
    for _ in range(count):
        client = served.client()
        client.receiver("orders", filter=EARLIEST)
        clients.append(client)
    return clients


def drop(clients: list[Client]) -> None:
    for client in clients:
        client.drop()


def test_receivers_of_large_events_that_do_not_read_cost_a_piece_each(small: Served) -> None:
    clients = receiving(small, 12)
    eventually(lambda: all(not each.has_room for each in small.container.connections))
    unsent = [each.unsent_bytes() for each in tuple(small.container.connections)]
    assert max(unsent) <= FREE_BYTES + memory.PIECE_BYTES_MAX + 1000
    assert sum(unsent) <= small.memory.bytes + 12 * FREE_BYTES + 12 * 1000
    assert small.memory.bytes <= BUDGET
    drop(clients)
    eventually(lambda: not small.container.connections and small.memory.bytes == 0)
    assert small.memory.readers == 0


def test_a_large_event_comes_whole_while_others_do_not_read(small: Served) -> None:
    clients = receiving(small, 3)
    eventually(lambda: all(not each.has_room for each in small.container.connections))
    with small.client(timeout_s=30.0) as reading:
        got = reading.receiver("orders", filter=EARLIEST).take(3, 30.0)
        assert [len(each.message.body[0]) for each in got] == [8 * MIB - 1000] * 3
    drop(clients)


def test_half_messages_are_refused_where_there_is_no_room_and_the_bytes_come_back(small: Served) -> None:
    clients, refused = [], []
    for _ in range(6):
        client = small.client()
        clients.append(client)
        sender = client.sender("orders")
        client.wait(lambda sender=sender: sender.link.credit > 0)
        fields = {"handle": sender.link.handle, "more": True}
        head = bytes(encode_performative(Transfer(delivery_id=0, delivery_tag=b"t", **fields)))
        for _ in range(64):
            client.engine.send_body(client.session.channel, head, bytes(60_000))
            head = bytes(encode_performative(Transfer(**fields)))
        client.flush()
        client.wait(lambda sender=sender: sender.error is not None or small.memory.bytes > 3 * MIB)
        if sender.error is not None:
            refused.append(sender.error.condition)
    eventually(lambda: small.memory.refused > 0)
    assert small.memory.bytes <= BUDGET
    assert set(refused) <= {conditions.RESOURCE_LIMIT_EXCEEDED}
    drop(clients)
    eventually(lambda: not small.container.connections and small.memory.bytes == 0)


def test_an_attach_says_how_large_a_message_can_ever_be(small: Served) -> None:
    with small.client() as client:
        sender = client.sender("orders")
        largest = sender.link.remote.max_message_size
        assert largest == (small.memory.largest - FREE_BYTES) // 2 < 8 * MIB
        state = sender.send(message(bytes(largest)))
        assert state.error.condition == conditions.LINK_MESSAGE_SIZE_EXCEEDED
        assert str(largest) in state.error.description


def test_what_a_producer_has_under_way_is_counted_until_it_is_answered(small: Served) -> None:
    with small.client() as client:
        sender = client.sender("orders")
        sender.send_all([message(bytes(100_000))] * 20)
        (transport,) = small.container.connections
        assert transport.held_bytes == 0 and transport.share.bytes < FREE_BYTES


def test_attaches_are_refused_where_there_is_no_room(small: Served) -> None:
    client, links = small.client(), 0
    with pytest.raises(AmqpError) as refused:
        for number in range(40):
            session = client.engine.begin()
            client.wait(lambda session=session: session.remote is not None)
            for name in range(200):
                session.attach_receiver(f"{number}-{name}", source=Source(address="orders"), target=Target())
            client.wait(lambda session=session: all(link.remote is not None for link in session.links))
            links += 200
    assert refused.value.condition == conditions.RESOURCE_LIMIT_EXCEEDED
    assert links >= 400 and small.memory.bytes <= BUDGET
    client.drop()
    eventually(lambda: not small.container.connections and small.memory.bytes == 0)


def test_bytes_are_those_of_a_user_or_of_an_address() -> None:
    with Served(guard=guard(*ACCOUNTS)) as served:
        with served.client(ALICE), served.client(APPENDER):
            owners = {each.share.owner.name: each.share.owner for each in served.container.connections}
            assert set(owners) == {"alice", "appender"}
            assert owners["alice"].is_administrator and not owners["appender"].is_administrator
        eventually(lambda: not served.container.connections)
    with Served() as served, served.client():
        (transport,) = served.container.connections
        assert transport.share.owner.name == "127.0.0.1" and not transport.share.owner.is_administrator


def test_a_stranger_has_64_kib_in_all() -> None:
    with Served(guard=guard(*ACCOUNTS)) as served:
        stranger = socket.create_connection(("127.0.0.1", served.port), 10.0)
        stranger.sendall(SASL_HEADER)
        eventually(lambda: len(served.container.connections) == 1)
        (transport,) = served.container.connections
        assert transport.share.owner is None
        assert not transport.share.take(FREE_BYTES + 1) and transport.share.largest == FREE_BYTES
        init = encode_sasl(SaslInit("PLAIN", plain("alice", "wrong")))
        with contextlib.suppress(OSError):  # it is cut off
            stranger.sendall(frame(0, bytes(init), SASL_FRAME) + bytes(4 * MIB))
        eventually(lambda: not served.container.connections)
        assert served.memory.bytes == 0
        stranger.close()


def test_a_peer_that_takes_nothing_while_memory_is_short_is_ended(
    small: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = receiving(small, 2)
    eventually(lambda: all(not each.has_room for each in small.container.connections))
    (transport, _) = small.container.connections
    unsent = transport.unsent_bytes()

    async def beat() -> None:
        transport.engine._write(EMPTY_FRAME)
        transport.flush()

    small.run(beat)
    assert transport.unsent_bytes() == unsent  # a heartbeat is no sign that it reads
    monkeypatch.setattr(memory, "STALLED_S", 0.0)
    holder = memory.Share(small.memory)
    holder.belong(memory.Owner("others", BUDGET))

    async def fill() -> None:
        holder.hold(BUDGET)

    small.run(fill)
    eventually(lambda: not small.container.connections)
    assert small.memory.ended == 2
    drop(clients)


@pytest.mark.parametrize("address", ["orders", "orders/$info", "orders/$group/g", "$events", None])
def test_a_connection_that_is_over_is_gone_without_a_collection(address: str | None) -> None:
    with Served() as served:
        served.log("orders").append([Event("T", b"{}")])
        with served.client() as warm:
            warm.receiver("orders")
        eventually(lambda: not served.container.connections)
        gc.collect()
        gc.disable()
        try:
            client = served.client()
            client.sender("orders").send(message(b"x"))
            if address is not None:
                client.receiver(address, filter=None)
            known = _known(served)
            client.drop()
            eventually(lambda: not any(each() for each in known))
        finally:
            gc.enable()


def _known(served: Served) -> list[weakref.ref[object]]:
    (transport,) = served.container.connections
    sessions = transport.engine.sessions
    links = [link for session in sessions for link in session.links]
    ends = [end for _, _, end in transport.links]
    return [weakref.ref(each) for each in (transport, transport.engine, *sessions, *links, *ends)]
