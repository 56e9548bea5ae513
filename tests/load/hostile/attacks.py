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
from headwater.amqp.protocol.types import Described, Symbol
from tests import costly_bodies as bodies
from tests.amqp.asking import EARLIEST

from ..place import LOG, Place, ask
from ..server import NOISE
from .peers import PREFACE

SQL = Symbol("amqp:sql-filter")
AT_IT = b"attacking\n"
"""What it says when it has begun."""
BEGINS_WITHIN_S = 60.0
ADDRESS = "127.0.0.2"
"""Where it comes from: neighbours have another address."""
done: Counter[str] = Counter()
_kept: list[Any] = []
"""What is never closed."""


class Attack:
    """One client and what it does; `scale` says how much of it at once."""

    def __init__(self, place: Place, scale: int) -> None:
        self.place, self.scale = place, scale
        self.chance = random.Random(os.environ.get("ATTACK_SEED", "0"))

    def connected(self, url: str) -> socket.socket:
        """A bare connection."""
        its = urlsplit(url)
        found = socket.create_connection((its.hostname, its.port), 10)
        found.settimeout(10)
        return found

    def keep(self, what: Any, limit: int) -> None:
        """Hold it open, with so many others at most."""
        _kept.append(what)
        if len(_kept) > limit:
            _kept.pop(self.chance.randrange(len(_kept)))

    def garbage_to(self, url: str, *openings: bytes) -> None:
        """Random bytes after a good beginning."""
        with self.connected(url) as peer:
            peer.sendall(self.chance.choice([b"", *openings]) + self.chance.randbytes(self.chance.randrange(1, 5000)))
            peer.settimeout(0.2)
            peer.recv(1000)

    def leave(self, url: str, sent: bytes, limit: int) -> None:
        """Send that, read nothing, and hold it open, with so many others at most."""
        peer = self.connected(url)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(sent)
        self.keep(peer, limit)

    def send(self, sent: bytes) -> None:
        """Send that over HTTP, to its last byte, whatever is answered."""
        with self.connected(self.place.http) as peer:
            peer.sendall(sent)
            peer.recv(1000)

    def post(self, path: str, body: bytes) -> bytes:
        """A whole request."""
        return self.request("POST", path, "content-type: application/json", f"content-length: {len(body)}") + body

    def request(self, method: str, path: str, *more: str) -> bytes:
        """The head of an HTTP request."""
        host, user = "host: localhost", f"authorization: {self.place.authorization}"
        lines = [f"{method} {path} HTTP/1.1", host, user, *more, "", ""]
        return "\r\n".join(lines).encode()


class Http(Attack):
    """DCB."""

    def garbage(self) -> None:
        self.garbage_to(
            self.place.http, b"GET /", b"POST /logs/noise/append HTTP/1.1\r\n", self.request("GET", "/logs")
        )

    def half_open(self) -> None:
        whole = self.request("POST", "/logs/noise/append", "content-type: application/json", "content-length: 90000000")
        part = whole[: self.chance.randrange(1, len(whole))] if self.chance.random() < 0.5 else whole + b"{"
        self.leave(self.place.http, part, 50 * self.scale)

    def stalled_reads(self) -> None:
        asked = self.post(f"/logs/{NOISE}/read", b'{"query": {"all": true}}')
        self.leave(self.place.http, asked, 50 * self.scale)

    def subscriptions(self) -> None:
        path = f"/logs/{self.chance.choice([LOG, NOISE])}/subscribe?query=all&after=0"
        self.leave(self.place.http, self.request("GET", path), 100 * self.scale)

    def flood(self) -> None:
        events = [{"type": "Noise", "data": "x" * 100, "tags": [f"t:{number}"]} for number in range(1000)]
        asked = self.post(f"/logs/{NOISE}/append", json.dumps({"events": events}).encode())
        with self.connected(self.place.http) as peer:
            for _ in range(50):  # pipelined, and hardly an answer is read
                peer.sendall(asked)
                done["appends"] += 1
                if done["appends"] % 5 == 0:
                    peer.recv(100)

    def huge(self) -> None:
        self.send(self.post(f"/logs/{NOISE}/append", b"[" * 4_000_000 * self.scale))

    def chunks(self) -> None:
        """A body in chunks of a byte."""
        more = ("content-type: application/json", "transfer-encoding: chunked")
        self.send(self.request("POST", f"/logs/{NOISE}/append", *more) + bodies.chunked(500_000 * self.scale))

    def pipeline(self) -> None:
        """Requests in a row that are refused, and hardly an answer is read."""
        self.send(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20_000)

    def million_items(self) -> None:
        """Queries, and conditions, of a million items."""
        for path, body in (("read", bodies.query_items), ("append", bodies.condition_items)):
            self.send(self.post(f"/logs/{NOISE}/{path}", body(1_000_000)))

    def guesses(self) -> None:
        place = self.place._replace(user=f"user-{self.chance.randrange(1000)}", password="guess")
        ask(place, "GET", "/logs", None)


