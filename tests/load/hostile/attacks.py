"""What a hostile client of each protocol does, all at once, until it is killed: flood, stall, garbage, half-open, huge.

    python -m tests.load.hostile.attacks PROTOCOL SCALE PLACE

It is a process and a user of its own, and dies abruptly. It says so (a line on stdout) when it has tried all that it
does, and something of it was taken; and how often it did what (JSON) when its stdin ends.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as flight

from headwater.amqp.protocol.frames import AMQP_HEADER, SASL_HEADER, frame
from headwater.amqp.protocol.message import DATA, Message, Properties, encode_message
from headwater.amqp.protocol.performatives import Source, Target
from tests import costly_bodies as bodies
from tests.amqp.asking import EARLIEST, sql

from ..place import LOG, Place, ask, call, push_calls
from ..server import NOISE
from .peers import ADDRESS, JSON, PREFACE, UPGRADE

AT_IT = b"attacking\n"
"""What it says when it has begun."""
BEGINS_WITHIN_S = 60.0
APPEND, READ, CNE = f"/logs/{NOISE}/append", f"/logs/{NOISE}/read", "/ocloudNotifications/v1"
done: Counter[str] = Counter()
_kept: list[Any] = []


class Hostile:
    """One client, and what its acts share; `scale` says how much of everything at once."""

    def __init__(self, place: Place, scale: int) -> None:
        self.place, self.scale, self.head = place, scale, place.head
        self.chance = random.Random(os.environ.get("ATTACK_SEED", "0"))

    def connected(self, protocol: str) -> socket.socket:
        its = urlsplit(getattr(self.place, protocol))
        found = socket.create_connection((its.hostname, its.port), 10)
        found.settimeout(10)
        return found

    def keep(self, what: Any, limit: int) -> None:
        """Hold it open, with so many others at most."""
        _kept.append(what)
        if len(_kept) > limit:
            _kept.pop(self.chance.randrange(len(_kept)))

    def garbage(self, protocol: str, *openings: bytes) -> None:
        """Random bytes after a good beginning."""
        with self.connected(protocol) as peer:
            peer.sendall(self.chance.choice([b"", *openings]) + self.chance.randbytes(self.chance.randrange(1, 5000)))
            peer.settimeout(0.2)
            peer.recv(1000)

    def leave(self, protocol: str, sent: bytes, limit: int) -> None:
        """Send that, read nothing, and hold it open, with so many others at most, times the scale."""
        peer = self.connected(protocol)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(sent)
        self.keep(peer, limit * self.scale)

    def send(self, sent: bytes) -> None:
        """Send that over HTTP, to its last byte, whatever is answered."""
        with self.connected("http") as peer:
            peer.sendall(sent)
            peer.recv(1000)

    def request(self, path: str, body: bytes) -> bytes:
        """A whole POST."""
        return self.head(f"POST {path}", JSON, f"content-length: {len(body)}") + body

    def post(self, path: str, body: bytes) -> None:
        """Send one."""
        self.send(self.request(path, body))

    def amqp(self) -> Any:
        return self.place.amqp_client(timeout_s=10)

    def receive(self, limit: int, *receivers: tuple[str, dict[str, Any]]) -> None:
        """Receivers of these addresses on one connection, of which so many are kept; nothing is read."""
        client = self.amqp()
        for address, options in receivers:
            client.receiver(address, **options)
        client.flush()
        client.pump(0.01)
        self.keep(client, limit)

    def websocket(self, limit: int, messages: Iterable[bytes]) -> None:
        """Send these over a WebSocket, of which so many are kept, and read no reply."""
        connection: Any = self.place.websocket(NOISE, close_timeout=0.1, max_queue=1)
        self.keep(connection, limit)
        for message in messages:
            connection.send(message)

    def flight(self) -> tuple[Any, Any]:
        """A client of Arrow Flight, and the options of its calls."""
        headers = [(b"authorization", self.place.authorization.encode())]
        return flight.FlightClient(self.place.flight), flight.FlightCallOptions(headers=headers, timeout=20)

    def put(self, *batches: pa.RecordBatch) -> tuple[Any, Any, Any]:
        """An append of these batches that goes on: client, writer and reader of it."""
        client, options = self.flight()
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"append": {"log": NOISE}}))
        writer, reader = client.do_put(descriptor, batches[0].schema, options)
        for batch in batches:
            writer.write_batch(batch)
        return client, writer, reader

    def act(self, action: str, body: bytes, times: int = 1) -> None:
        """The same action of Flight, so often."""
        client, options = self.flight()
        for _ in range(times):
            list(client.do_action(flight.Action(action, body), options))
        client.close()

    def subscribe(self, endpoint: str) -> None:
        """A webhook of cloud native events."""
        given = {"resource": self.chance.choice(["/good/resource", "/bad"]), "endpointUri": endpoint}
        ask(self.place, "POST", f"{CNE}/subscriptions", given)

    # DCB

    def half_request(self) -> None:
        whole = self.head(f"POST {APPEND}", JSON, "content-length: 90000000")
        part = whole[: self.chance.randrange(1, len(whole))] if self.chance.random() < 0.5 else whole + b"{"
        self.leave("http", part, 50)

    def appends(self) -> None:
        """Pipelined, and hardly an answer is read."""
        events = [{"type": "Noise", "data": "x" * 100, "tags": [f"t:{number}"]} for number in range(1000)]
        asked = self.request(APPEND, json.dumps({"events": events}).encode())
        with self.connected("http") as peer:
            for _ in range(50):
                peer.sendall(asked)
                done["appends"] += 1
                if done["appends"] % 5 == 0:
                    peer.recv(100)

    def million_items(self) -> None:
        """Queries, and conditions."""
        self.post(READ, bodies.query_items(1_000_000))
        self.post(APPEND, bodies.condition_items(1_000_000))

    def subscriptions(self) -> None:
        path = f"/logs/{self.chance.choice([LOG, NOISE])}/subscribe?query=all&after=0"
        self.leave("http", self.head(f"GET {path}"), 100)

    # AMQP

    def links(self) -> None:
        client = self.amqp()
        for turn in range(10 * self.scale):
            session = client.engine.begin()
            for number in range(50):
                session.attach_sender(f"{turn}-s{number}", source=Source(), target=Target(address=NOISE))
                session.attach_receiver(f"{turn}-r{number}", source=Source(address=LOG), target=Target())
            client.flush()
            client.pump(0.01)
            done["links attached"] += 100
        self.keep(client, 4)

    def scans(self) -> None:
        """Receivers that look at everything and get nothing: 20 on each connection, 100 on those that are kept.

        Each has up to 16 patterns that search, each of which takes a step per character; 16 are allowed.
        """
        patterns = [f"[x] LIKE '%a_{number % 10}%'" for number in range(16)]
        filters = (EARLIEST | sql(" OR ".join(patterns[: 1 + number % 16])) for number in range(20 * self.scale))
        self.receive(5, *((NOISE, {"credit": 10, "filter": each, "waits": False}) for each in filters))
        done["scanning receivers"] += 20 * self.scale

    def dear_listeners(self) -> None:
        """As many links from `$events` as a connection may have, each with all the patterns that a filter may have."""
        long = " + ".join(["address"] * 16)
        text = " OR ".join(f"{long} LIKE '%a_{number % 10}%'" for number in range(16))
        self.receive(3, *[("$events", {"credit": 10, "filter": sql(text), "waits": False})] * 64)

    def messages(self) -> None:
        message = encode_message(Message([b"x" * 200], DATA, properties=Properties(subject="Noise")))
        with self.amqp() as client:
            client.sender(NOISE).send_all([message] * 2000, is_settled=True)

    def huge_message(self) -> None:
        client = self.amqp()
        sender = client.sender(NOISE)
        client.wait(lambda: sender.link.sendable > 0)
        sender.link.send(b"\x00\x53\x75\xb0\x7f\xff\xff\xff" + bytes(4_000_000 * self.scale), 1, 1)
        client.flush()
        client.drop()

    # FutoIn

    def garbage_of_websockets(self) -> None:
        with self.place.websocket(NOISE, close_timeout=0.1) as connection:
            for _ in range(20):
                connection.send(self.chance.randbytes(self.chance.randrange(1, 2000)))
            self.garbage("http", self.head(f"GET /futoin/{NOISE}", *UPGRADE[:2]))

    def pushes(self) -> None:
        """Consumers that acknowledge none."""
        components = (f"Bad{len(_kept)}x{number}" for number in range(60))
        self.websocket(5 * self.scale, (message for component in components for message in push_calls(component)))

    def huge_call(self) -> None:
        with self.place.websocket(NOISE, close_timeout=0.1, max_size=None) as connection:
            connection.send(b'{"f":"headwater.evt.gen:1.0:addEvents","p":{"events":' + b"[" * 7_900_000)

    # Cloud native events

    def few_subscriptions(self) -> None:
        if done["subscriptions"] < 200 * self.scale:
            self.subscribe(f"{self.place.http}/ocloudNotifications/v2/dummy?{time.time_ns()}")
        else:
            time.sleep(0.2)

    def subscribe_greeted(self, answer: bytes) -> None:
        """A webhook that answers its greeting, and then gives that answer without end; if it is empty, none."""
        hook = socket.create_server(("127.0.0.1", 0), backlog=100)

        def serve() -> None:
            peer, _ = hook.accept()
            with peer:
                peer.recv(100_000)
                peer.sendall(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
            while answer:
                peer, _ = hook.accept()
                with peer, suppress(OSError):
                    peer.recv(100_000)
                    while True:
                        peer.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        _kept.append(hook)
        self.subscribe(f"http://127.0.0.1:{hook.getsockname()[1]}/hook")

    def garbage_of_cne(self) -> None:
        path = self.chance.choice(["create/event", "publishers", "subscriptions", "log"])
        self.post(f"{CNE}/{path}", self.chance.randbytes(500))

    # Arrow Flight

    def stalled_read(self) -> None:
        client, options = self.flight()
        reader = client.do_get(flight.Ticket(json.dumps({"log": self.chance.choice([LOG, NOISE])})), options)
        reader.read_chunk()
        self.keep((client, reader), 40)

    def batches(self) -> None:
        client, writer, _ = self.put(*[_rows(1000)] * 20)
        writer.close()
        client.close()


def _rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"type": ["Noise"] * count, "data": pa.array([b"x" * 100] * count, pa.binary())})


Act = Callable[[Hostile], object]
_ADDED = call("headwater.evt.gen:1.0:addEvent", type="NOISE", data="x" * 200)
_WAITING = {"component": "LIVE", "want": ["ABSENT"], "wait_ms": 20000}
_POLLED = [call("headwater.evt.poll:1.0:pollEvents", f"C{number}", **_WAITING) for number in range(200)]
_HALF_MESSAGE = b"\x82\xff" + (8_000_000).to_bytes(8) + bytes(4) + b"{"
_POST = f"POST {APPEND} HTTP/1.1\r\n".encode()
_CHUNKED = (JSON, "transfer-encoding: chunked")
_LOGIN = SASL_HEADER + frame(0, b"\x00\x53\x41\xc0\x01\x00", 1)
_LONG_FRAME = struct.pack(">IBBH", 2**31, 2, 0, 0)
_STALLED = [(log, {"credit": 1_000_000}) for log in (LOG, NOISE)]
ATTACKS: Mapping[str, Mapping[str, Act]] = {
    "dcb": {
        "garbage": lambda its: its.garbage("http", b"GET /", _POST, its.head("GET /logs")),
        "half_open": Hostile.half_request,
        "stalled_reads": lambda its: its.leave("http", its.request(READ, b'{"query": {"all": true}}'), 50),
        "subscriptions": Hostile.subscriptions,
        "flood": Hostile.appends,
        "huge": lambda its: its.post(APPEND, b"[" * 4_000_000 * its.scale),
        "chunks": lambda its: its.send(its.head(f"POST {APPEND}", *_CHUNKED) + bodies.chunked(500_000 * its.scale)),
        # requests in a row that are refused, and hardly an answer is read
        "pipeline": lambda its: its.send(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20_000),
        "million_items": Hostile.million_items,
        "guesses": lambda its: ask(
            its.place._replace(user=f"user-{its.chance.randrange(1000)}", password="guess"), "GET", "/logs"
        ),
    },
    "amqp": {
        "garbage": lambda its: its.garbage("amqp", SASL_HEADER, AMQP_HEADER, _LOGIN, _LONG_FRAME),
        "half_open": lambda its: its.leave("amqp", SASL_HEADER[: its.chance.randrange(1, 9)], 50),
        "links": Hostile.links,
        "scans": Hostile.scans,
        "dear_listeners": Hostile.dear_listeners,
        "listeners": lambda its: its.receive(20, *[("$events", {"credit": 1})] * 50),
        "stalled_reads": lambda its: its.receive(10 * its.scale, *_STALLED),
        "flood": Hostile.messages,
        "huge": Hostile.huge_message,
    },
    "futoin": {
        "garbage": Hostile.garbage_of_websockets,
        "half_open": lambda its: its.leave("http", its.head(f"GET /futoin/{NOISE}", *UPGRADE) + _HALF_MESSAGE, 50),
        "flood": lambda its: its.websocket(10, [_ADDED] * 500),
        "pushes": Hostile.pushes,
        "huge": Hostile.huge_call,
        # without any right
        "signed_tree": lambda its: its.post(f"/futoin/{NOISE}", bodies.signed_tree(3_900_000)),
        # as is allowed: 8 MB
        "large_batches": lambda its: its.post(f"/futoin/{NOISE}", bodies.add_events(7_500_000)),
        "polls": lambda its: its.websocket(10, _POLLED),
    },
    "cne": {
        "garbage": Hostile.garbage_of_cne,
        # webhooks that answer the greeting, and nothing after it, or every event with `100 Continue` without end
        "black_holes": lambda its: its.subscribe_greeted(b""),
        "endless_continue": lambda its: its.subscribe_greeted(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        # one of them twice
        "many_members": lambda its: its.post(f"{CNE}/create/event", bodies.many_members(16_000)),
        "subscriptions": Hostile.few_subscriptions,
        # webhooks where nobody listens, and where there is no webhook
        "nowhere": lambda its: its.subscribe(f"http://127.0.0.1:{its.chance.choice([1, 9])}/hook"),
        "states": lambda its: ask(its.place, "GET", f"{CNE}/good/resource/CurrentState"),
        "huge": lambda its: its.post(f"{CNE}/create/event", b'{"id":"' + b"x" * (1_000_000 * its.scale)),
    },
    "flight": {
        "garbage": lambda its: its.garbage("flight", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        "half_open": lambda its: its.leave("flight", PREFACE, 50),
        "stalled_reads": Hostile.stalled_read,
        "stalled_writes": lambda its: its.keep(its.put(_rows(1)), 40),
        "flood": Hostile.batches,
        "huge": lambda its: its.act("info", b'{"log": "' + b"x" * 4_000_000 * its.scale),
        "actions": lambda its: its.act("count", json.dumps({"log": NOISE}).encode(), 200),
    },
}
"""What a client of each protocol does, by name."""


def _repeat(name: str, act: Act, its: Hostile) -> None:
    while True:
        done[f"{name}: tried"] += 1
        try:
            act(its)
            done[name] += 1
        except Exception as error:  # to be refused is what is to be expected
            done[f"{name}: {type(error).__name__}"] += 1
            time.sleep(0.01)


def _be_elsewhere() -> None:
    """Stand for another machine: with an address of its own, and without the processors of the server."""
    os.nice(19)
    connect = socket.create_connection

    def connect_from_there(address: Any, timeout: Any = None, *_: Any, **__: Any) -> socket.socket:
        return connect(address, timeout, (ADDRESS, 0))

    socket.create_connection = connect_from_there


def main(protocol: str, scale: str, place: str) -> None:
    _be_elsewhere()
    its, acts = Hostile(Place(*json.loads(place)), int(scale)), ATTACKS[protocol]
    for name, act in acts.items():
        threading.Thread(target=_repeat, args=(name, act, its), daemon=True).start()
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while not (all(done[f"{name}: tried"] for name in acts) and any(done[name] for name in acts)):
        assert time.monotonic() < deadline, f"not all was tried, or nothing was taken: {done}"
        time.sleep(0.01)
    os.write(1, AT_IT)
    sys.stdin.read()
    os.write(1, json.dumps(dict(done)).encode())
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
