"""A peer that does not read: the server holds one piece for it, counts it, and ends it where memory stays short."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from headwater.core.loop import memory
from headwater.http import Message, Receive, Scope, Send
from headwater.http.asgi import MEMORY
from headwater.server.httpd.admission import Admission
from headwater.server.httpd.connection import HttpConnection
from headwater.server.httpd.server_state import ServerState

PIECE = bytes(256 * 1024)
HIGH_WATER = 64 * 1024
"""Of a transport: below it the next piece is written."""
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Endless:
    """An application whose answer never ends."""

    def __init__(self) -> None:
        self.made = 0
        self.scope: Scope = {}
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        gone = asyncio.ensure_future(_gone(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            self.made += 1
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            await asyncio.sleep(0)
        self.ended.set()


async def _gone(receive: Receive) -> None:
    message: Message = {"type": "http.request"}
    while message["type"] != "http.disconnect":
        message = await receive()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.001)


def asked(address: tuple[str, int]) -> socket.socket:
    """A connection that has asked, and reads nothing."""
    connection = socket.create_connection(address)
    connection.sendall(REQUEST)
    return connection


def test_one_piece_is_held_and_counted_for_a_peer_that_does_not_read() -> None:
    async def scenario() -> None:
        application = Endless()
        state = ServerState(application, Admission(10))
        server = await asyncio.get_running_loop().create_server(lambda: HttpConnection(state), "127.0.0.1", 0)
        async with server:
            with asked(server.sockets[0].getsockname()):
                await until(lambda: application.scope.get(MEMORY) is not None and state.memory.bytes > 0)
                share, made = application.scope[MEMORY], application.made
                assert 0 < share.bytes <= len(PIECE) + HIGH_WATER + 100
                for _ in range(100):
                    await asyncio.sleep(0)
                assert application.made == made, "the next piece was made before there was room for it"
            await application.ended.wait()
            await until(lambda: not state.connections)
            assert (state.memory.bytes, share.bytes) == (0, 0)

    asyncio.run(scenario())


def test_it_is_ended_where_memory_stays_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "STALLED_S", 0.0)
    monkeypatch.setattr(memory, "CHECK_S", 0.01)

    async def scenario() -> None:
        application = Endless()
        state = ServerState(application, Admission(10))
        server = await asyncio.get_running_loop().create_server(lambda: HttpConnection(state), "127.0.0.1", 0)
        async with server:
            with asked(server.sockets[0].getsockname()):
                await until(lambda: state.memory.bytes > 0)
                other = memory.Share(state.memory)
                other.hold(state.memory.bytes_max)
                async with asyncio.timeout(20):
                    await application.ended.wait()
                assert state.memory.ended == 1
                await until(lambda: not state.connections)
                other.give(other.bytes)
                assert state.memory.bytes == 0

    asyncio.run(scenario())
