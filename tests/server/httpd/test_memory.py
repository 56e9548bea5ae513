"""What peers may make the server hold over HTTP and WebSocket: bodies and messages from before the first byte on."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from headwater import dcb
from headwater.core.access import Grant, Guard, OpenGuard, Right, User
from headwater.core.loop.memory import MemoryAccount, Share
from headwater.core.shared_bytes import FREE_BYTES, MIB, STEP_BYTES
from headwater.futoin import server as futoin
from headwater.http import Exchange, Host, Receive, Scope, Send
from headwater.http.asgi import HELD, MEMORY
from headwater.http.body_memory import SMALL_BYTES, largest_within, memory_of
from headwater.http.host import own, own_by_address
from headwater.server.app import by_room
from headwater.server.config.settings import Http
from headwater.server.httpd.connection import HEAD_BYTES_MAX, PIECE_BYTES, HttpConnection
from headwater.server.httpd.server import HttpServer
from headwater.server.httpd.server_state import STRANGER_READ_BYTES
from headwater.storage.memory import MemoryStore

BUDGET = 40 * MIB
PATIENCE_S = 20.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Closed(OpenGuard):
    """Nobody is let in."""

    is_open = False


class Room:
    """A server with that budget, a log, and peers."""

    def __init__(self, guard: Guard | None = None) -> None:
        self.memory = MemoryAccount(BUDGET)
        self.guard = guard or OpenGuard()

    async def __aenter__(self) -> Room:
        store = self.store = MemoryStore()
        store.create("l")
        bound = socket.create_server(("127.0.0.1", 0))
        self.address = bound.getsockname()
        rooms = by_room({"futoin": futoin.Application(store, self.guard)}, dcb.Application(store, self.guard))
        self.server = HttpServer(rooms, [bound], Http(), None, memory=self.memory)
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    async def says(self, data: bytes) -> Streams:
        """A connection on which that was sent."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def becomes(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