class Amqp(Attack):
    """AMQP."""

    def garbage(self) -> None:
        login = SASL_HEADER + frame(0, b"\x00\x53\x41\xc0\x01\x00", 1)
        self.garbage_to(self.place.amqp, SASL_HEADER, AMQP_HEADER, login, struct.pack(">IBBH", 2**31, 2, 0, 0))

    def half_open(self) -> None:
        self.leave(self.place.amqp, SASL_HEADER[: self.chance.randrange(1, 9)], 50 * self.scale)

    def links(self) -> None:
        client = self.place.amqp_client(timeout_s=10)
        for turn in range(10 * self.scale):
            session = client.engine.begin()
            for number in range(100):
                name = f"{turn}-{number}"
                if number % 2:
                    session.attach_receiver(name, source=Source(address=LOG), target=Target())
                else:
                    session.attach_sender(name, source=Source(), target=Target(address=NOISE))
            client.flush()
            client.pump(0.01)
            done["links attached"] += 100
        self.keep(client, 4)

    def scans(self) -> None:
        """Receivers that look at everything and get nothing: 20 on each connection, 100 on those that are kept."""
        client = self.place.amqp_client(timeout_s=10)
        for number in range(20 * self.scale):
            client.receiver(NOISE, credit=10, filter=EARLIEST | _searching(1 + number % 16), waits=False)
        client.flush()
        client.pump(0.01)
        done["scanning receivers"] += 20 * self.scale
        self.keep(client, 5)

    def dear_listeners(self) -> None:
        """As many links from `$events` as a connection may have, each with all the patterns that a filter may have."""
        client = self.place.amqp_client(timeout_s=10)
        long = " + ".join(["address"] * 16)
        text = " OR ".join(f"{long} LIKE '%a_{number % 10}%'" for number in range(16))
        for _ in range(64):
            client.receiver("$events", credit=10, filter={"f": Described(SQL, text)}, waits=False)
        client.flush()
        client.pump(0.01)
        self.keep(client, 3)

    def listeners(self) -> None:
        client = self.place.amqp_client(timeout_s=10)
        for _ in range(50):
            client.receiver("$events", credit=1)
        self.keep(client, 20)

    def stalled_reads(self) -> None:
        client = self.place.amqp_client(timeout_s=10)
        for address in (LOG, NOISE):
            client.receiver(address, credit=1_000_000)
        self.keep(client, 10 * self.scale)

    def flood(self) -> None:
        message = encode_message(Message([b"x" * 200], DATA, properties=Properties(subject="Noise")))
        with self.place.amqp_client(timeout_s=10) as client:
            client.sender(NOISE).send_all([message] * 2000, is_settled=True)

    def huge(self) -> None:
        client = self.place.amqp_client(timeout_s=10)
        sender = client.sender(NOISE)
        client.wait(lambda: sender.link.sendable > 0)
        sender.link.send(b"\x00\x53\x75\xb0\x7f\xff\xff\xff" + bytes(4_000_000 * self.scale), 1, 1)
        client.flush()
        client.drop()


