"""Well-behaved clients of each protocol on one log: who write remember what was acknowledged, who read what they saw.

Each event carries a marker, `good:WRITER:NUMBER`. A writer sends one event after the other and repeats one that was
refused because the server is busy, under the same id; any other refusal is a fault. A reader that must connect anew is
at fault too: whatever somebody else does, its connection is kept.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from base64 import b64encode
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple
from urllib.request import Request, urlopen

import pyarrow as pa
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_websocket

from headwater.amqp.client import Client
from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.amqp.protocol.performatives import Accepted
from headwater.client import connect
from headwater.core.event import Event
from headwater.flight.client import BulkClient, Ticket
from tests.amqp.asking import EARLIEST

LOG = "orders"
RESOURCE = "/good/resource"
PAUSE_S = 0.02
"""Between two events of one writer: neighbours are no load."""
TIMEOUT_S = 300.0
_MARKER = re.compile(rb"good:(\w+):(\d+)")


class Place(NamedTuple):
    """Where the server is, and who asks."""

    http: str
    amqp: str
    flight: str
    user: str
    password: str

    @property
    def authorization(self) -> str:
        """Of HTTP."""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"

    def amqp_client(self, **options: Any) -> Client:
        """A connection."""
        return Client(self.amqp.replace("://", f"://{self.user}:{self.password}@"), **options)

    def websocket(self, log: str, **options: Any) -> AbstractContextManager[ClientConnection]:
        """A connection to a log's FutoIn endpoint, as the context manager opens it."""
        url = f"ws{self.http.removeprefix('http')}/futoin/{log}"
        headers = {"authorization": self.authorization}
        return connect_websocket(url, additional_headers=headers, compression=None, **options)


class Neighbour(ABC):
    """One client, on a thread of its own."""

    name: ClassVar[str]

    def __init__(self, place: Place) -> None:
        self.place = place
        self.latencies: list[tuple[float, float]] = []
        """When, and how long it took."""
        self.fault: BaseException | None = None
        self.is_ready = threading.Event()
        """Set when nothing that is written from now on is missed."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @property
    def stands_at(self) -> str:
        """In which line it is at this moment."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return " < ".join(line.strip().replace("\n    ", ": ") for line in reversed(traceback.format_stack(frame)))

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """End soon."""
        self._ending.set()

    def stop(self) -> None:
        """End, and wait for it."""
        self.end()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _run(self) -> None:
        try:
            self._live()
        except BaseException as fault:
            self.fault = fault

    @abstractmethod
    def _live(self) -> None:
        """What it does until it is to end."""


class Writer(Neighbour):
    """One that appends."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.acknowledged: dict[str, float] = {}
        """When each was sent, by marker, in the order in which they were acknowledged."""

    def _live(self) -> None:
        number = 0
        while not self._ending.is_set():
            marker, began = f"good:{self.name}:{number}", time.monotonic()
            while not self._append(marker):
                time.sleep(0.1)
            self.acknowledged[marker] = began
            self.latencies.append((began, time.monotonic() - began))
            number += 1
            self._ending.wait(PAUSE_S)

    @abstractmethod
    def _append(self, marker: str) -> bool:
        """Whether it is acknowledged; the server may be too busy."""


class Reader(Neighbour):
    """One that follows the log."""

    writers: ClassVar[frozenset[str] | None] = None
    """Whose events it sees; all if None."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.seen: list[str] = []
        self.seen_at: dict[str, float] = {}

    def note(self, text: bytes) -> None:
        """An event was received."""
        found = _MARKER.search(text)
        if found is not None:
            marker = found[0].decode()
            self.seen.append(marker)
            self.seen_at.setdefault(marker, time.monotonic())


class DcbWriter(Writer):
    name = "dcb"

    def _live(self) -> None:
        place = self.place
        self._server = connect(place.http, user=place.user, password=place.password, timeout_s=TIMEOUT_S)
        super()._live()
        self._server.close()

    def _append(self, marker: str) -> bool:
        self._server.log(LOG).append([Event("Good", json.dumps(marker).encode(), (), marker, "good")])
        return True


class DcbReader(Reader):
    name = "dcb"

    def _live(self) -> None:
        place = self.place
        server = connect(place.http, user=place.user, password=place.password, timeout_s=TIMEOUT_S)
        with server.log(LOG).subscribe(after=0) as subscription:
            while not self._ending.is_set():
                for event in subscription.poll(0.2):
                    subscription.cursor = max(subscription.cursor, event.sequence_number)
                    self.note(event.data)
        server.close()


class AmqpWriter(Writer):
    name = "amqp"

    def _live(self) -> None:
        with self.place.amqp_client(timeout_s=TIMEOUT_S) as client:
            self._sender = client.sender(LOG)
            super()._live()

    def _append(self, marker: str) -> bool:
        state = self._sender.send(Message([json.dumps(marker).encode()], DATA, properties=Properties(subject="Good")))
        if state == Accepted():
            return True
        assert state.error.condition == "amqp:resource-limit-exceeded", state
        return False


