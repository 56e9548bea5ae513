"""The error of a connection that is closed can be read by a peer that sent more than was read."""

from __future__ import annotations

import contextlib
import gc
import socket
import weakref

import pytest

from headwater.amqp.protocol.frames import AMQP_HEADER, SASL_FRAME, SASL_HEADER, frame
from headwater.amqp.protocol.performatives import Open, encode_performative
from headwater.amqp.protocol.sasl import SaslInit, SaslOutcome, encode_sasl, plain
from headwater.amqp.protocol.types import Symbol

from ...server.running import SILENCE_S_MAX
from ...waiting import eventually
from ..served import Served
from .test_login import ACCOUNTS, guard

MORE = bytes(1_000_000)
"""So often that it is more than all buffers between the two hold."""
TIMES = 40
OPENING = AMQP_HEADER + frame(0, encode_performative(Open(container_id="c")))
NO_FRAME = bytes(8)
"""A frame has 8 bytes at least, and says so."""


def told(served: Served, *first: bytes) -> bytes:
    """What a peer reads that sends all it has before it reads."""
    with socket.create_connection(("127.0.0.1", served.port), SILENCE_S_MAX) as peer:
        for data in (*first, *[MORE] * TIMES):
            peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(65_536), b""))


def test_a_peer_that_still_sends_reads_the_close_with_its_error() -> None:
    with Served() as served:
        assert b"amqp:connection:framing-error" in told(served, OPENING + NO_FRAME)
        eventually(lambda: not served.container.connections and not served.container.shared.lingering)


def test_a_peer_that_sent_more_reads_that_its_login_is_refused() -> None:
    with Served(guard=guard(*ACCOUNTS)) as served:
        wrong = SaslInit(Symbol("PLAIN"), plain("alice", "wrong"))
        found = told(served, SASL_HEADER + frame(0, encode_sasl(wrong), SASL_FRAME))
        assert found.endswith(encode_sasl(SaslOutcome(code=1))), found


@pytest.mark.parametrize("way", ["peer", "stop"])
def test_a_connection_that_ends_so_counts_no_more_and_is_freed_without_a_collection(way: str) -> None:
    with Served() as served, contextlib.ExitStack() as leaving:
        peer = leaving.enter_context(socket.create_connection(("127.0.0.1", served.port), SILENCE_S_MAX))
        peer.sendall(AMQP_HEADER)
        assert peer.recv(8)
        [connection] = [weakref.ref(each) for each in served.container.connections]
        gc.disable()
        leaving.callback(gc.enable)
        peer.sendall(OPENING[8:] + NO_FRAME)
        assert b"amqp:connection:framing-error" in b"".join(iter(lambda: peer.recv(65_536), b""))
        eventually(lambda: not served.container.connections)
        assert len(served.container.shared.lingering) == 1
        if way == "peer":
            peer.close()
        else:
            served.stop()
        eventually(lambda: not served.container.shared.lingering and connection() is None)
