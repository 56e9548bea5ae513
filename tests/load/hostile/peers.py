"""Peers that hold what they can of a server, by protocol: they announce and do not end, or ask and do not read.

A peer is what it sends, on a connection of its own; nobody waits for an answer.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from headwater.amqp.protocol.frames import AMQP_HEADER, SASL_HEADER, frame
from headwater.amqp.protocol.performatives import (
    Attach,
    Begin,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
    encode_performative,
)
from headwater.amqp.protocol.sasl import SaslInit
from headwater.amqp.protocol.types import Symbol
from tests.amqp.asking import EARLIEST

from ..place import Place
from ..server import NOISE

MIB = 2**20
ANNOUNCED = 8 * MIB
"""What a peer announces, and sends but for one byte."""
STILL_S = 2.0
"""Peers have done what they can when nothing more is taken from any of them for so long."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_BODY = bytes(ANNOUNCED)
_containers = itertools.count()
_ACKNOWLEDGED = b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"
_SETTINGS, _WINDOW_UPDATE, _INITIAL_WINDOW = 4, 8, 4


class Peer(NamedTuple):
    """What one sends: pieces in turn, the later ones as soon as something was answered where it `asks` for that."""

    url: str
    pieces: tuple[bytes, ...]
    waits: bool = False
    """Whether each piece waits for an answer to the one before."""
    reads: bool = False
    """Whether it has got at what it wants when something comes after its last piece."""
    has_windows: bool = False
    """Whether the last piece is DATA of HTTP/2, which goes as its windows allow."""


Kind = Callable[[Place], Peer]


