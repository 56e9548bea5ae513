"""A connection is in no cycle at its end: what it held goes at once, and not with a collection."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import Callable, Mapping

import pytest

from headwater.core import Event, LogSettings
from headwater.core.shared_bytes import MIB

from .test_memory import PATIENCE_S, Room, Streams, append_head, run

READ = b"POST /logs/%b/read HTTP/1.1\r\nhost: x\r\naccept: %b\r\ncontent-type: application/json\r\n\r\n"
BODY = b'{"query": "all"}'
UPGRADE = (
    b"GET /futoin/l HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PUSH = b'{"f":"futoin.evt.push:1.1:readyToReceive","p":{"component":"LIVE"},"rid":"C1"}'


def read(log: bytes, form: bytes) -> bytes:
    """A read of all events of a log."""
    head = READ % (log, form)
    return head[:-2] + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


WAYS: Mapping[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "half a head": (b"GET / HTTP/1.1\r\n", b""),
    "half a body": (append_head(1000) + b"[", b""),
    "a health check": (b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 "),
    "a read": (read(b"l", b"application/json"), b"HTTP/1.1 200 "),
    "half an answer in JSON": (read(b"large", b"application/json"), b"HTTP/1.1 200 "),
    "half an answer in MessagePack": (read(b"large", b"application/vnd.msgpack"), b"HTTP/1.1 200 "),
    "a subscription": (b"GET /logs/l/subscribe?query=all&after=0 HTTP/1.1\r\nhost: x\r\n\r\n", b"HTTP/1.1 200 "),
    "half a WebSocket message": (UPGRADE + b"\x82\xfe\xff\xff" + bytes(9), b"HTTP/1.1 101 "),
    "a push": (UPGRADE + bytes([0x82, 0x80 | len(PUSH)]) + bytes(4) + PUSH, b"HTTP/1.1 101 "),
    "no HTTP": (b"no HTTP\r\n\r\n", b"HTTP/1.1 400 "),
}
ENDS: Mapping[str, Callable[[Streams], None]] = {
    "closed": lambda peer: peer[1].close(),
    "reset": lambda peer: (
        peer[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)),
        peer[1].transport.abort(),
    )[0],
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_connection_is_freed_without_a_collection(way: str, end: str) -> None:
    request, expected = WAYS[way]

    async def scenario() -> None:
        async with Room() as room:
            room.store.open("l").append([Event("A", b"{}")])
            room.store.create("large", LogSettings(event_bytes_max=8 * MIB)).append([Event("A", bytes(8 * MIB - 1000))])
            gc.collect()
            gc.disable()
            try:
                peer = await room.says(request)
                async with asyncio.timeout(PATIENCE_S):
                    assert await peer[0].readexactly(len(expected)) == expected
                await room.becomes(lambda: bool(room.server.open_connections) or way == "no HTTP")
                known = [weakref.ref(each) for each in room.server.open_connections]
                for _ in range(20):
                    await asyncio.sleep(0)
                ENDS[end](peer)
                del peer
                await room.becomes(lambda: not any(each() for each in known))
                assert room.memory.bytes == room.memory.readers == 0
            finally:
                gc.enable()

    run(scenario)
