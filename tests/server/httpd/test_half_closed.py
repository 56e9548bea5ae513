"""A client that sends all that it asks, and then says that it sends no more, as `nc -N` does, gets its whole answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from headwater.client import connect
from headwater.core import Event
from headwater.http import Receive, Scope, Send
from headwater.server.config.settings import Http
from headwater.server.httpd import connection as connection_module
from headwater.server.httpd.server import HttpServer

from ..running import SILENCE_S_MAX, RunningServer

EVENTS, EVENT_BYTES = 3000, 3000
READ = b'{"query": "all"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer("--storage", "memory", cwd=tmp_path_factory.mktemp("server")) as server:
        with connect(server.url) as client:
            log = client.create("orders")
            for _ in range(0, EVENTS, 500):
                log.append([Event("A", b"x" * EVENT_BYTES) for _ in range(500)])
        yield server


def said(address: tuple[str, int], asked: bytes) -> bytes:
    """What comes to somebody who asks that, and says no more."""
    with socket.create_connection(address, SILENCE_S_MAX) as client, client.makefile("rb") as file:
        client.sendall(asked)
        client.shutdown(socket.SHUT_WR)
        return file.read()


def address_of(server: RunningServer) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


def request(path: str, body: bytes = b"", accept: str = "*/*", version: str = "1.1") -> bytes:
    fields = f"host: localhost\r\naccept: {accept}\r\ncontent-type: application/json\r\n"
    head = f"{'POST' if body else 'GET'} {path} HTTP/{version}\r\n{fields}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_it_gets_a_long_read_to_its_end(server: RunningServer, version: str) -> None:
    asked = request("/logs/orders/read", READ, "application/x-ndjson;end=line", version)
    answer = said(address_of(server), asked)
    assert answer.count(b'"sequence_number"') == EVENTS
    assert b'{"end":%d}\n' % EVENTS in answer[-30:]


def test_it_gets_the_answers_to_all_that_it_asked(server: RunningServer) -> None:
    append = request("/logs/orders/append", b'{"events": [{"type": "B", "data": "e30="}]}')
    answer = said(address_of(server), append + request("/logs") + request("/logs/orders/head"))
    assert answer.count(b"HTTP/1.1 200 ") == 3
    assert b'"head":%d' % (EVENTS + 1) in answer


def test_half_a_request_is_not_answered(server: RunningServer) -> None:
    for half in (b"GET /logs HT", request("/logs/orders/read", READ)[:-1]):
        assert said(address_of(server), half) == b""


class Pausing:
    """An application that says something, and then waits until its client is gone."""

    def __init__(self) -> None:
        self.pieces = 2
        self.is_gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(self.pieces):
            await asyncio.sleep(2 * connection_module.HALF_CLOSED_S / 3)
            await send({"type": "http.response.body", "body": b"piece", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        self.is_gone.set()


def test_who_sends_no_more_and_is_sent_nothing_is_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HALF_CLOSED_S", 0.1)

    async def scenario() -> bytes:
        application = Pausing()
        bound = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(application, [bound], Http(), None)
        await server.start()
        try:
            async with asyncio.timeout(SILENCE_S_MAX):
                answer = await asyncio.to_thread(said, bound.getsockname(), request("/"))
                await application.is_gone.wait()
        finally:
            await server.stop()
        return answer

    assert asyncio.run(scenario()).count(b"piece") == 2
