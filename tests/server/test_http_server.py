"""The HTTP server's own life."""

from __future__ import annotations

import asyncio
import socket

import pytest

from headwater.http import Receive, Scope, Send
from headwater.server.config import Http
from headwater.server.http_server import HttpServer


def test_a_listener_that_dies_is_told_and_ends_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        died = asyncio.Event()
        with socket.create_server(("127.0.0.1", 0)) as bound:
            http = HttpServer(None, [bound], Http(), None, died=died.set)  # type: ignore[arg-type]

            async def fails() -> None:
                await asyncio.sleep(0.05)  # until it has begun
                raise OSError(24, "Too many open files")

            http._server.main_loop = fails  # type: ignore[method-assign]
            await http.start()
            await died.wait()
            await http.stop()

    asyncio.run(scenario())
    assert "HTTP is not served any more" in caplog.text


async def much(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers more than the system takes for a peer that does not read."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % 2**24)]})
    await send({"type": "http.response.body", "body": bytes(2**24)})


def test_a_peer_that_does_not_take_its_answer_is_no_fault_of_a_server_that_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as bound, socket.socket() as peer:
            server = HttpServer(much, [bound], Http(), None)
            await server.start()
            peer.connect(bound.getsockname())
            peer.sendall(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n")
            while not any(connection.transport.get_write_buffer_size() for connection in server.open_connections):
                await asyncio.sleep(0)
            await server.stop()
            assert server.connections == 0

    asyncio.run(scenario())
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