def http(
    place: Place, path: str, *, accept: str = "", body: bytes = b"", method: str = "POST", is_known: bool = True
) -> Peer:
    """A request; without a body of its own it lacks its last byte."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    lines += [f"accept: {accept}"] if accept else []
    lines += [f"authorization: {place.authorization}"] if is_known else []
    lines += [f"content-length: {len(body) or ANNOUNCED}"] if method == "POST" else []
    head = "\r\n".join([*lines, "", ""]).encode()
    if body or method == "GET":
        return Peer(place.http, (head + body,), reads=True)
    return Peer(place.http, (head, _BODY[:-1]))


def websocket(place: Place, log: str, *messages: bytes, is_known: bool = True) -> Peer:
    """A FutoIn connection; without messages one that lacks its last byte."""
    lines = [f"GET /futoin/{log} HTTP/1.1", "host: localhost", "upgrade: websocket", "connection: Upgrade"]
    lines += ["sec-websocket-version: 13", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="]
    lines += [f"authorization: {place.authorization}"] if is_known else []
    head = "\r\n".join([*lines, "", ""]).encode()
    if not messages:
        return Peer(place.http, (head, b"\x82\xff" + ANNOUNCED.to_bytes(8) + bytes(4) + _BODY[:-1]), waits=True)
    assert all(len(message) < 126 for message in messages)
    framed = (bytes((0x82, 0x80 | len(message))) + bytes(4) + message for message in messages)
    return Peer(place.http, (head, *framed), waits=True, reads=True)


def push(place: Place, log: str, component: str) -> Peer:
    """A consumer of FutoIn that takes nothing of what is pushed."""
    calls = (
        {"f": f"futoin.evt.push:1.1:{function}", "p": {"component": component}, "rid": f"C{number}"}
        for number, function in enumerate(("registerConsumer", "readyToReceive"))
    )
    return websocket(place, log, *(json.dumps(call).encode() for call in calls))


def amqp(place: Place, *performatives: object, payload: bytes = b"") -> Peer:
    """A connection that logs in, opens a session and sends the rest; the payload goes with its last performative."""
    login = SaslInit(mechanism=Symbol("PLAIN"), initial_response=f"\0{place.user}\0{place.password}".encode())
    begin = Begin(next_outgoing_id=0, incoming_window=2**31 - 1, outgoing_window=2**31 - 1)
    opening = Open(container_id=f"hostile-{next(_containers)}", max_frame_size=2**32 - 1)
    rest = [frame(0, encode_performative(each)) for each in (opening, begin, *performatives[: -1 if payload else None])]
    if payload:
        transfer = encode_performative(performatives[-1])  # type: ignore[arg-type]
        rest += [frame(0, transfer + payload[at : at + 32_768]) for at in range(0, len(payload), 32_768)]
    sasl = SASL_HEADER + frame(0, encode_performative(login), 1)
    return Peer(place.amqp, (sasl, AMQP_HEADER + b"".join(rest)), waits=True, reads=not payload)


def receiver(place: Place, log: str) -> Peer:
    """A receiver with credit for everything, which reads nothing."""
    attach = Attach(name="link", handle=0, role=True, source=Source(address=log, filter=_earliest()), target=Target())
    flow = Flow(
        incoming_window=2**31 - 1, next_outgoing_id=0, outgoing_window=2**31 - 1, next_incoming_id=0, handle=0,
        delivery_count=0, link_credit=100_000,
    )  # fmt: skip
    return amqp(place, attach, flow)


def half_frames(place: Place) -> Peer:
    """A message of many transfers that never ends."""
    attach = Attach(
        name="link", handle=0, role=False, source=Source(), target=Target(address=NOISE), initial_delivery_count=0
    )
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"1", message_format=0, more=True)
    return amqp(place, attach, transfer, payload=_BODY[:-1])


def amqp_stranger(place: Place, header: bytes, kind: int) -> Peer:
    """One frame that lacks its last byte, before any login."""
    return Peer(place.amqp, (header, struct.pack(">IBBH", ANNOUNCED, 2, kind, 0) + _BODY[8:-1]))


def flight(place: Place, *, is_known: bool) -> Peer:
    """A do_put whose first message lacks its last byte, as far as windows let it."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": "/arrow.flight.protocol.FlightService/DoPut",
        ":authority": "localhost", "content-type": "application/grpc", "te": "trailers",
    }  # fmt: skip
    if is_known:
        fields["authorization"] = place.authorization
    block = b"".join(b"\x00" + _prefixed(name) + _prefixed(value) for name, value in fields.items())
    head = PREFACE + len(block).to_bytes(3) + b"\x01\x04" + (1).to_bytes(4) + block
    return Peer(place.flight, (head, b"\x00" + ANNOUNCED.to_bytes(4) + _BODY[:-1]), has_windows=True)


