"""One server with all its ports, and how the tests talk to it with nothing but sockets and documents."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headwater.amqp.client import Client
from headwater.client import RemoteLog, connect
from headwater.core import LogSettings
from headwater.core.event import SequencedEvent
from headwater.flight.client import BulkClient
from tests.server.running import RunningServer

from .cases import MIB, Case

LOG = "matrix"
PARTITIONS = 4
CNE = "/api/ocloudNotifications/v2"
SILENCE_S_MAX = 60.0
ARGUMENTS = ("--data", "data", "--cne-log", LOG, "--cne-retry-ms-max", "100ms", "--flight-enabled", "true",
             "--flight-port", "0")  # fmt: skip


class Answer:
    """An answer over HTTP."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self) -> Any:
        """The document in the body."""
        return json.loads(self.body)


class Refused(Exception):
    """A writer was told that the event cannot be taken."""


class Webhook:
    """A local web server that takes whatever is sent to it, while it `is_up`."""

    def __init__(self) -> None:
        self.is_up = True
        self.bodies: list[bytes] = []
        self.heads: list[Mapping[str, str]] = []
        """Header fields of the requests that had these, by name in lower case."""
        self.changed = threading.Condition()
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # who sends was killed
                    super().handle()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if not webhook.is_up:
                    self.close_connection = True
                    return
                self.send_response(204)
                self.end_headers()
                with webhook.changed:
                    if body:
                        webhook.bodies.append(body)
                        webhook.heads.append({name.lower(): value for name, value in self.headers.items()})
                    webhook.changed.notify_all()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}/event"

    def take(self, timeout_s: float) -> list[bytes]:
        """What came since this was asked last; where nothing did, it waits so long for it."""
        with self.changed:
            self.changed.wait_for(lambda: self.bodies, timeout_s)
            taken, self.bodies = self.bodies, []
            return taken

    def until(self, number: int) -> None:
        """Wait until the event of that number came."""
        text = f'"sequence":"{number:018d}"'.encode()
        with self.changed:
            assert self.changed.wait_for(lambda: any(text in body for body in self.bodies), SILENCE_S_MAX), number

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class World:
    """A server, its log, and what was written there."""

    def __init__(self, server: RunningServer) -> None:
        self.url = server.url
        self.amqp_url = server.further_url("amqp")
        self.flight_url = server.further_url("grpc")
        self.client = connect(self.url)
        self.log: RemoteLog = self.client.create(LOG, LogSettings(partitions=PARTITIONS, event_bytes_max=2 * MIB))
        self.amqp = Client(self.amqp_url, timeout_s=SILENCE_S_MAX)
        self.bulk = BulkClient(self.flight_url)
        self.webhook = Webhook()
        self.written: dict[tuple[str, str], int] = {}
        """Numbers by writer and case."""
        self.refused: dict[tuple[str, str], str] = {}
        """Why, by writer and case."""
        self.events: dict[int, SequencedEvent] = {}
        """What the log has, as its own client reads it."""

    def close(self) -> None:
        """Let go of all connections."""
        self.amqp.close()
        self.bulk.close()
        self.client.close()
        self.webhook.close()

    def call(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """One request, with these header fields and no others of meaning."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=SILENCE_S_MAX)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            return Answer(connection.getresponse())

    def post(self, path: str, document: object) -> Answer:
        """Send a JSON document."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.call("POST", path, body, {"content-type": "application/json"})

    def listen(self) -> None:
        """Register the webhook for all that is said of synchronisation, wherever it is said."""
        assert (
            self.post(f"{CNE}/publishers", {"ResourceAddress": "/east/any/sync/sync-status/sync-state"}).status == 201
        )
        made = self.post(f"{CNE}/subscriptions", {"EndpointUri": self.webhook.url, "ResourceAddress": "/sync"})
        assert made.status == 201, made.headers

    def write(self, writer: Any, case: Case) -> int:
        """Have it written; answers its number."""
        before = self.log.head()
        writer.write(self, case)
        number = self.log.head()
        assert number == before + 1, f"{writer.name} made {number - before} events of {case.name}"
        self.written[writer.name, case.name] = number
        return number

    def write_or_not(self, writer: Any, case: Case) -> None:
        """Have it written, and note if it was refused; then nothing may have been written."""
        before = self.log.head()
        try:
            self.write(writer, case)
        except Refused as refused:
            self.refused[writer.name, case.name] = str(refused)
            assert self.log.head() == before, f"{writer.name} was refused {case.name}, but it is there"

    def look(self) -> None:
        """Read what is there now."""
        self.events = {event.sequence_number: event for event in self.log.read()}


@contextlib.contextmanager
def served(directory: Path, *arguments: str, program: Sequence[str] | None = None) -> Iterator[World]:
    """A world of its own."""
    with RunningServer(*ARGUMENTS, *arguments, cwd=directory, program=program) as server:
        world = World(server)
        try:
            yield world
        finally:
            world.close()
