"""A replica in front of a primary, on one event loop: the primary is a server of ours, or a script on a socket."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from headwater.homes.home_secret import HomeSecret, ensure_secret
from headwater.http import Application, Receive, Scope, Send
from headwater.server.config.settings import Http
from headwater.server.front.forwarding.forwarder import Forwarder
from headwater.server.front.forwarding.sender import Senders
from headwater.server.front.gate import Gate
from headwater.server.front.meter import RequestMeter
from headwater.server.httpd.server import HttpServer
from headwater.storage.memory import MemoryState

WAIT_S = 30.0
HOST = b"host: localhost\r\n"


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 204."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Secret:
    """A secret, and who knows it."""

    def __init__(self) -> None:
        self.state = MemoryState()
        ensure_secret(self.state)
        self.home = HomeSecret(self.state)

    @property
    def value(self) -> bytes:
        assert self.home.value is not None
        return self.home.value


class Replica:
    """A server that forwards all but `GET /read`."""

    def __init__(self, secret: Secret, primary: Callable[[], str | None]) -> None:
        self.forwarder = Forwarder(primary, secret.home)
        self.gate = Gate(nothing, set(), RequestMeter())
        self.gate.primary, self.gate.senders = primary, Senders(secret.home)
        self.gate.read(nothing, lambda scope: scope["path"] == "/read", lambda log: None, (), self.forwarder)
        self.address: tuple[str, int] = ("", 0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.address[1]}"

    async def ask(self, head: bytes, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        """Status, fields and body of the answer to a request on a connection of its own; `head` lacks the host."""
        first, _, fields = head.partition(b"\r\n")
        data = first + b"\r\n" + HOST + b"connection: close\r\n" + fields + b"\r\n" + body
        return parsed(await exchanged(self.address, data))


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, fields by name, and the body as it is on the wire."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split(" ")[1]), fields, body


def problem(body: bytes) -> str:
    """The code of a problem, or its title."""
    document = json.loads(body)
    return str(document["type"].removeprefix("urn:headwater:problem:"))


async def exchanged(address: tuple[str, int], data: bytes) -> bytes:
    """All that comes back, until the end of the connection."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        async with asyncio.timeout(WAIT_S):
            return await reader.read()
    finally:
        writer.close()


@asynccontextmanager
async def serving(
    application: Application, http: Http | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, int]]:
    """An HTTP server of ours."""
    bound = socket.create_server(("127.0.0.1", 0))
    address: tuple[str, int] = bound.getsockname()
    server = HttpServer(application, [bound], http or Http(), tls)
    await server.start()
    try:
        yield address
    finally:
        await server.stop()


@asynccontextmanager
async def forwarding(
    secret: Secret, primary: Callable[[], str | None], http: Http | None = None
) -> AsyncIterator[Replica]:
    """A replica."""
    replica = Replica(secret, primary)
    async with serving(replica.gate, http) as replica.address:
        try:
            yield replica
        finally:
            await replica.forwarder.close()


@asynccontextmanager
async def pair(
    application: Application, http: Http | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Replica, str]]:
    """A replica, and the URL of its primary, which runs that application. Both have the same settings; `tls` is of the
    primary.
    """
    secret = Secret()
    gate = Gate(nothing, set(), RequestMeter())
    gate.senders = Senders(secret.home)
    gate.open(application)
    async with serving(gate, http, tls) as address:
        url = f"{'http' if tls is None else 'https'}://127.0.0.1:{address[1]}"
        async with forwarding(secret, lambda: url, http) as replica:
            yield replica, url


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Script:
    """What the connections to a primary get, in order of their number; the last one also for all that follow."""

    def __init__(self, *talks: Talk) -> None:
        self.talks = talks
        self.seen: list[bytes] = []
        """The heads of its requests."""
        self.connections = 0
        self.url = ""
        self._running: set[asyncio.Task[Any]] = set()

    async def head(self, reader: asyncio.StreamReader) -> bytes:
        """The next request's head, in lower case."""
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        self.seen.append(head)
        return head

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = self.talks[min(self.connections, len(self.talks) - 1)]
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await talk(reader, writer)
        finally:
            writer.close()
            self._running.discard(task)

    async def end(self) -> None:
        """End all connections."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[Replica]:
    """A replica whose primary follows the script."""
    server = await asyncio.start_server(script._talk, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with forwarding(Secret(), lambda: script.url) as replica:
            yield replica
    finally:
        server.close()
        await script.end()
        await asyncio.sleep(0)  # the loop closes what was closed


def answering(script: Callable[[], Script], answer: bytes, times: int = 1_000) -> Talk:
    """Gives the same answer to so many requests without a body, and then hangs up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            await script().head(reader)
            writer.write(answer)

    return talk


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def run(scenario: Callable[[], Awaitable[Any]]) -> None:
    """Run it on a loop of its own, for a bounded time."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await scenario()

    asyncio.run(bounded())
