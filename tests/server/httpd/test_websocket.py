"""Silent peers, and peers that do not read: with the times of the server shortened."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from websockets.server import ServerProtocol

from headwater.core import Event, OpenGuard
from headwater.futoin.server import Application
from headwater.server.config.settings import Http
from headwater.server.httpd import connection, websocket
from headwater.server.httpd.server import HttpServer
from headwater.storage.memory import MemoryStore

UPGRADE = (
    b"GET /futoin/orders HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def frame(message: Any) -> bytes:
    """A message as a client sends it, masked with zeros."""
    body = json.dumps(message).encode()
    assert len(body) < 126
    return bytes([0x82, 0x80 | len(body)]) + bytes(4) + body


async def served(scenario: Callable[[int, MemoryStore], Any]) -> None:
    """Run a scenario against a server in this loop."""
    listener = socket.create_server(("127.0.0.1", 0))
    store = MemoryStore()
    store.create("orders")
    app = Application(store, OpenGuard())
    server = HttpServer(app, [listener], Http(), None)
    await server.start()
    try:
        async with asyncio.timeout(20):
            await scenario(listener.getsockname()[1], store)
    finally:
        app.stop()
        await server.stop()
        await app.close()


async def upgraded(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(UPGRADE)
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def test_a_peer_that_answers_no_ping_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "PING_INTERVAL_S", 0.1)
    monkeypatch.setattr(websocket, "PING_TIMEOUT_S", 0.1)

    async def scenario(port: int, store: MemoryStore) -> None:
        reader, writer = await upgraded(port)
        assert (await reader.readexactly(1))[0] == 0x89, "a ping"
        try:
            while await reader.read(1000):
                pass
        except ConnectionResetError:
            pass
        writer.close()

    asyncio.run(served(scenario))


def test_a_peer_that_takes_nothing_is_cut_off_whatever_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "PING_INTERVAL_S", 0.2)
    monkeypatch.setattr(websocket, "PING_TIMEOUT_S", 0.2)
    held: list[int] = []

    async def scenario(port: int, store: MemoryStore) -> None:
        log = store.open("orders")
        log.append([Event("BIG", b'"%b"' % (b"x" * 900_000)) for _ in range(8)])
        log.register_consumer("anybody", "C", after=0)
        _, writer = await upgraded(port)
        writer.transport.pause_reading()
        writer.write(frame({"f": "futoin.evt.push:1.1:readyToReceive", "p": {"component": "C"}, "rid": "C1"}))
        for number in range(4):
            asked = {"f": "futoin.evt.poll:1.1:pollEvents", "p": {"component": "LIVE"}, "rid": f"C{number}"}
            writer.write(frame(asked))
        other_reader, other_writer = await upgraded(port)
        other_writer.write(frame({"f": "futoin.evt.gen:1.1:ping", "p": {"echo": 1}, "rid": "C1"}))
        assert b"echo" in await other_reader.readuntil(b"C1")
        other_writer.close()
        while held == [] or held[-1]:
            await asyncio.sleep(0.05)
            held.append(len([task for task in asyncio.all_tasks() if "WebSocketCycle.run" in repr(task)]))
        writer.close()

    asyncio.run(served(scenario))


def test_the_patience_with_a_request_ends_where_it_becomes_a_websocket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.2)
    monkeypatch.setattr(connection, "BODY_PAUSE_S", 0.2)

    async def scenario(port: int, store: MemoryStore) -> None:
        reader, writer = await upgraded(port)
        await asyncio.sleep(0.6)
        writer.write(frame({"f": "futoin.evt.gen:1.1:ping", "p": {"echo": 1}, "rid": "C1"}))
        assert b"echo" in await reader.readuntil(b"C1")
        writer.close()

    asyncio.run(served(scenario))


def test_a_closed_connection_keeps_nothing_until_a_collection() -> None:
    parts = {
        "a frame": bytes([0x82, 0xFF]) + (2**20).to_bytes(8) + bytes(4) + bytes(2**19),
        "a message": bytes([0x02, 0xFF]) + (2**17).to_bytes(8) + bytes(4) + bytes(2**17),
        "a head": bytes([0x82]),
        "garbage": b"\xff" * 100,
    }

    def libraries() -> set[int]:
        return {id(each) for each in gc.get_objects() if isinstance(each, ServerProtocol)}

    async def scenario(port: int, store: MemoryStore) -> None:
        gc.collect()
        gc.disable()
        before = libraries()
        for part in parts.values():
            reader, writer = await upgraded(port)
            writer.write(part)
            await writer.drain()
            writer.write_eof()
            while await reader.read(1000):
                pass
            writer.close()
        while [task for task in asyncio.all_tasks() if "WebSocketCycle.run" in repr(task)]:
            await asyncio.sleep(0.01)
        while libraries() - before:
            await asyncio.sleep(0.01)  # the last connection is being closed

    try:
        asyncio.run(served(scenario))
    finally:
        gc.enable()