def _searching(count: int) -> dict[object, object]:
    """So many patterns that search, each of which takes a step per character; 16 are allowed."""
    return {Symbol("f"): Described(SQL, " OR ".join(f"[x] LIKE '%a_{number % 10}%'" for number in range(count)))}


class Futoin(Attack):
    """FutoIn."""

    def opened(self, **options: Any) -> Any:
        """A connection that is kept."""
        connecting = self.place.websocket(NOISE, close_timeout=0.1, **options)
        connection = connecting.__enter__()
        self.keep(connecting, 50)
        return connection

    def garbage(self) -> None:
        with self.place.websocket(NOISE, close_timeout=0.1) as connection:
            for _ in range(20):
                connection.send(self.chance.randbytes(self.chance.randrange(1, 2000)))
            upgrade = self.request("GET", "/futoin/noise", "upgrade: websocket", "connection: upgrade")
            self.garbage_to(self.place.http, upgrade)

    def half_open(self) -> None:
        more = ("sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==")
        head = self.request("GET", "/futoin/noise", "upgrade: websocket", "connection: upgrade", *more)
        self.leave(self.place.http, head + b"\x82\xff" + (8_000_000).to_bytes(8) + bytes(4) + b"{", 50 * self.scale)

    def flood(self) -> None:
        text = {"f": "headwater.evt.gen:1.0:addEvent", "p": {"type": "NOISE", "data": "x" * 200}, "rid": "C1"}
        message = json.dumps(text).encode()
        connection = self.opened(max_queue=1)
        for _ in range(500):
            connection.send(message)  # and no reply is read
        self.keep(connection, 10)

    def pushes(self) -> None:
        connection = self.opened(max_queue=1)
        for number in range(60):
            component = f"Bad{len(_kept)}x{number}"
            for function in ("registerConsumer", "readyToReceive"):
                given = {"f": f"futoin.evt.push:1.1:{function}", "p": {"component": component}, "rid": "C1"}
                connection.send(json.dumps(given).encode())  # and no push is acknowledged
        self.keep(connection, 5 * self.scale)

    def huge(self) -> None:
        with self.place.websocket(NOISE, close_timeout=0.1, max_size=None) as connection:
            connection.send(b'{"f":"headwater.evt.gen:1.0:addEvents","p":{"events":' + b"[" * 7_900_000)

    def signed_tree(self) -> None:
        """Without any right."""
        self.send(self.post(f"/futoin/{NOISE}", bodies.signed_tree(3_900_000)))

    def large_batches(self) -> None:
        """As is allowed: 8 MB."""
        self.send(self.post(f"/futoin/{NOISE}", bodies.add_events(7_500_000)))

    def polls(self) -> None:
        connection = self.opened(max_queue=1)
        for number in range(200):
            given = {"component": "LIVE", "want": ["ABSENT"], "wait_ms": 20000}
            message = {"f": "headwater.evt.poll:1.0:pollEvents", "p": given, "rid": f"C{number}"}
            connection.send(json.dumps(message).encode())
        self.keep(connection, 10)


