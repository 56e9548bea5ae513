"""The HTTP server's own life."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from headwater.http import Receive, Scope, Send
from headwater.server.config.settings import Http
from headwater.server.httpd import server as server_module
from headwater.server.httpd.server import HttpServer

ASKED = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers that all is well."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


class Held:
    """An application whose answer waits for `go`."""

    def __init__(self) -> None:
        self.asked, self.go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        try:
            await self.go.wait()
            await nothing(scope, receive, send)
        finally:
            self.ended.set()


async def begun(application: Any) -> tuple[HttpServer, tuple[str, int]]:
    bound = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(application, [bound], Http(), None)
    await server.start()
    return server, bound.getsockname()


def test_a_socket_that_cannot_be_listened_on_is_told_and_none_stays_open() -> None:
    async def scenario() -> None:
        good, bad = socket.create_server(("127.0.0.1", 0)), socket.socket()
        bad.close()
        server = HttpServer(nothing, [good, bad], Http(), None)
        with pytest.raises((OSError, ValueError)):
            await server.start()
        assert good.fileno() < 0
        await server.stop()

    asyncio.run(scenario())


def test_who_is_being_answered_when_the_server_stops_is_answered_and_who_is_idle_is_closed() -> None:
    async def scenario() -> None:
        held = Held()
        server, address = await begun(held)
        idle, idle_writer = await asyncio.open_connection(*address)
        busy, busy_writer = await asyncio.open_connection(*address)
        busy_writer.write(ASKED)
        await held.asked.wait()
        stopping = asyncio.create_task(server.stop())
        assert await idle.read() == b""
        held.go.set()
        answer = await busy.read()
        assert answer.startswith(b"HTTP/1.1 200 ") and b"connection: close" in answer
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        await server.stop()
        for writer in (idle_writer, busy_writer):
            writer.close()

    asyncio.run(scenario())


def test_what_does_not_end_by_itself_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "LAST_ANSWERS_S", 0.01)

    async def scenario() -> None:
        held = Held()
        server, address = await begun(held)
        _, writer = await asyncio.open_connection(*address)
        writer.write(ASKED)
        await held.asked.wait()
        await server.stop()
        await held.ended.wait()
        while server.connections:
            await asyncio.sleep(0)
        writer.close()

    asyncio.run(scenario())
    assert "answers cut off" in caplog.text


async def much(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers more than the system takes for a peer that does not read."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % 2**24)]})
    await send({"type": "http.response.body", "body": bytes(2**24)})


def test_a_peer_that_does_not_take_its_answer_is_no_fault_of_a_server_that_stops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "LAST_ANSWERS_S", 0.01)

    async def scenario() -> None:
        server, address = await begun(much)
        with socket.create_connection(address) as peer:
            peer.sendall(ASKED)
            while not any(connection.transport.get_write_buffer_size() for connection in server.open_connections):
                await asyncio.sleep(0)
            await server.stop()
            while server.connections:
                await asyncio.sleep(0)

    asyncio.run(scenario())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