class AmqpReader(Reader):
    name = "amqp"

    def _live(self) -> None:
        with self.place.amqp_client(timeout_s=TIMEOUT_S) as client:
            receiver = client.receiver(LOG, filter=EARLIEST)
            while not self._ending.is_set():
                for delivery in receiver.take(1, 0.2):
                    self.note(b"".join(delivery.message.body))
                    delivery.settle()


class FutoinWriter(Writer):
    name = "futoin"

    def _live(self) -> None:
        with self.place.websocket(LOG, open_timeout=TIMEOUT_S, ping_timeout=None) as connection:
            self._connection = connection
            super()._live()

    def _append(self, marker: str) -> bool:
        given = {"type": "GOOD", "data": marker, "key": marker}
        message = {"f": "headwater.evt.gen:1.0:addEvent", "p": given, "rid": "C1"}
        self._connection.send(json.dumps(message).encode())
        reply = json.loads(self._connection.recv(timeout=TIMEOUT_S))
        assert "r" in reply or reply["e"] == "DefenseRejected", reply
        return "r" in reply


class FutoinReader(Reader):
    name = "futoin"

    def _live(self) -> None:
        with self.place.websocket(LOG, open_timeout=TIMEOUT_S, max_size=None, ping_timeout=None) as connection:
            for function in ("registerConsumer", "readyToReceive"):
                message = {"f": f"futoin.evt.push:1.1:{function}", "p": {"component": "Good"}, "rid": "C1"}
                connection.send(json.dumps(message).encode())
                reply = json.loads(connection.recv(timeout=TIMEOUT_S))
                assert reply.get("r") is True, reply
            while not self._ending.is_set():
                try:
                    message = json.loads(connection.recv(timeout=0.2))
                except TimeoutError:
                    continue
                for event in message["p"]["events"]:
                    self.note(json.dumps(event).encode())
                connection.send(json.dumps({"r": True, "rid": message["rid"]}).encode())


class CneWriter(Writer):
    name = "cne"

    def _append(self, marker: str) -> bool:
        value = {"ResourceAddress": RESOURCE, "data_type": "notification", "value_type": "enumeration", "value": marker}
        event = {
            "specversion": "1.0",
            "id": marker,
            "type": "good",
            "source": RESOURCE,
            "time": "2026-01-01T00:00:00Z",
            "data": {"version": "1.0", "values": [value]},
        }
        ask(self.place, "POST", "/ocloudNotifications/v2/create/event", event, "application/cloudevents+json")
        return True


class CneReader(Reader):
    """A webhook: each event at least once, those of one resource."""

    name = "cne"
    writers = frozenset({"cne"})

    def _live(self) -> None:
        reader = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                reader.note(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as webhook:
            webhook.daemon_threads = True
            serving = threading.Thread(target=webhook.serve_forever, daemon=True)
            serving.start()
            ask(self.place, "POST", "/ocloudNotifications/v1/publishers", {"resource": RESOURCE})
            registration = {"ResourceAddress": RESOURCE, "EndpointUri": f"http://127.0.0.1:{webhook.server_port}/hook"}
            ask(self.place, "POST", "/ocloudNotifications/v2/subscriptions", registration)
            self.is_ready.set()
            self._ending.wait()
            webhook.shutdown()


class FlightWriter(Writer):
    name = "flight"

    def _live(self) -> None:
        place = self.place
        with BulkClient(place.flight, user=place.user, password=place.password, timeout_s=TIMEOUT_S) as client:
            self._client = client
            super()._live()

    def _append(self, marker: str) -> bool:
        columns = {
            "type": pa.array(["Good"]),
            "data": pa.array([json.dumps(marker).encode()], pa.binary()),
            "id": pa.array([marker]),
            "source": pa.array(["flight"]),
        }
        self._client.append(LOG, [pa.record_batch(columns)], on_duplicate="skip")
        return True


class FlightReader(Reader):
    name = "flight"

    def _live(self) -> None:
        place, after = self.place, 0
        with BulkClient(place.flight, user=place.user, password=place.password, timeout_s=TIMEOUT_S) as client:
            while not self._ending.wait(0.1):
                for batch in client.read(Ticket(LOG, after=after, columns=("sequence_number", "data"))):
                    for row in batch.to_pylist():
                        self.note(row["data"])
                        after = row["sequence_number"]


def ask(place: Place, method: str, path: str, body: object, media_type: str = "application/json") -> None:
    """One HTTP request, which must succeed; a server that is too busy is asked again."""
    headers = {"content-type": media_type, "authorization": place.authorization}
    request = Request(f"{place.http}{path}", json.dumps(body).encode(), headers, method=method)
    with urlopen(request, timeout=TIMEOUT_S) as answer:
        answer.read()


WRITERS: tuple[type[Writer], ...] = (DcbWriter, AmqpWriter, FutoinWriter, CneWriter, FlightWriter)
READERS: tuple[type[Reader], ...] = (DcbReader, AmqpReader, FutoinReader, CneReader, FlightReader)
