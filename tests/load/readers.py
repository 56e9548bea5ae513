"""Readers, by protocol."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from websockets.sync.client import ClientConnection

from headwater.amqp.client import Client, Receiver
from headwater.flight.client import Ticket
from tests.amqp.asking import EARLIEST, OFFSET, after, annotation, bound

from .clients import TRIMMED, Reader
from .ledger import Book
from .place import RESOURCE, TIMEOUT_S, Place, ask


class Subscription(Reader):
    """Server-Sent Events; the client connects anew by itself."""

    name = "dcb"

    def _live(self) -> None:
        with (
            self.place.client() as server,
            server.log(self.log).subscribe(after=self.after) as subscription,
        ):
            while not self._ending.is_set():
                for event in subscription.poll(0.2):
                    subscription.cursor = max(subscription.cursor, event.sequence_number)
                    self.note(event.sequence_number, event.data)


class DcbRead(Reader):
    """Reads after what it has, again and again."""

    name = "dcb_read"

    def _live(self) -> None:
        with self.place.client(retry_s=0) as server:
            while not self._ending.wait(0.1):
                for event in server.log(self.log).read(after=self.after):
                    self.note(event.sequence_number, event.data)


class Amqp(Reader):
    """A receiver that resumes from its offset."""

    name = "amqp"

    def _receiver(self, client: Client) -> Receiver:
        return client.receiver(self.log, filter=after(self.after) if self.after else EARLIEST)

    def _live(self) -> None:
        with self.place.amqp_client() as client:
            self._take_from(self._receiver(client))

    def _take_from(self, receiver: Receiver) -> None:
        while not self._ending.is_set():
            for delivery in receiver.take(1, 0.2):
                self.note(int(annotation(delivery, OFFSET)), b"".join(delivery.message.body))
                delivery.settle()


class AmqpGroup(Amqp):
    """The one receiver of a consumer group, which goes on where the group was: the server remembers that."""

    name = "amqp_group"
    may_repeat = True

    def _receiver(self, client: Client) -> Receiver:
        return client.receiver(self.log, filter=None if self.after else EARLIEST, properties=bound(group="soak"))


class FutoinPush(Reader):
    """A reliable consumer: a group that it did not acknowledge comes again, under the same number."""

    name = "futoin"
    component: ClassVar[str] = "Good"
    may_repeat = True
    refuses = 0.005
    """The part of the groups that it does not acknowledge."""

    def _live(self) -> None:
        with self.place.websocket(self.log, max_size=None) as connection:
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
        return self.chance.random() >= self.refuses


class FutoinAgain(FutoinPush):
    """Another consumer, which begins at the first event and acknowledges all."""

    component = "Again"
    refuses = 0.0


class FutoinStrict(FutoinAgain):
    """One that never loses its connection, so that nothing may come again."""

    component = "Strict"
    may_repeat = False


class FutoinTrimmed(FutoinPush):
    """Holds back what may be trimmed: it lets some groups come again."""

    name = "futoin_trimmed"
    log = TRIMMED
    component = "Holding"
    refuses = 0.03

    def __init__(self, place: Place, book: Book, name: str = "") -> None:
        super().__init__(place, book, name)
        self.acknowledged = 0
        """Nothing above this was ever acknowledged."""

    def takes(self, number: int) -> bool:
        if is_taken := super().takes(number):
            self.acknowledged = number
        return is_taken


class FutoinPoll(Reader):
    """A reliable consumer that asks for events over HTTP: what it has is acknowledged by asking for more."""

    name = "futoin_poll"

    def _live(self) -> None:
        self._call("registerConsumer", {"component": "Polling"})
        while not self._ending.wait(0.1):
            while events := self._call(
                "pollEvents", {"component": "Polling", "last_id": str(self.after or "") or None}
            ):
                for event in events:
                    self.note(int(event["id"]), json.dumps(event).encode())

    def _call(self, function: str, parameters: Any) -> Any:
        call = {"f": f"futoin.evt.poll:1.1:{function}", "p": parameters}
        reply = json.loads(ask(self.place, "POST", f"/futoin/{self.log}", call))
        if "stopping" in reply.get("edesc", ""):
            raise ConnectionError(reply["edesc"])
        return reply["r"]


class Webhook(Reader):
    """Gets what happens to one resource, each event at least once."""

    name = "cne"
    writers = frozenset({"cne"})
    may_repeat = True

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


class FlightFollow(Reader):
    """Reads in bulk after what it has, again and again."""

    name = "flight"

    def _live(self) -> None:
        with self.place.bulk_client() as client:
            while not self._ending.wait(0.1):
                ticket = Ticket(self.log, after=self.after, columns=("sequence_number", "data"))
                for batch in client.read(ticket):
                    for row in batch.to_pylist():
                        self.note(row["sequence_number"], row["data"])


READERS: tuple[type[Reader], ...] = (
    *(Amqp, AmqpGroup, DcbRead, Subscription, FutoinPush, FutoinPoll, Webhook, FlightFollow),
)
READERS_AGAIN: tuple[type[Reader], ...] = (Amqp, DcbRead, Subscription, FutoinAgain, FlightFollow)
"""Who read everything once more in the end. Webhooks get nothing twice; for them there is the current state."""
ONE_EACH: tuple[type[Reader], ...] = (Subscription, Amqp, FutoinStrict, Webhook, FlightFollow)
"""One of each protocol, in the order of the writers."""
