"""A WebSocket without a network: what its peer sends is given to it, and what it writes is kept."""

from __future__ import annotations

import asyncio
from typing import Any

from websockets.frames import Close, Frame, Opcode

from headwater.http import Application, Message, Receive, Scope, Send
from headwater.server.httpd.admission import Admission
from headwater.server.httpd.heads import Field
from headwater.server.httpd.peer import scope_of
from headwater.server.httpd.server_state import ServerState
from headwater.server.httpd.websocket import WebSocketProtocol

TARGET = b"/futoin/orders"
FIELDS: list[Field] = [
    (b"host", b"x"),
    (b"upgrade", b"websocket"),
    (b"connection", b"Upgrade"),
    (b"sec-websocket-version", b"13"),
    (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
]


def frame(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    """As a client sends it."""
    return Frame(opcode, data, fin).serialize(mask=True)


def sent(opcode: Opcode, data: bytes) -> bytes:
    """As a server sends it."""
    return Frame(opcode, data).serialize(mask=False)


def closing(code: int, reason: str = "") -> bytes:
    """The close frame of a server."""
    return sent(Opcode.CLOSE, Close(code, reason).serialize())


class Wire(asyncio.Transport):
    """Keeps what is written, and how it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_reading = True
        self.is_closed = self.is_aborted = False
        self.protocol: asyncio.BaseProtocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.written))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class Scripted:
    """An application that does what a test makes it do, until it is to `end`."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self._end = asyncio.Event()
        self._error: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.begun.set()
        try:
            await self._end.wait()
            if self._error is not None:
                raise self._error
        finally:
            self.ended.set()

    async def send(self, kind: str, **more: Any) -> None:
        await self._send({"type": f"websocket.{kind}", **more})

    async def received(self) -> Message:
        async with asyncio.timeout(10):
            return await self.receive()

    async def end(self, error: Exception | None = None) -> None:
        self._error = error
        self._end.set()
        await self.ended.wait()
        await asyncio.sleep(0)


class Peer:
    """The connection of one, from the request on."""

    def __init__(self, application: Application, *more: Field) -> None:
        self.state, self.wire = ServerState(application, Admission(1)), Wire()
        self.protocol = WebSocketProtocol(self.state)
        self.wire.set_protocol(self.protocol)
        self.protocol.share.belong(self.state.memory.owner("known"))
        self.protocol.connection_made(self.wire)
        self.protocol.begin(b"GET", TARGET, [*FIELDS, *more], scope_of(self.wire))

    @property
    def written(self) -> bytes:
        """All that it was sent so far."""
        return b"".join(self.wire.written)

    def take(self) -> bytes:
        """What it was sent since this was asked last."""
        written = self.written
        self.wire.written.clear()
        return written

    async def says(self, *frames: bytes) -> None:
        """Give it all that in one piece, and wait until it is looked at, in as many slices as that takes."""
        self.protocol.data_received(b"".join(frames))
        await self.is_read()

    async def is_read(self) -> None:
        """Wait until all is looked at that came so far."""
        while self.protocol._rest is not None:
            await asyncio.sleep(0)

    async def leave(self) -> None:
        self.wire.protocol.connection_lost(None)
        assert await self.state.emptied(10)


async def opened(*more: Field, accepts: dict[str, Any] | None = None) -> tuple[Scripted, Peer, bytes]:
    """An accepted WebSocket, and the head of the answer."""
    application = Scripted()
    peer = Peer(application, *more)
    await application.begun.wait()
    assert await application.received() == {"type": "websocket.connect"}
    await application.send("accept", **(accepts or {}))
    return application, peer, peer.take()
