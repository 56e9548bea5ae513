"""Neighbours that read, one of each protocol."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from websockets.sync.client import ClientConnection

from headwater.amqp.client import Client, Receiver
from headwater.client import connect
from headwater.flight.client import BulkClient, Ticket
from tests.amqp.asking import EARLIEST, OFFSET, after, annotation

from .neighbours import RESOURCE, TIMEOUT_S, Reader, ask


class DcbReader(Reader):
    name = "dcb"

    def _live(self) -> None:
        place = self.place
        with (
            connect(place.http, user=place.user, password=place.password, timeout_s=TIMEOUT_S) as server,
            server.log(self.log).subscribe(after=self.after) as subscription,
        ):
            while not self._ending.is_set():
                for event in subscription.poll(0.2):
                    subscription.cursor = max(subscription.cursor, event.sequence_number)
                    self.note(event.sequence_number, event.data)


class AmqpReader(Reader):
    name = "amqp"

    def _receiver(self, client: Client) -> Receiver:
        return client.receiver(self.log, filter=after(self.after) if self.after else EARLIEST)

    def _live(self) -> None:
        with self.place.amqp_client(timeout_s=TIMEOUT_S) as client:
            receiver = self._receiver(client)
            while not self._ending.is_set():
                for delivery in receiver.take(1, 0.2):
                    self.note(int(annotation(delivery, OFFSET)), b"".join(delivery.message.body))
                    delivery.settle()


class FutoinReader(Reader):
    """A reliable consumer: a group that it did not acknowledge comes again, under the same number."""

    name = "futoin"
    component: ClassVar[str] = "Good"

    def _live(self) -> None:
        with self.place.websocket(self.log, open_timeout=TIMEOUT_S, max_size=None, ping_timeout=None) as connection:
            for function in ("registerConsumer", "readyToReceive"):
                message = {"f": f"futoin.evt.push:1.1:{function}", "p": {"component": self.component}, "rid": "C1"}
                connection.send(json.dumps(message).encode())
                reply = json.loads(connection.recv(timeout=TIMEOUT_S))
                if reply.get("r") is not True and "stopping" in reply.get("edesc", ""):
                    raise ConnectionError(reply["edesc"])
                assert reply.get("r") is True, reply
            due = 0
            while not self._ending.is_set():
                due += self._take(connection, due)

    def _take(self, connection: ClientConnection, due: int) -> bool:
        """Whether a group came and was acknowledged; it must have the number that is due."""
        try:
            message = json.loads(connection.recv(timeout=0.2))
        except TimeoutError:
            return False
        assert message["p"]["seq"] == due, f"group {message['p']['seq']} came where {due} was due"
        for event in message["p"]["events"]:
            self.note(int(event["id"]), json.dumps(event).encode())
        is_taken = self.takes(self.after)
        connection.send(json.dumps({**({"r": True} if is_taken else {"e": "Refused"}), "rid": message["rid"]}).encode())
        return is_taken

    def takes(self, number: int) -> bool:
        """Whether to acknowledge everything up to that number."""
        return True


class CneReader(Reader):
    """A webhook: each event at least once, those of one resource."""

    name = "cne"
    writers = frozenset({"cne"})

    def _live(self) -> None:
        reader = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with suppress(ConnectionError):  # the server was killed
                    super().handle()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if body:  # the first call is only to see whether it is there
                    reader.note(int(json.loads(body)["sequence"]), body)
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


class FlightReader(Reader):
    name = "flight"

    def _live(self) -> None:
        place = self.place
        with BulkClient(place.flight, user=place.user, password=place.password, timeout_s=TIMEOUT_S) as client:
            while not self._ending.wait(0.1):
                ticket = Ticket(self.log, after=self.after, columns=("sequence_number", "data"))
                for batch in client.read(ticket):
                    for row in batch.to_pylist():
                        self.note(row["sequence_number"], row["data"])


READERS: tuple[type[Reader], ...] = (DcbReader, AmqpReader, FutoinReader, CneReader, FlightReader)
