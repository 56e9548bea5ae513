"""What a hostile client of each protocol does, all at once, until it is killed: flood, stall, garbage, half-open, huge.

    python -m tests.load.hostile.attacks PROTOCOL SCALE PLACE

It is a process of its own, a user with rights of its own, and its death is abrupt. It says so (a line on stdout) when
it has tried all that it does, and something of it was taken. On SIGTERM it tells how often it did what (JSON).
"""

from __future__ import annotations

import json
import os
import random
import signal
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
from .peers import JSON, PREFACE, UPGRADE, head

AT_IT = b"attacking\n"
"""What it says when it has begun."""
BEGINS_WITHIN_S = 60.0
ADDRESS = "127.0.0.2"
"""Where it comes from: neighbours have another address."""
APPEND, CNE = f"/logs/{NOISE}/append", "/ocloudNotifications/v1"
done: Counter[str] = Counter()
_kept: list[Any] = []
"""What is never closed."""


class Hostile:
    """One client, and what its acts share; `scale` says how much of everything at once."""

    def __init__(self, place: Place, scale: int) -> None:
        self.place, self.scale = place, scale
        self.chance = random.Random(os.environ.get("ATTACK_SEED", "0"))

    def connected(self, protocol: str) -> socket.socket:
        """A bare connection."""
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
        """Send that, read nothing, and hold it open, with so many others at most."""
        peer = self.connected(protocol)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(sent)
        self.keep(peer, limit)

    def send(self, sent: bytes) -> None:
        """Send that over HTTP, to its last byte, whatever is answered."""
        with self.connected("http") as peer:
            peer.sendall(sent)
            peer.recv(1000)

    def head(self, request: str, *more: str) -> bytes:
        """Of an HTTP request."""
        return head(self.place, request, *more)

    def request(self, path: str, body: bytes) -> bytes:
        """A whole POST."""
        return self.head(f"POST {path}", JSON, f"content-length: {len(body)}") + body

    def post(self, path: str, body: bytes) -> None:
        """Send one."""
        self.send(self.request(path, body))

    def amqp(self) -> Any:
        """A connection of AMQP."""
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


Act = Callable[[Hostile], object]


# DCB


def _half_request(its: Hostile) -> None:
    whole = its.head(f"POST {APPEND}", JSON, "content-length: 90000000")
    part = whole[: its.chance.randrange(1, len(whole))] if its.chance.random() < 0.5 else whole + b"{"
    its.leave("http", part, 50 * its.scale)


def _appends(its: Hostile) -> None:
    """Pipelined, and hardly an answer is read."""
    events = [{"type": "Noise", "data": "x" * 100, "tags": [f"t:{number}"]} for number in range(1000)]
    asked = its.request(APPEND, json.dumps({"events": events}).encode())
    with its.connected("http") as peer:
        for _ in range(50):
            peer.sendall(asked)
            done["appends"] += 1
            if done["appends"] % 5 == 0:
                peer.recv(100)


def _million_items(its: Hostile) -> None:
    """Queries, and conditions."""
    its.post(f"/logs/{NOISE}/read", bodies.query_items(1_000_000))
    its.post(APPEND, bodies.condition_items(1_000_000))


def _subscriptions(its: Hostile) -> None:
    path = f"/logs/{its.chance.choice([LOG, NOISE])}/subscribe?query=all&after=0"
    its.leave("http", its.head(f"GET {path}"), 100 * its.scale)


# AMQP


def _links(its: Hostile) -> None:
    client = its.amqp()
    for turn in range(10 * its.scale):
        session = client.engine.begin()
        for number in range(50):
            session.attach_sender(f"{turn}-s{number}", source=Source(), target=Target(address=NOISE))
            session.attach_receiver(f"{turn}-r{number}", source=Source(address=LOG), target=Target())
        client.flush()
        client.pump(0.01)
        done["links attached"] += 100
    its.keep(client, 4)


def _scans(its: Hostile) -> None:
    """Receivers that look at everything and get nothing: 20 on each connection, 100 on those that are kept.

    Each has up to 16 patterns that search, each of which takes a step per character; 16 are allowed.
    """
    patterns = [f"[x] LIKE '%a_{number % 10}%'" for number in range(16)]
    filters = (EARLIEST | sql(" OR ".join(patterns[: 1 + number % 16])) for number in range(20 * its.scale))
    its.receive(5, *((NOISE, {"credit": 10, "filter": each, "waits": False}) for each in filters))
    done["scanning receivers"] += 20 * its.scale


