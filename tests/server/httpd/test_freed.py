"""What a connection held is freed at its end, without a collection: nothing of it is part of a cycle."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.http import Receive, Scope, Send
from headwater.server.config.settings import Http
from headwater.server.httpd.connection import HttpConnection
from headwater.server.httpd.server import HttpServer
from headwater.server.httpd.websocket import WebSocketProtocol
from headwater.server.process.event_loop import EventLoop

from ...amqp.certificates import Authority
from ...waiting import WAIT_S_MAX

POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
ON_HTTP = {
    "silent": b"",
    "half a line": b"GET / HT",
    "half a head": b"GET / HTTP/1.1\r\nhost: " + b"x" * 5000,
    "a request": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "some requests": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 3,
    "the last request": b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    "half a body": POST + b"content-length: 100000\r\n\r\n" + b"x" * 5000,
    "chunks": POST + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "half a chunk": POST + b"transfer-encoding: chunked\r\n\r\n500\r\nhello",
    "a failure": b"GET /fail HTTP/1.1\r\nhost: x\r\n\r\n",
    "a failure in a body": b"POST /fail HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nx",
    "no HTTP": b"hello\r\n\r\n",
    "a tunnel": b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "another upgrade": b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    "half an upgrade": b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
}
ON_WEBSOCKET = {
    "no message": b"",
    "half a head of a frame": b"\x82",
    "half a message": b"\x82\xfe\xff\xff" + b"m" * 1000,
    "a message": b"\x82\x81aaaax",
    "a fragment": b"\x02\x85aaaahello",
    "a frame without mask": b"\x82\x05hello",
    "a close": b"\x88\x80aaaa",
}


async def answering(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads what there is, and answers it; or fails."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            if message["type"] == "websocket.receive":
                await send({"type": "websocket.send", "bytes": b"x"})
        return
    while (message := await receive()).get("more_body", False):
        pass
    if scope["path"] == "/fail":
        raise RuntimeError("fails")
    if message["type"] == "http.request":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[Any]]]:
    """Connections that were made; the collector is off."""
    found: list[weakref.ref[Any]] = []
    for each in (HttpConnection, WebSocketProtocol):

        def connected(self: Any, transport: Any, made: Any = each.connection_made) -> None:
            found.append(weakref.ref(self))
            made(self, transport)

        monkeypatch.setattr(each, "connection_made", connected)
    gc.collect()
    gc.disable()
    yield found
    gc.enable()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.mark.parametrize("is_secured", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("end", ["closed", "reset", "shut down"])
def test_nothing_of_a_connection_outlives_it(
    made: list[weakref.ref[Any]], end: str, is_secured: bool, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    own = authority.issue("server", "IP:127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(own.file, own.key)

    async def scenario() -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(answering, [bound], Http(), tls if is_secured else None)
        await server.start()
        sent = [(name, b"", said) for name, said in ON_HTTP.items()]
        sent += [(name, UPGRADE, said) for name, said in ON_WEBSOCKET.items()]
        for name, upgrade, said in sent:
            made.clear()
            address, context = bound.getsockname(), authority.context() if is_secured else None
            reader, writer = await asyncio.open_connection(*address, ssl=context)
            writer.write(upgrade)
            if upgrade:
                await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            while not made:
                await asyncio.sleep(0.001)
            for _ in range(20):
                await asyncio.sleep(0)
            if end == "shut down":
                for connection in tuple(server.open_connections):
                    connection.shutdown()
                    del connection
            (writer.transport.abort if end == "reset" else writer.close)()
            until = asyncio.get_running_loop().time() + WAIT_S_MAX
            while any(each() is not None for each in made):
                assert asyncio.get_running_loop().time() < until, (name, [each() for each in made])
                caplog.clear()  # what was logged of a failure has its traceback
                await asyncio.sleep(0.001)
        await server.stop()

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(scenario())
