"""Peers that hold what they can of a server, by protocol: they announce and do not end, or ask and do not read.

A peer is what it sends, on a connection of its own; nobody waits for an answer.
"""

from __future__ import annotations

import itertools
import select
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from headwater.amqp.protocol.frames import AMQP_HEADER, SASL_HEADER, frame
from headwater.amqp.protocol.performatives import Attach, Begin, Flow, Open, Source, Target, Transfer
from headwater.amqp.protocol.performatives import encode_performative as encoded
from headwater.amqp.protocol.sasl import SaslInit
from headwater.amqp.protocol.types import Symbol
from tests.amqp.asking import EARLIEST

from ..place import Place, push_calls
from ..server import NOISE

MIB = 2**20
ADDRESS = "127.0.0.2"
"""Where hostile peers come from: neighbours have another address."""
ANNOUNCED = 8 * MIB
"""What a peer announces, and sends but for one byte."""
STILL_S = 2.0
"""Peers have done what they can when nothing more is taken from any for so long."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
JSON = "content-type: application/json"
UPGRADE = (
    *("upgrade: websocket", "connection: Upgrade", "sec-websocket-version: 13"),
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)
_BODY = bytes(ANNOUNCED - 1)
_containers = itertools.count()
_EARLIEST: dict[object, object] = {Symbol(key): value for key, value in EARLIEST.items()}
_WINDOWS: dict[str, Any] = {"next_outgoing_id": 0, "incoming_window": 2**31 - 1, "outgoing_window": 2**31 - 1}
SENT_BYTES = 16 * 1024
_ACKNOWLEDGED = b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"
_SETTINGS, _WINDOW_UPDATE, _INITIAL_WINDOW = 4, 8, 4


class Peer(NamedTuple):
    """What one sends: pieces in turn, the later ones as soon as something was answered where it `waits`."""

    url: str
    pieces: tuple[bytes, ...]
    waits: bool = False
    """Whether each piece waits for an answer to the one before."""
    reads: bool = False
    """Whether it has got at what it wants when something comes after its last piece."""
    has_windows: bool = False
    """Whether the last piece is DATA of HTTP/2, which goes as its windows allow."""


def http(
    place: Place, path: str, *, accept: str = "", body: bytes = b"", method: str = "POST", is_known: bool = True
) -> Peer:
    """A request; without a body of its own it lacks its last byte."""
    more = [f"accept: {accept}"] if accept else []
    more += [f"content-length: {len(body) or ANNOUNCED}"] if method == "POST" else []
    start = place.head(f"{method} {path}", JSON, *more, is_known=is_known)
    if body or method == "GET":
        return Peer(place.http, (start + body,), reads=True)
    return Peer(place.http, (start, _BODY))


def websocket(place: Place, log: str, *messages: bytes, is_known: bool = True) -> Peer:
    """A FutoIn connection; without messages one that lacks its last byte."""
    start = place.head(f"GET /futoin/{log}", *UPGRADE, is_known=is_known)
    if not messages:
        return Peer(place.http, (start, b"\x82\xff" + ANNOUNCED.to_bytes(8) + bytes(4) + _BODY), waits=True)
    assert all(len(message) < 126 for message in messages)
    framed = (bytes((0x82, 0x80 | len(message))) + bytes(4) + message for message in messages)
    return Peer(place.http, (start, *framed), waits=True, reads=True)


def push(place: Place, log: str, component: str) -> Peer:
    """A consumer of FutoIn that takes nothing of what is pushed."""
    return websocket(place, log, *push_calls(component))


def amqp(place: Place, *performatives: object, payload: bytes = b"") -> Peer:
    """A connection that logs in, opens a session and sends the rest; the payload goes with its last performative."""
    login = SaslInit(mechanism=Symbol("PLAIN"), initial_response=f"\0{place.user}\0{place.password}".encode())
    begin = Begin(**_WINDOWS)
    opening = Open(container_id=f"hostile-{next(_containers)}", max_frame_size=2**32 - 1)
    rest = [frame(0, encoded(each)) for each in (opening, begin, *performatives[: -1 if payload else None])]
    if payload:
        transfer = encoded(performatives[-1])  # type: ignore[arg-type]
        rest += [frame(0, transfer + payload[at : at + 32_768]) for at in range(0, len(payload), 32_768)]
    sasl = SASL_HEADER + frame(0, encoded(login), 1)
    return Peer(place.amqp, (sasl, AMQP_HEADER + b"".join(rest)), waits=True, reads=not payload)


def receiver(place: Place, log: str) -> Peer:
    """A receiver with credit for everything, which reads nothing."""
    attach = Attach(name="link", handle=0, role=True, source=Source(address=log, filter=_EARLIEST), target=Target())
    credit: dict[str, Any] = {"handle": 0, "delivery_count": 0, "link_credit": 100_000}
    return amqp(place, attach, Flow(**_WINDOWS, next_incoming_id=0, **credit))


def half_frames(place: Place) -> Peer:
    """A message of many transfers that never ends."""
    ends: dict[str, Any] = {"source": Source(), "target": Target(address=NOISE)}
    attach = Attach(name="link", handle=0, role=False, initial_delivery_count=0, **ends)
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"1", message_format=0, more=True)
    return amqp(place, attach, transfer, payload=_BODY)


def amqp_stranger(place: Place, header: bytes, kind: int) -> Peer:
    """One frame that lacks its last byte, before any login."""
    return Peer(place.amqp, (header, struct.pack(">IBBH", ANNOUNCED, 2, kind, 0) + _BODY[8:]))


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
    return Peer(place.flight, (head, b"\x00" + ANNOUNCED.to_bytes(4) + _BODY), has_windows=True)


def _prefixed(text: str) -> bytes:
    return (len(text).to_bytes(1) if len(text) < 127 else b"\x7f" + _varint(len(text) - 127)) + text.encode()


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + _varint(number // 128)


class Connection:
    """One peer that is connected, on a thread of its own. What comes is not read, but where a piece waits for it."""

    def __init__(self, peer: Peer) -> None:
        its = urlsplit(peer.url)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.bind((ADDRESS, 0))
        self.socket.settimeout(30)
        self.socket.connect((its.hostname, its.port))
        self.socket.settimeout(None)
        self._peer = peer
        self.sent = 0
        """Bytes that were taken from it."""
        self.is_open, self.has_said_all = True, False
        threading.Thread(target=self._talk, daemon=True).start()

    @property
    def is_there(self) -> bool:
        """Whether it has what it wants, or never will: it is not worth waiting for it."""
        if not self.is_open or not self._peer.reads:
            return True
        return self.has_said_all and bool(select.select([self.socket], [], [], 0)[0])

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # its thread may wait there
        self.socket.close()

    def _talk(self) -> None:
        first, *others = self._peer.pieces
        try:
            self._send(first)
            for piece in others:
                if self._peer.waits:
                    self._receive()
                (self._send_data if self._peer.has_windows else self._send)(piece)
            self.has_said_all = True
            if self._peer.waits:
                self._receive()
        except OSError:
            self.is_open = self.has_said_all = False

    def _send(self, piece: bytes) -> None:
        for at in range(0, len(piece), SENT_BYTES):
            part = memoryview(piece)[at : at + SENT_BYTES]
            self.socket.sendall(part)
            self.sent += len(part)

    def _receive(self) -> bytes:
        if not (came := self.socket.recv(4096)):
            raise ConnectionError
        return came

    def _send_data(self, piece: bytes) -> None:
        """As DATA of HTTP/2 (RFC 9113), as far as the windows of the connection and of its stream let it."""
        windows, received, at = [65_535, 65_535], b"", 0
        while at < len(piece):
            if size := min(len(piece) - at, *windows, 16_384):
                self._send(size.to_bytes(3) + b"\x00\x00" + (1).to_bytes(4) + piece[at : at + size])
                at, windows = at + size, [window - size for window in windows]
                continue
            received += self._receive()
            while len(received) >= 9 and len(received) >= (end := 9 + int.from_bytes(received[:3])):
                kind, flags, stream = received[3], received[4], int.from_bytes(received[5:9])
                body, received = received[9:end], received[end:]
                if kind == _WINDOW_UPDATE:
                    windows[stream] += int.from_bytes(body)
                elif kind == _SETTINGS and not flags:
                    changes = dict(struct.iter_unpack(">HI", body))
                    windows[1] += changes.get(_INITIAL_WINDOW, 65_535) - 65_535
                    self.socket.sendall(_ACKNOWLEDGED)


class Crowd:
    """Many peers at once; a context manager that closes them."""

    def __init__(self, peers: list[Peer]) -> None:
        self.connections: list[Connection] = []
        for peer in peers:
            with suppress(OSError):  # it is refused
                self.connections.append(Connection(peer))

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for each in self.connections:
            each.close()

    @property
    def open(self) -> int:
        """Connections that the server has not ended."""
        return sum(each.is_open for each in self.connections)

    @property
    def sent(self) -> int:
        """Bytes that were taken from all."""
        return sum(each.sent for each in self.connections)

    def push(self, seconds: float) -> None:
        """Wait until nothing more is taken from any and who reads was answered, or for so long."""
        sent, since = 0, time.monotonic()
        until = since + seconds
        while (now := time.monotonic()) < until:
            if (newest := self.sent) != sent:
                sent, since = newest, now
            elif now - since >= STILL_S and all(each.is_there for each in self.connections):
                return
            time.sleep(0.05)