def charged(size: int) -> int:
    """What the budget is charged with for a body of that size."""
    return -(-(memory_of(size) - FREE_BYTES) // STEP_BYTES) * STEP_BYTES


def append_head(length: int | None) -> bytes:
    framing = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
    return b"POST /logs/l/append HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n%b\r\n\r\n" % framing


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def answer(peer: Streams) -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(PATIENCE_S):
        status, *lines = (await peer[0].readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines if line)
        return int(status.split()[1]), fields, await peer[0].readexactly(int(fields["content-length"]))


async def leave(*peers: Streams) -> None:
    for _, writer in peers:
        writer.close()


def test_half_bodies_hold_no_more_than_the_budget_and_are_refused_before_they_are_read() -> None:
    async def scenario() -> None:
        async with Room() as room:
            peers = [await room.says(append_head(100_000) + b" " * 1000) for _ in range(150)]
            await room.becomes(lambda: room.memory.refused + room.memory.bytes // charged(100_000) == 150)
            assert 0 < room.memory.bytes <= BUDGET // 2
            told = await answer(peers[-1])
            assert (told[0], told[1]["retry-after"]) == (503, "1")
            assert json.loads(told[2])["type"].endswith("overloaded")
            await leave(*peers)
            await room.becomes(lambda: room.memory.bytes == 0)

    run(scenario)


def test_a_body_that_can_never_fit_is_413_with_the_number() -> None:
    async def scenario() -> None:
        async with Room() as room:
            peer = await room.says(append_head(50 * MIB))
            status, _, body = await answer(peer)
            allowed = largest_within(room.memory.largest)
            assert status == 413 and str(allowed) in json.loads(body)["detail"]
            assert memory_of(allowed) <= room.memory.largest < memory_of(allowed + 16)
            await leave(peer)

    run(scenario)


def test_two_bodies_that_do_not_say_their_length_never_wait_for_each_other() -> None:
    """Half of one and half of the other fill the budget. One is refused, and the other comes whole."""

    async def scenario() -> None:
        async with Room() as room:
            event = json.dumps({"events": [{"type": "t", "data": "x" * 800_000}]}).encode()
            first, second = [await room.says(append_head(None)) for _ in range(2)]
            first[1].write(chunk(event[:-10]))
            await room.becomes(lambda: room.memory.bytes >= memory_of(len(event) - 10) - FREE_BYTES)
            second[1].write(chunk(b" " * MIB))
            assert (await answer(second))[0] == 503, "it is refused, not paused"
            first[1].write(chunk(event[-10:]) + b"0\r\n\r\n")
            assert (await answer(first))[0] == 200
            await room.becomes(lambda: room.memory.bytes == 0)
            await leave(first, second)

    run(scenario)


def test_a_body_counts_until_its_request_is_answered() -> None:
    """Not only until it has come: decoding is in it."""

    async def scenario() -> None:
        memory, has_body, may_answer = MemoryAccount(BUDGET), asyncio.Event(), asyncio.Event()

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            exchange = Exchange(scope, receive, send)
            await Host(OpenGuard()).user(exchange)
            await exchange.body()
            has_body.set()
            await may_answer.wait()
            await exchange.answer(200, b"")

        bound = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(application, [bound], Http(), None, memory=memory)
        await server.start()
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(append_head(MIB) + bytes(MIB))
        await has_body.wait()
        assert memory.bytes == charged(MIB)
        may_answer.set()
        assert (await answer((reader, writer)))[0] == 200
        assert memory.bytes == 0
        writer.close()
        await server.stop()

    run(scenario)


def test_what_a_connection_holds_is_of_the_user_of_its_last_request() -> None:
    memory = MemoryAccount(BUDGET)
    share = Share(memory)
    for name, rights in (("ada", {Right.READ}), ("root", set(Right)), ("ada", {Right.READ})):
        own(share, User(name, (Grant("*", frozenset(rights)),)))
        assert share.owner is memory.owner(name, is_administrator=name == "root")
    own_by_address(share, "192.0.2.1")
    assert share.owner is not None and share.owner.name == "192.0.2.1"


def test_before_the_login_a_connection_has_64_kib() -> None:
    """A head, and one read behind it; the rest stays in the system's buffers."""
    assert HEAD_BYTES_MAX + PIECE_BYTES + STRANGER_READ_BYTES <= FREE_BYTES

    async def scenario() -> None:
        async with Room(Closed()) as room:
            long = await room.says(b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * (HEAD_BYTES_MAX + 2 * PIECE_BYTES))
            many = await room.says(b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a:b\r\n" * 3000)
            for peer in (long, many):
                async with asyncio.timeout(PATIENCE_S):
                    assert (await peer[0].readline()).startswith(b"HTTP/1.1 431 ")
            body = await room.says(b"POST /futoin/l HTTP/1.1\r\nhost: x\r\ncontent-length: 8000000\r\n\r\n")
            await answer(body)
            assert room.memory.bytes == 0, "it can never fit into what strangers have"
            await leave(long, many, body)

    run(scenario)


def test_of_requests_that_are_sent_at_once_those_behind_the_first_wait_as_bytes() -> None:
    """As objects, 16 KiB of them would take two MB of a connection without a login."""

    async def scenario() -> None:
        may_answer, begun = asyncio.Event(), asyncio.Event()

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            begun.set()
            await may_answer.wait()
            await Exchange(scope, receive, send).answer(200, b"")

        bound = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(application, [bound], Http(), None, memory=MemoryAccount(BUDGET))
        await server.start()
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nte: trailers\r\n\r\n" * 500)
        await begun.wait()
        await asyncio.sleep(0)
        (connection,) = server.open_connections
        assert isinstance(connection, HttpConnection) and len(connection.pipeline) == 0
        may_answer.set()
        for _ in range(500):
            assert (await answer((reader, writer)))[0] == 200
        writer.close()
        await server.stop()

    run(scenario)


def test_futoin_messages_of_unknown_peers_have_an_eighth_together() -> None:
    async def scenario() -> None:
        async with Room(Closed()) as room:
            head = b"POST /futoin/l HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"
            peers = [await room.says(head) for _ in range(50)]
            await room.becomes(lambda: room.memory.refused + room.memory.bytes // charged(100_000) == 50)
            assert 0 < room.memory.strangers.bytes == room.memory.bytes <= BUDGET // 8
            refused = await answer(peers[-1])
            assert refused[0] == 200 and json.loads(refused[2])["e"] == "DefenseRejected"
            await leave(*peers)
            await room.becomes(lambda: room.memory.bytes == 0)

    run(scenario)


UPGRADE = (
    b"GET /futoin/l HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def announced(size: int) -> bytes:
    """The head of a frame of that size."""
    return b"\x82\xff" + size.to_bytes(8) + bytes(4)


async def websocket(room: Room) -> Streams:
    peer = await room.says(UPGRADE)
    async with asyncio.timeout(PATIENCE_S):
        assert (await peer[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    return peer


async def close_code(peer: Streams) -> int:
    async with asyncio.timeout(PATIENCE_S):
        first, size = await peer[0].readexactly(2)
        assert first == 0x88, "the server closes it"
        return int.from_bytes((await peer[0].readexactly(size))[:2])


@pytest.mark.parametrize("guard", [OpenGuard(), Closed()])
def test_half_messages_over_websocket_hold_no_more_than_their_owner_may(guard: Guard) -> None:
    async def scenario() -> None:
        async with Room(guard) as room:
            peers = [await websocket(room) for _ in range(100)]
            size = 300_000
            for _, writer in peers:
                writer.write(announced(size) + bytes(1000))
            await room.becomes(lambda: room.memory.refused + room.memory.bytes // charged(size) == 100)
            assert 0 < room.memory.bytes <= (BUDGET // 2 if guard.is_open else BUDGET // 8)
            assert await close_code(peers[-1]) == 1013
            await leave(*peers)
            await room.becomes(lambda: room.memory.bytes == 0)

    run(scenario)


def test_a_message_that_can_never_fit_closes_its_websocket_with_1009() -> None:
    async def scenario() -> None:
        async with Room(Closed()) as room:
            peer = await websocket(room)
            peer[1].write(announced(8 * MIB) + bytes(1000))
            assert await close_code(peer) == 1009
            await leave(peer)

    run(scenario)


def test_a_message_is_given_back_when_it_is_answered() -> None:
    async def scenario() -> None:
        async with Room() as room:
            peer = await websocket(room)
            events = [{"type": "A", "data": "x" * 60_000} for _ in range(5)]
            call = {"f": "headwater.evt.gen:1.0:addEvents", "p": {"events": events}, "rid": "C1"}
            text = json.dumps(call).encode()
            peer[1].write(announced(len(text)) + text[:-1])
            await room.becomes(lambda: room.memory.bytes >= memory_of(len(text)) - FREE_BYTES)
            peer[1].write(text[-1:])
            async with asyncio.timeout(PATIENCE_S):
                assert (await peer[0].readexactly(1))[0] == 0x82
            await room.becomes(lambda: room.memory.bytes == 0)
            await leave(peer)

    run(scenario)


def test_an_answer_that_is_collected_for_http_1_0_is_refused_where_there_is_no_room() -> None:
    async def scenario() -> None:
        memory, sent = MemoryAccount(2 * MIB), []

        async def send(message: object) -> None:
            sent.append(message)

        async def receive() -> dict[str, object]:
            return {"type": "http.disconnect"}

        share = Share(memory)
        share.belong(memory.owner("ada"))
        scope: Scope = {"type": "http", "method": "GET", "http_version": "1.0", "headers": [], MEMORY: share}
        exchange = Exchange(scope, receive, send)  # type: ignore[arg-type]
        await exchange.start(b"text/plain")
        with pytest.raises(Exception, match=r"buffered for HTTP/1\.0"):
            for _ in range(100):
                await exchange.send(bytes(100_000))
        assert not sent and not exchange.has_started, "another answer may still be given"
        assert share.bytes == scope[HELD] > 500_000

    asyncio.run(scenario())


def test_small_bodies_are_in_what_each_connection_has() -> None:
    assert memory_of(SMALL_BYTES) <= FREE_BYTES
