"""Frames reach the library one at a time; what comes of them is what it makes of all at once, however they come in."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from headwater.http import Receive, Scope, Send
from headwater.server.httpd.websocket import MESSAGE_BYTES_MAX
from headwater.server.httpd.websocket_frames import frame_parts
from tests.every import every

from ..websocket_wire import Peer, frame, opened, sent

SIZES = (0, 1, 125, 126, 65_535, 65_536)


@every("size", SIZES)
@every("opcode", Opcode)
def test_the_length_of_a_frame_is_known_from_its_head(size: int, opcode: Opcode) -> None:
    data = frame(opcode, bytes(size)) if size < 126 or opcode < Opcode.CLOSE else frame(opcode, b"")
    for head in range(len(data) if size < 200 else 14):
        assert sum(frame_parts(b"x" + data[:head], 1)) in (0, len(data))
    assert sum(frame_parts(b"x" + data, 1)) == len(data)


def by_the_library_alone(data: bytes) -> tuple[list[Any], bytes]:
    """The messages in that data, and what is written because of it."""
    library = ServerProtocol(state=State.OPEN, max_size=MESSAGE_BYTES_MAX)
    library.receive_data(data)
    messages: list[Any] = []
    parts, kind = b"", "bytes"
    for event in library.events_received():
        assert isinstance(event, Frame)
        if event.opcode in (Opcode.TEXT, Opcode.BINARY):
            parts, kind = bytes(event.data), "text" if event.opcode is Opcode.TEXT else "bytes"
        elif event.opcode is Opcode.CONT:
            parts += bytes(event.data)
        else:
            continue
        if event.fin:
            messages.append({"type": "websocket.receive", kind: parts.decode() if kind == "text" else parts})
    return messages, b"".join(library.data_to_send())


async def heard(pieces: list[bytes]) -> tuple[list[Any], bytes]:
    """What the application gets of data that comes in such pieces, and what was written behind the upgrade."""
    messages: list[Any] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            messages.append(message)

    peer = Peer(application)
    while not peer.written:
        await asyncio.sleep(0)
    peer.take()
    for piece in pieces:
        if not peer.wire.is_closed:
            await peer.says(piece)
    await peer.leave()
    return messages, peer.take()


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
    assert asyncio.run(heard(pieces)) == by_the_library_alone(data)


def test_of_pings_of_a_peer_that_does_not_read_only_the_last_is_answered() -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        await peer.says(frame(Opcode.PING, b"read"))
        peer.protocol.pause_writing()
        await peer.says(*(frame(Opcode.PING, b"%d" % number) for number in range(10)))
        assert peer.take() == sent(Opcode.PONG, b"read"), "what the peer does not read is kept"
        peer.protocol.resume_writing()
        assert peer.take() == sent(Opcode.PONG, b"9")
        peer.protocol.pause_writing()
        peer.protocol.resume_writing()
        assert peer.take() == b""
        await application.end()
        await peer.leave()

    asyncio.run(scenario())