def _dear_listeners(its: Hostile) -> None:
    """As many links from `$events` as a connection may have, each with all the patterns that a filter may have."""
    long = " + ".join(["address"] * 16)
    text = " OR ".join(f"{long} LIKE '%a_{number % 10}%'" for number in range(16))
    its.receive(3, *[("$events", {"credit": 10, "filter": sql(text), "waits": False})] * 64)


def _messages(its: Hostile) -> None:
    message = encode_message(Message([b"x" * 200], DATA, properties=Properties(subject="Noise")))
    with its.amqp() as client:
        client.sender(NOISE).send_all([message] * 2000, is_settled=True)


def _huge_message(its: Hostile) -> None:
    client = its.amqp()
    sender = client.sender(NOISE)
    client.wait(lambda: sender.link.sendable > 0)
    sender.link.send(b"\x00\x53\x75\xb0\x7f\xff\xff\xff" + bytes(4_000_000 * its.scale), 1, 1)
    client.flush()
    client.drop()


# FutoIn


def _garbage_of_websockets(its: Hostile) -> None:
    with its.place.websocket(NOISE, close_timeout=0.1) as connection:
        for _ in range(20):
            connection.send(its.chance.randbytes(its.chance.randrange(1, 2000)))
        its.garbage("http", its.head(f"GET /futoin/{NOISE}", *UPGRADE[:2]))


def _pushes(its: Hostile) -> None:
    """Consumers that acknowledge none."""
    components = (f"Bad{len(_kept)}x{number}" for number in range(60))
    its.websocket(5 * its.scale, (message for component in components for message in push_calls(component)))


def _huge_call(its: Hostile) -> None:
    with its.place.websocket(NOISE, close_timeout=0.1, max_size=None) as connection:
        connection.send(b'{"f":"headwater.evt.gen:1.0:addEvents","p":{"events":' + b"[" * 7_900_000)


# Cloud native events


def _few_subscriptions(its: Hostile) -> None:
    if done["subscriptions"] < 200 * its.scale:
        its.subscribe(f"{its.place.http}/ocloudNotifications/v2/dummy?{time.time_ns()}")
    else:
        time.sleep(0.2)


def _subscribe_greeted(its: Hostile, answer: bytes) -> None:
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
    its.subscribe(f"http://127.0.0.1:{hook.getsockname()[1]}/hook")


def _garbage_of_cne(its: Hostile) -> None:
    path = its.chance.choice(["create/event", "publishers", "subscriptions", "log"])
    its.post(f"{CNE}/{path}", its.chance.randbytes(500))


# Arrow Flight


def _rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"type": ["Noise"] * count, "data": pa.array([b"x" * 100] * count, pa.binary())})


def _stalled_read(its: Hostile) -> None:
    client, options = its.flight()
    reader = client.do_get(flight.Ticket(json.dumps({"log": its.chance.choice([LOG, NOISE])})), options)
    reader.read_chunk()
    its.keep((client, reader), 40)


def _batches(its: Hostile) -> None:
    client, writer, _ = its.put(*[_rows(1000)] * 20)
    writer.close()
    client.close()


