"""Much that came at once on one connection: it is looked at in pieces, in order, and nothing more is read meanwhile."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.core.loop import slices
from headwater.http import Receive, Scope, Send
from headwater.server.config.settings import Http
from headwater.server.httpd.connection import PIECE_BYTES, HttpConnection
from headwater.server.httpd.server import HttpServer

from ..running import SILENCE_S_MAX
from .test_websocket import UPGRADE

CHUNKS, REQUESTS = 40_000, 5_000
CHUNKED = b"POST /body HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
LARGEST_CHUNKS = PIECE_BYTES // len(b"1\r\nx\r\n") + 1


class Site:
    """An application that answers with the path, or with how long the body was, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await receive()
            return
        self.asked.append(scope["path"])
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message["body"]), message["more_body"]
        body = b"%d" % size if scope["path"] == "/body" else scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


Scenario = Callable[[HttpConnection, asyncio.StreamReader, Site], Awaitable[None]]


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is over after one piece."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)


def served(scenario: Scenario) -> None:
    """Run a scenario with a connection of a server in this loop, of both its ends."""

    async def run() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        site = Site()
        server = HttpServer(site, [listener], Http(), None)
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await server.start()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        await until(lambda: server.connections == 1)
        (protocol,) = server.open_connections
        assert isinstance(protocol, HttpConnection)
        protocol.share.belong(protocol.share.account.owner("known"))
        try:
            async with asyncio.timeout(SILENCE_S_MAX):
                await scenario(protocol, reader, site)
        finally:
            writer.close()
            await server.stop()
        assert not failures

    asyncio.run(run())


async def until(is_so: Callable[[], object]) -> None:
    """Let the loop go round until it is so."""
    while not is_so():
        await asyncio.sleep(0)


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The body of the next one."""
    head = await reader.readuntil(b"\r\n\r\n")
    return await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))


def test_small_chunks_are_looked_at_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0
    on_body = HttpConnection.on_body

    def count(protocol: HttpConnection, body: bytes) -> None:
        nonlocal taken
        taken += 1
        on_body(protocol, body)

    monkeypatch.setattr(HttpConnection, "on_body", count)

    async def scenario(protocol: HttpConnection, reader: asyncio.StreamReader, site: Site) -> None:
        protocol.data_received(CHUNKED + b"1\r\nx\r\n" * CHUNKS)
        assert taken <= LARGEST_CHUNKS
        assert not protocol.transport.is_reading()
        while protocol._unread:
            before = taken
            await asyncio.sleep(0)
            assert taken - before <= LARGEST_CHUNKS
        await until(protocol.transport.is_reading)
        protocol.data_received(b"0\r\n\r\n")
        assert await answer(reader) == b"%d" % CHUNKS

    served(scenario)


def test_what_comes_while_something_is_unread_comes_behind_it() -> None:
    async def scenario(protocol: HttpConnection, reader: asyncio.StreamReader, site: Site) -> None:
        protocol.data_received(CHUNKED + b"1\r\nx\r\n" * CHUNKS)
        protocol.data_received(b"0\r\n\r\nGET /a HTTP/1.1\r\nhost: x\r\n\r\n")
        protocol.data_received(b"GET /b HTTP/1.1\r\nhost: x\r\n\r\n")
        assert [await answer(reader) for _ in range(3)] == [b"%d" % CHUNKS, b"/a", b"/b"]

    served(scenario)


def test_requests_in_a_row_are_answered_in_order_and_few_of_them_wait_at_a_time() -> None:
    async def scenario(protocol: HttpConnection, reader: asyncio.StreamReader, site: Site) -> None:
        requests = [b"GET /%05d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(REQUESTS)]
        protocol.data_received(b"".join(requests))
        for number in range(REQUESTS):
            assert len(protocol.pipeline) <= PIECE_BYTES // len(requests[0]) + 1
            assert await answer(reader) == b"/%05d" % number
        await until(protocol.transport.is_reading)

    served(scenario)


def test_nothing_more_is_looked_at_when_the_connection_is_lost() -> None:
    async def scenario(protocol: HttpConnection, reader: asyncio.StreamReader, site: Site) -> None:
        protocol.data_received(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n" * 2000)
        protocol.transport.abort()
        assert await reader.read() == b""
        await until(lambda: protocol._rest is None)
        assert not protocol._unread and len(site.asked) <= 1

    served(scenario)


def test_nothing_more_is_looked_at_behind_what_is_no_request() -> None:
    async def scenario(protocol: HttpConnection, reader: asyncio.StreamReader, site: Site) -> None:
        protocol.data_received(CHUNKED + b"1\r\nx\r\n" * CHUNKS + b"no length\r\n" + b"GET /a HTTP/1.1\r\n\r\n" * 2000)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        assert site.asked == ["/body"]

    served(scenario)


def test_a_websocket_begins_with_what_comes_behind_its_answer() -> None:
    async def scenario(protocol: HttpConnection, reader: asyncio.StreamReader, site: Site) -> None:
        protocol.data_received(CHUNKED + b"1\r\nx\r\n" * CHUNKS + b"0\r\n\r\n")
        assert await answer(reader) == b"%d" % CHUNKS
        protocol.data_received(UPGRADE + b"\x00" * 3 * PIECE_BYTES)
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        assert protocol.transport.is_reading()

    served(scenario)
