"""Peers that never finish: endless heads, pauses, and what is left of them when the server stops."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.http.asgi import Send
from headwater.http.errors import BrokenOff
from headwater.server.config.settings import Http
from headwater.server.httpd import connection as connection_module
from headwater.server.httpd.server import HttpServer
from headwater.server.httpd.upgrades import UpgradeIgnoringParser
from headwater.server.process.sockets import listen

from ..running import SILENCE_S_MAX, RunningServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer("--storage", "memory", cwd=tmp_path_factory.mktemp("server")) as running:
        yield running


def connected(server: RunningServer) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SILENCE_S_MAX)


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"a: b\r\n" * 10_000], ids=["one field", "many fields"])
def test_a_head_without_end_is_refused(server: RunningServer, piece: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET /logs HTTP/1.1\r\nhost: localhost\r\nx: ")
        received = b""
        try:
            for _ in range(1000):
                connection.sendall(piece)
            received = connection.recv(65_536)
        except ConnectionError:
            pass  # what it was told is lost where it went on sending
        assert received == b"" or received.startswith(b"HTTP/1.1 431 ")
    assert server.ask("/logs")[0] == 200


def test_many_requests_in_pieces_on_one_connection_are_no_large_head(server: RunningServer) -> None:
    request = b"GET /logs HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 4000 + b"\r\n\r\n"
    with connected(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(200):
            connection.sendall(request[:2000])
            connection.sendall(request[2000:])
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "begin",
    [b"", b"GET / HTTP/1.1\r\nx", b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{"],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_that_does_not_go_on_is_given_up(monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    monkeypatch.setattr(connection_module, "HEAD_S", 0.01)
    monkeypatch.setattr(connection_module, "BODY_PAUSE_S", 0.01)
    messages: list[str] = []

    async def application(scope: object, receive: object, send: object) -> None:
        while messages[-1:] != ["http.disconnect"]:
            messages.append((await receive())["type"])  # type: ignore[operator]

    async def scenario() -> bytes:
        sockets = listen("127.0.0.1", 0, "--http-port")
        server = HttpServer(application, sockets, Http(), None)  # type: ignore[arg-type]
        await server.start()
        reader, writer = await asyncio.open_connection(*sockets[0].getsockname())
        writer.write(begin)
        async with asyncio.timeout(SILENCE_S_MAX):
            received = await reader.read()
        writer.close()
        await server.stop()
        return received

    assert asyncio.run(scenario()) == b""
    assert messages == (["http.request", "http.disconnect"] if begin.endswith(b"{") else [])


def test_a_connection_is_idle_only_after_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "KEEP_ALIVE_S", 0.2)
    request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"

    async def application(scope: object, receive: object, send: object) -> None:
        requests.append(scope)
        if len(requests) == 2:
            await asyncio.sleep(0.5)  # longer than an idle connection is kept
        await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]

    async def scenario() -> None:
        sockets = listen("127.0.0.1", 0, "--http-port")
        server = HttpServer(application, sockets, Http(), None)  # type: ignore[arg-type]
        await server.start()
        reader, writer = await asyncio.open_connection(*sockets[0].getsockname())
        async with asyncio.timeout(SILENCE_S_MAX):
            for _ in range(3):
                writer.write(request)
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
            assert await reader.read() == b""
        writer.close()
        await server.stop()

    requests: list[object] = []
    asyncio.run(scenario())
    assert len(requests) == 3


def test_a_body_that_only_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "BODY_PAUSE_S", 0.2)
    messages: list[str] = []

    async def application(scope: object, receive: object, send: object) -> None:
        while messages[-1:] != ["http.disconnect"]:
            messages.append((await receive())["type"])  # type: ignore[operator]

    async def drip(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    async def scenario() -> None:
        sockets = listen("127.0.0.1", 0, "--http-port")
        server = HttpServer(application, sockets, Http(), None)  # type: ignore[arg-type]
        await server.start()
        reader, writer = await asyncio.open_connection(*sockets[0].getsockname())
        writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n")
        dripping = asyncio.create_task(drip(writer))
        async with asyncio.timeout(SILENCE_S_MAX):
            with suppress(ConnectionError):  # it was sending when it was given up
                assert await reader.read() == b""
        dripping.cancel()
        writer.close()
        await server.stop()

    asyncio.run(scenario())
    assert len(messages) > 2 and messages[-1] == "http.disconnect"


@pytest.mark.parametrize("error", [BrokenOff("another server is the primary"), ValueError("wrong")])
def test_an_answer_that_breaks_off_for_a_known_reason_is_no_fault_of_the_server(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def application(scope: object, receive: object, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        raise error

    async def scenario() -> bytes:
        sockets = listen("127.0.0.1", 0, "--http-port")
        http = HttpServer(application, sockets, Http(), None)  # type: ignore[arg-type]
        await http.start()
        reader, writer = await asyncio.open_connection(*sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await http.stop()
        return answer

    answer = asyncio.run(scenario())
    assert b"begun" in answer and not answer.endswith(b"0\r\n\r\n")
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == (not isinstance(error, BrokenOff))


def test_the_head_of_a_closed_connection_is_not_kept_until_a_collection() -> None:
    async def scenario() -> None:
        sockets = listen("127.0.0.1", 0, "--http-port")
        server = HttpServer(None, sockets, Http(), None)  # type: ignore[arg-type]
        await server.start()
        gc.collect()
        gc.disable()
        reader, writer = await asyncio.open_connection(*sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\n" + (b"x: " + b"y" * 8000 + b"\r\n") * 3)
        writer.write_eof()
        async with asyncio.timeout(SILENCE_S_MAX):
            assert await reader.read() == b""
        writer.close()
        await asyncio.sleep(0)
        assert not server.open_connections
        assert [each for each in gc.get_objects() if isinstance(each, UpgradeIgnoringParser)] == []
        await server.stop()

    try:
        asyncio.run(scenario())
    finally:
        gc.enable()


def test_what_never_ends_is_cut_off_in_order_when_the_server_stops(tmp_path: Path) -> None:
    event = b'{"type":"T","data":"' + b"x" * 50_000 + b'"}'
    with RunningServer("--storage", "memory", "--limits-stop-ms", "100ms", cwd=tmp_path) as server:
        for _ in range(4):
            assert server.ask("/logs/default/append", b'{"events":[' + b",".join([event] * 100) + b"]}")[0] == 200
        with connected(server) as half, connected(server) as stalled:
            head = (
                "POST /logs/default/{} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                "content-length: {}\r\n\r\n"
            )
            half.sendall(head.format("append", 100).encode() + b"{")
            stalled.sendall(head.format("read", 15).encode() + b'{"query":"all"}')
            assert stalled.recv(100)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(SILENCE_S_MAX) == 0
        assert "requests cut off" in server.errors
        assert "level=error" not in server.errors and "traceback" not in server.errors