_ADDED = call("headwater.evt.gen:1.0:addEvent", type="NOISE", data="x" * 200)
_POLLED = call("headwater.evt.poll:1.0:pollEvents", component="LIVE", want=["ABSENT"], wait_ms=20000)
_HALF_MESSAGE = b"\x82\xff" + (8_000_000).to_bytes(8) + bytes(4) + b"{"
_CHUNKED = (JSON, "transfer-encoding: chunked")
_LOGIN = SASL_HEADER + frame(0, b"\x00\x53\x41\xc0\x01\x00", 1)
ATTACKS: Mapping[str, Mapping[str, Act]] = {
    "dcb": {
        "garbage": lambda its: its.garbage(
            "http", b"GET /", f"POST {APPEND} HTTP/1.1\r\n".encode(), its.head("GET /logs")
        ),
        "half_open": _half_request,
        "stalled_reads": lambda its: its.leave(
            "http", its.request(f"/logs/{NOISE}/read", b'{"query": {"all": true}}'), 50 * its.scale
        ),
        "subscriptions": _subscriptions,
        "flood": _appends,
        "huge": lambda its: its.post(APPEND, b"[" * 4_000_000 * its.scale),
        "chunks": lambda its: its.send(its.head(f"POST {APPEND}", *_CHUNKED) + bodies.chunked(500_000 * its.scale)),
        # requests in a row that are refused, and hardly an answer is read
        "pipeline": lambda its: its.send(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20_000),
        "million_items": _million_items,
        "guesses": lambda its: ask(
            its.place._replace(user=f"user-{its.chance.randrange(1000)}", password="guess"), "GET", "/logs"
        ),
    },
    "amqp": {
        "garbage": lambda its: its.garbage(
            "amqp", SASL_HEADER, AMQP_HEADER, _LOGIN, struct.pack(">IBBH", 2**31, 2, 0, 0)
        ),
        "half_open": lambda its: its.leave("amqp", SASL_HEADER[: its.chance.randrange(1, 9)], 50 * its.scale),
        "links": _links,
        "scans": _scans,
        "dear_listeners": _dear_listeners,
        "listeners": lambda its: its.receive(20, *[("$events", {"credit": 1})] * 50),
        "stalled_reads": lambda its: its.receive(
            10 * its.scale, *((log, {"credit": 1_000_000}) for log in (LOG, NOISE))
        ),
        "flood": _messages,
        "huge": _huge_message,
    },
    "futoin": {
        "garbage": _garbage_of_websockets,
        "half_open": lambda its: its.leave(
            "http", its.head(f"GET /futoin/{NOISE}", *UPGRADE) + _HALF_MESSAGE, 50 * its.scale
        ),
        "flood": lambda its: its.websocket(10, [_ADDED] * 500),
        "pushes": _pushes,
        "huge": _huge_call,
        # without any right
        "signed_tree": lambda its: its.post(f"/futoin/{NOISE}", bodies.signed_tree(3_900_000)),
        # as is allowed: 8 MB
        "large_batches": lambda its: its.post(f"/futoin/{NOISE}", bodies.add_events(7_500_000)),
        "polls": lambda its: its.websocket(10, [_POLLED] * 200),
    },
    "cne": {
        "garbage": _garbage_of_cne,
        # webhooks that answer the greeting, and nothing after it, or every event with `100 Continue` without end
        "black_holes": lambda its: _subscribe_greeted(its, b""),
        "endless_continue": lambda its: _subscribe_greeted(its, b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        # one of them twice
        "many_members": lambda its: its.post(f"{CNE}/create/event", bodies.many_members(16_000)),
        "subscriptions": _few_subscriptions,
        # webhooks where nobody listens, and where there is no webhook
        "nowhere": lambda its: its.subscribe(f"http://127.0.0.1:{its.chance.choice([1, 9])}/hook"),
        "states": lambda its: ask(its.place, "GET", f"{CNE}/good/resource/CurrentState"),
        "huge": lambda its: its.post(f"{CNE}/create/event", b'{"id":"' + b"x" * (1_000_000 * its.scale)),
    },
    "flight": {
        "garbage": lambda its: its.garbage("flight", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        "half_open": lambda its: its.leave("flight", PREFACE, 50 * its.scale),
        "stalled_reads": _stalled_read,
        "stalled_writes": lambda its: its.keep(its.put(_rows(1)), 40),
        "flood": _batches,
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


def _tell(*_: object) -> None:
    os.write(1, json.dumps(dict(done)).encode())
    os._exit(0)


def _be_elsewhere() -> None:
    """Stand for another machine: with an address of its own, and without the processors of the server."""
    os.nice(19)
    connect = socket.create_connection

    def connect_from_there(address: Any, timeout: Any = None, *_: Any, **__: Any) -> socket.socket:
        return connect(address, timeout, (ADDRESS, 0))

    socket.create_connection = connect_from_there


def _is_at_it(names: Iterable[str]) -> bool:
    return all(done[f"{name}: tried"] for name in names) and any(done[name] for name in names)


def main(protocol: str, scale: str, place: str) -> None:
    """Attack until a signal comes."""
    signal.signal(signal.SIGTERM, _tell)
    _be_elsewhere()
    its, acts = Hostile(Place(*json.loads(place)), int(scale)), ATTACKS[protocol]
    for name, act in acts.items():
        threading.Thread(target=_repeat, args=(name, act, its), daemon=True).start()
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while not _is_at_it(acts):
        assert time.monotonic() < deadline, f"not all was tried, or nothing was taken: {done}"
        time.sleep(0.01)
    os.write(1, AT_IT)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
