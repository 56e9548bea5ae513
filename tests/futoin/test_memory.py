"""What consumers that take nothing make the server hold: one page each at most, and what the budget has together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.core import Event
from headwater.core.loop.memory import MemoryAccount, Share
from headwater.core.shared_bytes import MIB
from headwater.http.asgi import MEMORY, WRITER

from .conftest import Socket

PUSH, POLL = "futoin.evt.push:1.1", "futoin.evt.poll:1.1:pollEvents"
LARGE = 1_000_000


class Stalling(Socket):
    """A peer whose socket is full after one large message, which counts until the peer takes it, as the server's do."""

    def __init__(self, app: Any, scope: dict[str, Any], share: Share) -> None:
        self.share, self.is_full, self._flows = share, False, asyncio.Event()
        self.large: list[Any] = []
        """The large messages that were sent."""
        self._unsent = 0
        super().__init__(app, scope | {MEMORY: share, WRITER: self})

    async def _send(self, message: dict[str, Any]) -> None:
        await self.drained()
        await super()._send(message)
        size = len(message.get("bytes", b""))
        if size > 10_000:
            self.large.append(json.loads(message["bytes"]))
            self.is_full, self._unsent = True, size
            self.share.hold(size)

    async def drained(self) -> None:
        while self.is_full:
            self._flows.clear()
            await self._flows.wait()

    def take(self) -> None:
        """Take what was sent."""
        self.share.give(self._unsent)
        self.is_full, self._unsent = False, 0
        self._flows.set()


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.005)


async def _turns(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _consumer(peer: Any, account: MemoryAccount, name: str) -> Stalling:
    """A consumer that is ready to receive."""
    socket = Stalling(peer.app, peer.scope("websocket", "/futoin/orders"), Share(account))
    assert (await socket.frame())["type"] == "websocket.accept"
    for number, function in enumerate(("registerConsumer", "readyToReceive")):
        reply = await socket.ask(f"{PUSH}:{function}", {"component": name}, f"C{number}")
        assert reply["r"] is True
    return socket


def _append(peer: Any, count: int, size: int = LARGE) -> None:
    for _ in range(count):
        peer.log.append([Event("A", b'"%b"' % (b"x" * size))])


def _over(peer: Any, scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    peer.run(bounded())


def test_all_that_goes_out_on_a_connection_is_made_when_the_peer_has_taken_the_page_before(peer: Any) -> None:
    account = MemoryAccount(40 * MIB)

    async def scenario() -> None:
        socket = await _consumer(peer, account, "C")
        for number in range(4):
            socket.say({"f": POLL.replace("poll:", "push:"), "p": {"component": "LIVE"}, "rid": f"P{number}"})
        await _turns()
        _append(peer, 3)
        for page in range(1, 5):
            await _until(lambda page=page: len(socket.large) >= page)  # type: ignore[misc]
            await _turns()
            assert len(socket.large) == page
            assert socket.share.bytes == socket._unsent > LARGE
            socket.take()
        socket.leave()
        await socket.task
        assert socket.share.bytes - socket._unsent == 0

    _over(peer, scenario())


def test_large_events_are_pushed_while_there_is_room_and_the_rest_as_it_comes_free(peer: Any) -> None:
    account = MemoryAccount(4 * MIB)

    async def scenario() -> None:
        sockets = [await _consumer(peer, account, f"C{number}") for number in range(5)]
        _append(peer, 1)
        waiting = list(sockets)
        while waiting:
            await _until(lambda: any(socket.large for socket in waiting))
            await _until(lambda: not any(socket.large and not socket.is_full for socket in waiting))
            await _turns()
            served = [socket for socket in waiting if socket.large]
            held = sum(socket.share.bytes for socket in sockets)
            assert held <= account.bytes_max // 2 + 5 * 64 * 1024, f"{held} bytes for {len(served)} consumers"
            for socket in served:
                assert [event["id"] for event in socket.large[0]["p"]["events"]] == ["1"]
                socket.say({"r": True, "rid": socket.large[0]["rid"]})
                socket.take()
                waiting.remove(socket)
        await _until(lambda: all(peer.acknowledged(f"C{number}") == 1 for number in range(5)))
        await _until(lambda: sum(socket.share.bytes for socket in sockets) == account.readers == 0)

    _over(peer, scenario())


@pytest.mark.parametrize("is_short", [False, True])
def test_a_poll_without_room_for_its_first_event_is_refused_and_counts_nothing(peer: Any, is_short: bool) -> None:
    account = MemoryAccount(4 * MIB)
    other, share = Share(account), Share(account)
    share.belong(account.owner("127.0.0.1"))
    other.hold(3 * MIB * is_short)
    _append(peer, 1)
    body = json.dumps({"f": POLL, "p": {"component": "LIVE"}}).encode()
    reply = peer.http("POST", "/futoin/orders", body, **{MEMORY: share}).json
    assert reply.get("e") == ("DefenseRejected" if is_short else None), reply
    assert share.bytes < 1000, "the request, which the server gives back"
    assert account.readers == 0


def test_several_readers_get_pages_of_a_piece(peer: Any) -> None:
    account = MemoryAccount(40 * MIB)
    share = Share(account)
    _append(peer, 20, 50_000)
    body = json.dumps({"f": POLL, "p": {"component": "LIVE"}}).encode()
    assert len(peer.http("POST", "/futoin/orders", body, **{MEMORY: share}).json["r"]) == 20
    Share(account).begin_answer()
    assert len(peer.http("POST", "/futoin/orders", body, **{MEMORY: share}).json["r"]) == 5
