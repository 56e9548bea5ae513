"""Frames reach the library one at a time; what comes of them is what it makes of all at once, however they come in."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from headwater.http import Receive, Scope, Send
from headwater.http.asgi import TRUST
from headwater.server.websocket_protocol import MESSAGE_BYTES_MAX, BoundedWebSocketProtocol, _frame_parts
from tests.every import every

from .test_websocket_protocol import UPGRADE

SIZES = (0, 1, 125, 126, 65_535, 65_536)


def frame(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


@every("size", SIZES)
@every("opcode", Opcode)
def test_the_length_of_a_frame_is_known_from_its_head(size: int, opcode: Opcode) -> None:
    data = frame(opcode, bytes(size)) if size < 126 or opcode < Opcode.CLOSE else frame(opcode, b"")
    for head in range(len(data) if size < 200 else 14):
        assert sum(_frame_parts(b"x" + data[:head], 1)) in (0, len(data))
    assert sum(_frame_parts(b"x" + data, 1)) == len(data)


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def heard(kind: type[WebSocketsSansIOProtocol], pieces: list[bytes]) -> tuple[list[Any], bytes]:
    """What the application gets of data that comes in such pieces, and what was written behind the upgrade."""
    messages: list[Any] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if (trust := scope["extensions"].get(TRUST)) is not None:
            trust(lambda: True)
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            messages.append(message)

    config = uvicorn.Config(
        application, lifespan="off", log_config=None, ws_ping_interval=None, ws_max_size=MESSAGE_BYTES_MAX
    )
    config.load()
    protocol, wire = kind(config, ServerState(), {}), Wire()
    protocol.connection_made(wire)
    protocol.data_received(UPGRADE)
    while not wire.written:
        await asyncio.sleep(0)
    wire.written.clear()
    for piece in pieces:
        if not wire.is_closed:
            protocol.data_received(piece)
        while getattr(protocol, "_rest", None) is not None:
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    await asyncio.gather(*protocol.tasks)
    if (timer := protocol.close_timer) is not None:
        timer.cancel()
    return messages, b"".join(wire.written)


PAYLOADS = st.one_of(st.binary(max_size=200), st.sampled_from([bytes(4000), bytes(70_000)]))
MESSAGES = st.one_of(
    PAYLOADS.map(lambda data: frame(Opcode.BINARY, data)),
    st.text(max_size=50).map(lambda text: frame(Opcode.TEXT, text.encode())),
    st.binary(max_size=20).map(lambda data: frame(Opcode.PING, data)),
    st.lists(st.binary(max_size=30), min_size=1, max_size=3).map(
        lambda parts: (
            frame(Opcode.BINARY, b"begin", fin=False)
            + frame(Opcode.PING, b"between")
            + b"".join(frame(Opcode.CONT, part, fin=False) for part in parts)
            + frame(Opcode.CONT, b"end")
        )
    ),
)
WRONG = st.sampled_from(
    [
        b"",
        frame(Opcode.CLOSE, b"\x03\xe8") + frame(Opcode.BINARY, b"behind"),
        frame(Opcode.CONT, b"of nothing"),
        frame(Opcode.BINARY, b"begin", fin=False) + frame(Opcode.BINARY, b"another"),
        Frame(Opcode.BINARY, b"not masked").serialize(mask=False),
        b"\xff" * 20,
        bytes([0x82, 0xFF]) + (2**40).to_bytes(8) + bytes(4),
    ]
)


@given(st.lists(MESSAGES, max_size=8), WRONG, st.lists(st.integers(0, 100_000), max_size=12))
def test_however_data_is_cut_all_is_as_the_library_alone_has_it(
    messages: list[bytes], wrong: bytes, cuts: list[int]
) -> None:
    data = b"".join(messages) + wrong
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False) if end > start]

    async def both() -> None:
        # which forgets messages that come in one piece with what is wrong behind them
        expected = await heard(WebSocketsSansIOProtocol, [*messages, wrong])
        assert await heard(BoundedWebSocketProtocol, pieces) == expected

    asyncio.run(both())


def test_of_pings_of_a_peer_that_does_not_read_only_the_last_is_answered() -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def scenario() -> None:
        config = uvicorn.Config(application, lifespan="off", log_config=None, ws_ping_interval=None)
        config.load()
        protocol, wire = BoundedWebSocketProtocol(config, ServerState(), {}), Wire()
        protocol.connection_made(wire)
        protocol.data_received(UPGRADE)
        while not wire.written:
            await asyncio.sleep(0)
        protocol.data_received(frame(Opcode.PING, b"read"))
        protocol.pause_writing()
        protocol.data_received(b"".join(frame(Opcode.PING, b"%d" % number) for number in range(10)))
        assert wire.written[1:] == [pong(b"read")], "what the peer does not read is kept"
        protocol.resume_writing()
        assert wire.written[2:] == [pong(b"9")]
        protocol.pause_writing()
        protocol.resume_writing()
        assert len(wire.written) == 3
        protocol.connection_lost(None)
        await asyncio.gather(*protocol.tasks)

    def pong(data: bytes) -> bytes:
        return Frame(Opcode.PONG, data).serialize(mask=False)

    asyncio.run(scenario())