def _prefixed(text: str) -> bytes:
    return (
        len(text).to_bytes(1) + text.encode() if len(text) < 127 else b"\x7f" + _varint(len(text) - 127) + text.encode()
    )


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + _varint(number // 128)


def _earliest() -> dict[object, object]:
    return {Symbol(key): value for key, value in EARLIEST.items()}


class Connection:
    """One peer that is connected. What comes is not read, but where the next piece waits for it."""

    def __init__(self, peer: Peer) -> None:
        its = urlsplit(peer.url)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(30)
        self.socket.connect((its.hostname, its.port))
        self.socket.setblocking(False)
        self.is_open = True
        self._peer = peer
        self._sending = self._pieces()
        self._left = memoryview(next(self._sending))
        self._is_waiting = self._is_last = False
        self._windows = [65_535, 65_535]
        """Of the connection and of its stream."""
        self._received = b""

    def _pieces(self) -> Iterator[bytes]:
        yield from self._peer.pieces

    @property
    def wants(self) -> tuple[bool, bool]:
        """Whether it wants to read, and to write."""
        reads = self.is_open and (self._is_waiting or (self._peer.has_windows and self._is_last))
        return reads, self.is_open and not self._is_waiting and bool(self._left)

    @property
    def has_said_all(self) -> bool:
        """Whether all was sent, on a connection that the server keeps."""
        return self.is_open and not self._left

    @property
    def is_there(self) -> bool:
        """Whether it has what it wants, or never will: it is not worth waiting for it."""
        if not self.is_open or not self._peer.reads:
            return True
        return not self._left and bool(select.select([self.socket], [], [], 0)[0])

    def read(self) -> None:
        """Something came."""
        try:
            came = self.socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            came = b""
        if not came:
            self.is_open = False
        elif self._peer.has_windows:
            self._take_windows(came)
        else:
            self._is_waiting = False
            self._next()

    def write(self) -> int:
        """Send what goes; answers how many bytes."""
        try:
            sent = self._send_data() if self._peer.has_windows and self._is_last else self.socket.send(self._left)
        except BlockingIOError:
            return 0
        except OSError:
            self.is_open = False
            return 0
        self._left = self._left[sent:]
        if not self._left:
            self._is_waiting = self._peer.waits
            if not self._is_waiting:
                self._next()
        return sent

    def close(self) -> None:
        """End it."""
        self.socket.close()

    def _next(self) -> None:
        following = next(self._sending, None)
        self._left = memoryview(following or b"")
        self._is_last = following is not None and self._peer.has_windows

    def _send_data(self) -> int:
        size = min(len(self._left), *self._windows, 16_384)
        if size:
            self.socket.setblocking(True)
            self.socket.sendall(size.to_bytes(3) + b"\x00\x00" + (1).to_bytes(4) + self._left[:size])
            self.socket.setblocking(False)
            self._windows = [window - size for window in self._windows]
        return size

    def _take_windows(self, came: bytes) -> None:
        """Frames of HTTP/2 (RFC 9113): those that say how much may be sent."""
        self._received += came
        while len(self._received) >= 9 and len(self._received) >= 9 + (size := int.from_bytes(self._received[:3])):
            kind, flags, stream = self._received[3], self._received[4], int.from_bytes(self._received[5:9])
            body, self._received = self._received[9 : 9 + size], self._received[9 + size :]
            if kind == _WINDOW_UPDATE:
                self._windows[stream] += int.from_bytes(body)
            elif kind == _SETTINGS and not flags:
                for id, value in struct.iter_unpack(">HI", body):
                    self._windows[1] += value - 65_535 if id == _INITIAL_WINDOW else 0
                self.socket.send(_ACKNOWLEDGED)


class Crowd:
    """Many peers at once; a context manager that closes them."""

    def __init__(self, peers: list[Peer]) -> None:
        self.connections: list[Connection] = []
        self.refused = 0
        """Peers that could not connect."""
        self.sent = 0
        for peer in peers:
            try:
                self.connections.append(Connection(peer))
            except OSError:
                self.refused += 1

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for each in self.connections:
            each.close()

    @property
    def open(self) -> int:
        """Connections that the server has not ended."""
        return sum(each.is_open for each in self.connections)

    def push(self, seconds: float) -> None:
        """Send all that is taken, until nothing more is and who reads was answered, or for so long."""
        until = time.monotonic() + seconds
        still_since = time.monotonic()
        while (now := time.monotonic()) < until:
            if now - still_since >= STILL_S and all(each.is_there for each in self.connections):
                break
            reading = {each.socket: each for each in self.connections if each.wants[0]}
            writing = {each.socket: each for each in self.connections if each.wants[1]}
            if not reading and not writing:
                time.sleep(0.1)
                continue
            poller = select.poll()
            by_fd = {its.fileno(): each for its, each in (*reading.items(), *writing.items())}
            for fd, each in by_fd.items():
                poller.register(fd, select.POLLIN * each.wants[0] | select.POLLOUT * each.wants[1])
            moved = 0
            for fd, events in poller.poll(100):
                each = by_fd[fd]
                if events & select.POLLIN or events & (select.POLLHUP | select.POLLERR):
                    each.read()
                if events & select.POLLOUT and each.is_open:
                    moved += each.write()
            self.sent += moved
            if moved:
                still_since = time.monotonic()
            else:
                with suppress(OSError):
                    time.sleep(0.01)