class Cne(Attack):
    """Cloud native events."""

    base = "/ocloudNotifications/v1"

    def garbage(self) -> None:
        path = f"{self.base}/{self.chance.choice(['create/event', 'publishers', 'subscriptions', 'log'])}"
        self.send(self.post(path, self.chance.randbytes(500)))

    def black_holes(self) -> None:
        """Webhooks that answer the greeting, and nothing after it."""
        self._subscribe_greeted(b"")

    def endless_continue(self) -> None:
        """Webhooks that answer the greeting, and every event with `100 Continue` without end."""
        self._subscribe_greeted(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    def many_members(self) -> None:
        """16,000 members, one of them twice."""
        self.send(self.post(f"{self.base}/create/event", bodies.many_members(16_000)))

    def subscriptions(self) -> None:
        if done["subscriptions"] < 200 * self.scale:
            self._subscribe(f"{self.place.http}/ocloudNotifications/v2/dummy?{time.time_ns()}")
        else:
            time.sleep(0.2)

    def nowhere(self) -> None:
        """Webhooks where nobody listens, and where there is no webhook."""
        self._subscribe(f"http://127.0.0.1:{self.chance.choice([1, 9])}/hook")

    def states(self) -> None:
        ask(self.place, "GET", f"{self.base}/good/resource/CurrentState", None)

    def huge(self) -> None:
        self.send(self.post(f"{self.base}/create/event", b'{"id":"' + b"x" * (1_000_000 * self.scale)))

    def _subscribe_greeted(self, answer: bytes) -> None:
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
        self._subscribe(f"http://127.0.0.1:{hook.getsockname()[1]}/hook")

    def _subscribe(self, endpoint: str) -> None:
        given = {"resource": self.chance.choice(["/good/resource", "/bad"]), "endpointUri": endpoint}
        ask(self.place, "POST", f"{self.base}/subscriptions", given)


class Flight(Attack):
    """Arrow Flight."""

    def garbage(self) -> None:
        self.garbage_to(self.place.flight, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

    def half_open(self) -> None:
        self.leave(self.place.flight, PREFACE, 50 * self.scale)

    def stalled_reads(self) -> None:
        client, options = self._client()
        reader = client.do_get(flight.Ticket(json.dumps({"log": self.chance.choice([LOG, NOISE])})), options)
        reader.read_chunk()
        self.keep((client, reader), 40)

    def stalled_writes(self) -> None:
        client, options = self._client()
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"append": {"log": NOISE}}))
        writer, reader = client.do_put(descriptor, self._rows(1).schema, options)
        writer.write_batch(self._rows(1))
        self.keep((client, writer, reader), 40)

    def flood(self) -> None:
        client, options = self._client()
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"append": {"log": NOISE}}))
        writer, _ = client.do_put(descriptor, self._rows(1).schema, options)
        for _ in range(20):
            writer.write_batch(self._rows(1000))
        writer.close()
        client.close()

    def huge(self) -> None:
        client, options = self._client()
        list(client.do_action(flight.Action("info", b'{"log": "' + b"x" * 4_000_000 * self.scale), options))

    def actions(self) -> None:
        client, options = self._client()
        for _ in range(200):
            list(client.do_action(flight.Action("count", json.dumps({"log": NOISE}).encode()), options))
        client.close()

    def _client(self) -> tuple[Any, Any]:
        headers = [(b"authorization", self.place.authorization.encode())]
        return flight.FlightClient(self.place.flight), flight.FlightCallOptions(headers=headers, timeout=20)

    @staticmethod
    def _rows(count: int) -> pa.RecordBatch:
        return pa.record_batch({"type": ["Noise"] * count, "data": pa.array([b"x" * 100] * count, pa.binary())})


ATTACKS: Mapping[str, type[Attack]] = {"dcb": Http, "amqp": Amqp, "futoin": Futoin, "cne": Cne, "flight": Flight}
SHARED = {"connected", "opened", "keep", "leave", "send", "post", "garbage_to", "request"}


def kinds(attack: Attack) -> dict[str, Callable[[], None]]:
    """What it does, by name."""
    names = [name for name in dir(attack) if not name.startswith("_") and name not in SHARED]
    return {name: its for name in names if callable(its := getattr(attack, name))}


def _repeat(name: str, act: Callable[[], None]) -> None:
    while True:
        done[f"{name}: tried"] += 1
        try:
            act()
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
    acts = kinds(ATTACKS[protocol](Place(*json.loads(place)), int(scale)))
    for name, act in acts.items():
        threading.Thread(target=_repeat, args=(name, act), daemon=True).start()
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while not _is_at_it(acts):
        assert time.monotonic() < deadline, f"not all was tried, or nothing was taken: {done}"
        time.sleep(0.01)
    os.write(1, AT_IT)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
