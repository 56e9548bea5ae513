"""What a hostile, careless or merely unusual peer does to an engine, and what it must get for it."""

from __future__ import annotations

from headwater.amqp.protocol.frames import AMQP_HEADER
from headwater.amqp.protocol.performatives import Begin, Open

from .peer import Peer, framed, sending


def test_a_peer_may_send_all_it_knows_before_it_is_answered() -> None:
    peer = Peer(is_open=False)
    peer.give(AMQP_HEADER + framed(Open("peer")) + framed(Begin(None, 0, 10, 10)) + framed(sending()))
    peer.engine.open()
    assert [type(each) for each in peer.got()] == [Open, Begin]
