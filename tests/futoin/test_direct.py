"""A server that offers the short way to a peer: additions go by it, in their order, and all bounds hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from headwater.futoin import websocket
from headwater.http.direct import DIRECT, Listener

from .conftest import LOG, Socket

ADD, PING = "futoin.evt.gen:1.1:addEvent", "futoin.evt.gen:1.1:ping"


class Short:
    """The short way to one peer, as its server has it."""

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self.said: list[Any] = []
        self.takes = True

    def hear(self, listener: Listener | None) -> None:
        self.listener = listener

    def trust(self, is_known: Callable[[], bool]) -> None:
        self.is_known = is_known

    def say(self, body: bytes) -> bool:
        if self.takes:
            self.said.append(json.loads(body))
        return self.takes


def message(number: int, f: str = ADD, **p: Any) -> bytes:
    return json.dumps({"f": f, "p": p or {"type": "A", "data": number}, "rid": f"C{number}"}).encode()


async def connected(peer: Any) -> tuple[Socket, Short]:
    short = Short()
    socket: Socket = await peer.connected(extensions={DIRECT: short})
    assert (await socket.ask(ADD, {"type": "A", "data": 0}, "C0"))["r"] == "1"  # which opens the log
    await turn()
    return socket, short


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def until_said(short: Short, count: int) -> None:
    async with asyncio.timeout(10):
        while len(short.said) < count:
            await asyncio.sleep(0.001)


def test_an_addition_is_begun_while_it_is_heard_and_answered_without_a_task(peer: Any) -> None:
    async def scenario() -> None:
        socket, short = await connected(peer)
        before = len(asyncio.all_tasks())
        assert short.listener is not None and all(short.listener(message(number)) for number in (1, 2, 3))
        assert len(asyncio.all_tasks()) == before
        await until_said(short, 3)
        assert short.said == [{"r": f"{number + 1}", "rid": f"C{number}"} for number in (1, 2, 3)]
        assert await socket.is_silent()

    peer.run(scenario())


def test_what_is_no_plain_addition_is_left_to_come_as_ever(peer: Any) -> None:
    async def scenario() -> None:
        _, short = await connected(peer)
        assert short.listener is not None
        for other in (message(1, PING, echo=1), b"MPCK\x80", b"{}", b""):
            assert not short.listener(other)

    peer.run(scenario())


def test_nothing_is_heard_before_what_came_earlier_is_begun(peer: Any) -> None:
    async def scenario() -> None:
        socket, short = await connected(peer)
        assert short.listener is not None
        short.takes = False
        socket.stop_reading()
        assert all(short.listener(message(number)) for number in range(websocket.REQUESTS_MAX))
        socket.say(message(1000))  # which is read, and waits for one of those to be answered
        await turn()
        short.takes = True
        socket.go_on_reading()
        async with asyncio.timeout(10):
            while not short.listener(message(1001)):
                await asyncio.sleep(0)
        await until_said(short, 1)

    peer.run(scenario())
    assert [json.loads(event.data) for event in peer.log.read()][-2:] == [1000, 1001]


def test_of_a_peer_that_takes_nothing_only_so_many_are_heard_and_it_gets_all_in_order(peer: Any) -> None:
    async def scenario() -> None:
        socket, short = await connected(peer)
        assert short.listener is not None
        short.takes = False
        socket.stop_reading()
        heard = [short.listener(message(number)) for number in range(1, 200)]
        assert heard == [number <= websocket.REQUESTS_MAX for number in range(1, 200)]
        await turn()
        assert not short.listener(message(200)), "their replies are not sent"
        short.takes = True
        socket.go_on_reading()
        replies = [await socket.next() for _ in range(websocket.REQUESTS_MAX)]
        assert [reply["rid"] for reply in replies] == [f"C{each}" for each in range(1, websocket.REQUESTS_MAX + 1)]
        await turn()
        assert short.listener(message(200))
        await until_said(short, 1)

    peer.run(scenario())


def test_a_stopping_server_hears_nothing_more_and_answers_what_runs(peer: Any) -> None:
    async def scenario() -> None:
        socket, short = await connected(peer)
        listener = short.listener
        assert listener is not None and listener(message(1))
        peer.app.stop()
        assert not listener(message(2))
        frame = await socket.frame()
        assert (frame["type"], frame["code"]) == ("websocket.close", 1012)
        assert [reply["rid"] for reply in short.said] == ["C1"]
        async with asyncio.timeout(5):
            await socket.task
        assert short.listener is None

    peer.run(scenario())


def test_an_addition_whose_peer_has_left_is_kept(peer: Any) -> None:
    async def scenario() -> None:
        socket, short = await connected(peer)
        assert short.listener is not None and short.listener(message(1))
        short.takes = False
        socket.leave()
        async with asyncio.timeout(5):
            await socket.task
        other = await peer.exchange("POST", f"/futoin/{LOG}", message(2))
        assert other.json["r"] == "3"

    peer.run(scenario())
