"""The ways in and out of a server: what sends an event each way, or reads it, and waits until that is done."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from websockets.sync.client import connect

from headwater.amqp.client import Client
from headwater.amqp.protocol.message import Message, Properties
from headwater.flight.client import BulkClient
from headwater.flight.wire import Ticket
from tests.amqp.asking import EARLIEST
from tests.server.running import SILENCE_S_MAX

LOG, COMPONENT = "l", "C"
NOTIFICATIONS = "/api/ocloudNotifications/v2"
RESOURCE = "/cluster/node/{}/sync/sync-status/sync-state"
ADD, POLL = "futoin.evt.gen:1.1:addEvent", "futoin.evt.poll:1.1:pollEvents"
REGISTER = "futoin.evt.poll:1.1:registerConsumer"

Send = Callable[[int], object]
"""Sends so many events, or reads so many, one after the other."""


@contextmanager
def ways(http: str, amqp: str, flight: str) -> Iterator[dict[str, Send]]:
    """By name, of a server with the log LOG. Those that append come first, so that those that read have events."""
    with ExitStack() as ending:
        connection = ending.enter_context(closing(HTTPConnection(urlsplit(http).netloc, timeout=SILENCE_S_MAX)))
        client = ending.enter_context(Client(amqp))
        websocket = ending.enter_context(connect(f"ws{http.removeprefix('http')}/futoin/{LOG}", compression=None))
        bulk = ending.enter_context(BulkClient(flight))
        receiver = ending.enter_context(_receiver())
        yield {
            **_http(connection),
            **_amqp(client),
            **_futoin(websocket),
            **_notifications(connection, receiver),
            **_flight(bulk),
        }


def _post(connection: HTTPConnection, path: str, body: object) -> bytes:
    connection.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
    answer = connection.getresponse()
    found = answer.read()
    assert answer.status < 300, f"POST {path}: {answer.status} {found!r}"
    return found


def _http(connection: HTTPConnection) -> dict[str, Send]:
    event = {"type": "OrderPlaced", "data": "7", "tags": ["order:7"]}

    def append(count: int) -> None:
        for _ in range(count):
            _post(connection, f"/logs/{LOG}/append", {"events": [event]})

    def read(count: int) -> None:
        for _ in range(count):
            assert b"OrderPlaced" in _post(connection, f"/logs/{LOG}/read", {"query": "all", "limit": 1})

    return {"HTTP append": append, "HTTP read": read}


def _amqp(client: Client) -> dict[str, Send]:
    sender = client.sender(LOG)

    def send(count: int) -> None:
        for _ in range(count):
            sender.send(Message([b"{}"], properties=Properties(subject="OrderPlaced")))

    def receive(count: int) -> None:
        receiver = client.receiver(LOG, filter=EARLIEST)
        for delivery in receiver.take(count, SILENCE_S_MAX):
            delivery.settle()
            count -= 1
        assert not count, f"{count} events did not come over AMQP"
        receiver.close()

    return {"AMQP in": send, "AMQP out": receive}


def _futoin(websocket: Any) -> dict[str, Send]:
    def call(function: str, **parameters: object) -> Any:
        websocket.send(json.dumps({"f": function, "p": parameters, "rid": "C1"}).encode())
        answer = json.loads(websocket.recv(timeout=SILENCE_S_MAX))
        assert "r" in answer, f"{function}: {answer}"
        return answer["r"]

    def add(count: int) -> None:
        for _ in range(count):
            call(ADD, type="ORDER", data={"order": 7})

    def poll(count: int) -> None:
        while count > 0:
            count -= len(call(POLL, component=COMPONENT, want=["ORDER"]))

    call(REGISTER, component=COMPONENT)
    return {"FutoIn add": add, "FutoIn poll": poll}


def _notifications(connection: HTTPConnection, receiver: _Receiver) -> dict[str, Send]:
    def sender(node: str) -> Send:
        address = RESOURCE.format(node)
        made = json.loads(_post(connection, f"{NOTIFICATIONS}/publishers", {"ResourceAddress": address}))
        value = {
            "ResourceAddress": address, "data_type": "notification", "value_type": "enumeration", "value": "LOCKED",
        }  # fmt: skip
        event = {
            "id": made["SubscriptionId"],
            "type": "event.sync.sync-status.synchronization-state-change",
            "source": "/sync/sync-status/sync-state",
            "time": "2026-05-06T07:08:09Z",
            "data": {"version": "1.0", "values": [value]},
        }

        def send(count: int) -> None:
            for _ in range(count):
                _post(connection, f"{NOTIFICATIONS}/create/event", event)

        send(1)  # a subscription gets the state first
        return send

    unheard, heard = sender("unheard"), sender("heard")
    subscription = {"EndpointUri": receiver.url, "ResourceAddress": RESOURCE.format("heard")}
    _post(connection, f"{NOTIFICATIONS}/subscriptions", subscription)
    receiver.wait()

    def send_and_receive(count: int) -> None:
        for _ in range(count):
            heard(1)
            receiver.wait()

    return {"CNE post": unheard, "CNE post and webhook": send_and_receive}


class _Receiver:
    """A subscriber's endpoint, and the notifications that have come."""

    def __init__(self) -> None:
        self._came: queue.SimpleQueue[None] = queue.SimpleQueue()
        came = self._came

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(204)
                self.end_headers()
                if b"LOCKED" in body:
                    came.put(None)

            def log_message(self, format: str, *arguments: object) -> None:
                """Requests are not logged."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/event"

    def wait(self) -> None:
        """Wait for the next notification. Raises queue.Empty where none comes."""
        self._came.get(timeout=SILENCE_S_MAX)


@contextmanager
def _receiver() -> Iterator[_Receiver]:
    receiver = _Receiver()
    with receiver.server as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield receiver
        finally:
            server.shutdown()


def _flight(bulk: BulkClient) -> dict[str, Send]:
    row = pa.record_batch({"type": ["OrderPlaced"], "data": pa.array([b"{}"], pa.binary())})

    def put(count: int) -> None:
        for _ in range(count):
            bulk.append(LOG, [row])

    def get(count: int) -> None:
        for _ in range(count):
            assert sum(batch.num_rows for batch in bulk.read(Ticket(LOG, after=0, upto=1))) == 1

    return {"Flight put": put, "Flight get": get}
