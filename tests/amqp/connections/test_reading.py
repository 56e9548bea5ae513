"""How much is read in one turn of the event loop, however many peers send."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter

import pytest
import uvloop

from headwater.amqp.connections.transport import Transport
from headwater.amqp.protocol.frames import AMQP_HEADER, frame
from headwater.amqp.protocol.performatives import Open, encode_performative
from headwater.core.loop.turn_reads import READ_BYTES

from ...server.running import SILENCE_S_MAX
from ...waiting import eventually
from ..served import Served

PEERS = 12
SENT = 4 * 2**20
"""Of each, in frames that say nothing."""
EMPTY = frame(0, b"")
OPENING = AMQP_HEADER + frame(0, encode_performative(Open(container_id="c")))


def test_of_many_peers_that_send_much_a_bounded_part_is_read_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "new_event_loop", uvloop.new_event_loop)
    read, turn, received = Counter[int](), 0, Transport.data_received

    def counted(self: Transport, data: bytes) -> None:
        read[turn] += len(data)
        received(self, data)

    monkeypatch.setattr(Transport, "data_received", counted)
    with Served() as served:

        def count() -> None:
            nonlocal turn
            turn += 1
            served.loop.call_soon(count)

        served.loop.call_soon_threadsafe(count)
        peers = [socket.create_connection(("127.0.0.1", served.port), SILENCE_S_MAX) for _ in range(PEERS)]
        for peer in peers:
            peer.sendall(OPENING)
        eventually(lambda: len(served.container.connections) == PEERS)
        next(iter(served.container.connections)).shared.reads.turn_bytes = 2 * READ_BYTES
        served.loop.call_soon_threadsafe(time.sleep, 0.2)  # so that much waits for it
        senders = [threading.Thread(target=peer.sendall, args=(EMPTY * (SENT // len(EMPTY)),)) for peer in peers]
        for each in senders:
            each.start()
        for each in senders:
            each.join()
        eventually(lambda: read.total() == PEERS * (SENT + len(OPENING)))
        assert max(read.values()) <= (2 + PEERS) * READ_BYTES
        for peer in peers:
            peer.close()
