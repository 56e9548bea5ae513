"""A raw FutoIn peer over WebSocket: frames and JSON and nothing else, so that the server is what is measured.

Run as `python -m benchmarks.futoin.peer VERB URL ARGUMENTS...`; prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import struct
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvloop

SECURITY = "alice:alices-secret"
DATA = {"id": 7, "sum": "10.50", "note": "x" * 100}
"""About 150 bytes as JSON."""
ADD, PUSH = "futoin.evt.gen:1.1:addEvent", "futoin.evt.push:1.1"
FILL_AT_ONCE = 64
PATIENCE_S = 60.0
LATE_S = 10.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._is_open = False
        self._calls = 0
        self.replies: dict[str, asyncio.Future[Any] | Adder] = {}
        self.on_events: Callable[[int, list[Any]], None] = lambda seq, events: None
        self.is_gone = False

    @staticmethod
    async def connect(url: str) -> Peer:
        """An open connection."""
        address = urlsplit(url)
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(Peer, address.hostname, address.port)
        peer.opened = loop.create_future()  # type: ignore[attr-defined]
        peer._transport.write(
            b"GET %b HTTP/1.1\r\nhost: %b\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            % (address.path.encode(), address.netloc.encode())
        )
        await asyncio.wait_for(peer.opened, PATIENCE_S)  # type: ignore[attr-defined]
        return peer

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.is_gone = True
        for reply in self.replies.values():
            if not reply.done():
                reply.set_exception(ConnectionResetError("the server has closed the connection"))

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._received += data
        if not self._is_open:
            head, found, rest = bytes(self._received).partition(b"\r\n\r\n")
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self._received = bytearray(rest)
            self._is_open = True
            self.opened.set_result(None)  # type: ignore[attr-defined]
        at, received = 0, self._received
        while (frame := _frame_at(received, at)) is not None:
            kind, start, at = frame
            if kind == 0x9:
                self._transport.write(
                    b"\x8a\x80\x00\x00\x00\x00" if start == at else _frame(0x8A, bytes(received[start:at]))
                )
            elif kind in (0x1, 0x2):
                self._take(bytes(received[start:at]))
        del received[:at]

    def _take(self, body: bytes) -> None:
        message = _decode(body)
        if "f" in message:
            self.on_events(message["p"]["seq"], message["p"]["events"])
            self.send({"r": True, "rid": message["rid"]})
        elif (reply := self.replies.pop(message["rid"], None)) is not None and not reply.done():
            reply.set_result(message)

    def send(self, message: Any) -> None:
        """Send a message."""
        self.send_encoded(_encode(message))

    def send_encoded(self, body: bytes) -> None:
        """Send a message that is encoded."""
        self._transport.write(_frame(0x82, body))

    def call(self, f: str, p: Any) -> asyncio.Future[Any]:
        """Call a function; the future is its whole reply."""
        self._calls += 1
        rid = f"C{self._calls}"
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.replies[rid] = reply
        self.send({"f": f, "p": p, "rid": rid, "sec": SECURITY})
        return reply

    async def result(self, f: str, p: Any) -> Any:
        """The result of a call; an error fails."""
        reply = await self.call(f, p)
        assert "r" in reply, reply
        return reply["r"]


def _frame(head: int, body: bytes) -> bytes:
    """Masked with zeros, which leaves the bytes as they are."""
    size = len(body)
    if size < 126:
        return bytes([head, 0x80 | size]) + bytes(4) + body
    return struct.pack(">BBH" if size < 65536 else ">BBQ", head, 0xFE if size < 65536 else 0xFF, size) + bytes(4) + body


def _frame_at(received: bytearray, at: int) -> tuple[int, int, int] | None:
    """Kind, begin and end of the payload of the frame that begins there, if it is whole."""
    if len(received) - at < 2:
        return None
    size, start = received[at + 1] & 0x7F, at + 2
    if size >= 126:
        width = 2 if size == 126 else 8
        if len(received) < start + width:
            return None
        size = int.from_bytes(received[start : start + width], "big")
        start += width
    return (received[at] & 0x0F, start, start + size) if len(received) >= start + size else None


class Adder:
    """A client that adds one event after the other until some time, each with the reply to the one before.

    What does not change in a message is encoded once: the clients share the machine with the server.
    """

    def __init__(self, peer: Peer, event: Any, until: float) -> None:
        self._peer, self._until = peer, until
        whole = _encode({"f": ADD, "p": event, "rid": "C?", "sec": SECURITY})
        self._before, _, self._after = whole.rpartition(b"?")
        self._count = 0
        self.latencies: list[float] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(time.perf_counter())

    def done(self) -> bool:
        """As a future that waits for a reply."""
        return self.ended.done()

    def set_result(self, reply: Any) -> None:
        """The reply is there."""
        if "r" not in reply:
            self.ended.set_exception(AssertionError(reply))
            return
        now = time.perf_counter()
        self.latencies.append(now - self._begin)
        if now < self._until:
            self._add(now)
        else:
            self.ended.set_result(None)

    def set_exception(self, error: Exception) -> None:
        """There will be none."""
        self.ended.set_exception(error)

    def _add(self, now: float) -> None:
        self._begin = now
        self._count += 1
        self._peer.replies[f"C{self._count}"] = self
        self._peer.send_encoded(b"%b%d%b" % (self._before, self._count, self._after))


async def add(url: str, clients: int, seconds: float) -> dict[str, float]:
    """So many clients add, one event after the other, for so long."""
    peers = [await Peer.connect(url) for _ in range(clients)]
    event = {"type": "ORDER_NEW", "data": DATA}
    await asyncio.gather(*(peer.result(ADD, event) for peer in peers))
    started = time.perf_counter()
    adders = [Adder(peer, event, started + seconds) for peer in peers]
    await asyncio.gather(*(adder.ended for adder in adders))
    return _summary([each for adder in adders for each in adder.latencies], time.perf_counter() - started)


async def fill(url: str, events: int) -> dict[str, float]:
    """Add so many events."""
    peer = await Peer.connect(url)
    event = {"type": "ORDER_NEW", "data": DATA}
    for _ in range(events // FILL_AT_ONCE):
        await asyncio.gather(*(peer.result(ADD, event) for _ in range(FILL_AT_ONCE)))
    return {"events": events // FILL_AT_ONCE * FILL_AT_ONCE}


async def poll(url: str, component: str, events: int, interface: str) -> dict[str, float]:
    """A reliable consumer polls until it has so many events."""
    peer = await Peer.connect(url)
    await peer.result(f"{PUSH}:registerConsumer", {"component": component})
    received, last_id = 0, None
    started = time.perf_counter()
    while received < events:
        page = await peer.result(f"{interface}:pollEvents", {"component": component, "last_id": last_id})
        assert page, "the log has ended too early"
        received += len(page)
        last_id = page[-1]["id"]
    return {"per_s": received / (time.perf_counter() - started)}


async def push(url: str, component: str, events: int) -> dict[str, float]:
    """A reliable consumer with a backlog of so many events gets them pushed."""
    peer = await Peer.connect(url)
    await peer.result(f"{PUSH}:registerConsumer", {"component": component})
    done = asyncio.get_running_loop().create_future()
    received = 0

    def take(seq: int, page: list[Any]) -> None:
        nonlocal received
        received += len(page)
        if received >= events and not done.done():
            done.set_result(None)

    peer.on_events = take
    started = time.perf_counter()
    await peer.result(f"{PUSH}:readyToReceive", {"component": component})
    await asyncio.wait_for(done, PATIENCE_S)
    return {"per_s": received / (time.perf_counter() - started)}


async def latency(url: str, component: str, per_s: float, seconds: float) -> dict[str, float]:
    """From the begin of an addition to its push, at so many events per second."""
    adder, consumer = await Peer.connect(url), await Peer.connect(url)
    sent: dict[str, float] = {}
    latencies: list[float] = []

    def take(seq: int, page: list[Any]) -> None:
        now = time.perf_counter()
        names = [event["data"].get("n") for event in page if isinstance(event["data"], dict)]
        latencies.extend(now - sent[name] for name in names if name in sent)  # others are of earlier rounds

    consumer.on_events = take
    if component != "LIVE":
        await consumer.result(f"{PUSH}:registerConsumer", {"component": component})
    await consumer.result(f"{PUSH}:readyToReceive", {"component": component})
    await asyncio.sleep(2)
    count = int(per_s * seconds)
    for number in range(count):
        name = f"{component}-{time.time_ns()}-{number}"
        sent[name] = time.perf_counter()
        await adder.result(ADD, {"type": "ORDER_NEW", "data": {"n": name}})
        await asyncio.sleep(1 / per_s)
    until = time.perf_counter() + LATE_S
    while len(latencies) < count and time.perf_counter() < until:
        await asyncio.sleep(0.05)
    return {**_summary(latencies, seconds), "received": len(latencies), "added": count}


def _summary(latencies: list[float], seconds: float) -> dict[str, float]:
    ms = sorted(1000 * each for each in latencies)
    return {
        "count": len(ms),
        "per_s": len(ms) / seconds,
        "p50_ms": statistics.median(ms),
        "p95_ms": ms[int(0.95 * (len(ms) - 1))],
        "p99_ms": ms[int(0.99 * (len(ms) - 1))],
        "max_ms": ms[-1],
    }


def main() -> None:
    """Do what the command line says."""
    verb, url, *arguments = sys.argv[1:]
    numbers = [json.loads(each) if each[0].isdigit() else each for each in arguments]
    scenario = {"add": add, "fill": fill, "poll": poll, "push": push, "latency": latency}[verb]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(scenario(url, *numbers))))


if __name__ == "__main__":
    main()
