"""What a server and its libraries can do in an environment: `python every_way_in.py HTTP AMQP [GRPC]`, with its Python.

Every module is imported, those of Spark where it is there. Then events go into the log `orders` by each way in,
all are read back, and a webhook is called. Prints the types of the events, in their order.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from typing import Any
from urllib.request import Request, urlopen

import cbor2
import pyarrow
from websockets.sync.client import connect as connect_websocket

import headwater
from headwater.amqp.client import Client
from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.client import connect
from headwater.core import Event
from headwater.flight.client import BulkClient
from headwater.flight.wire import Ticket

LOG = "orders"
PATIENCE_S = 30
RESOURCE = "/././node/sync/sync-state"
NOTIFICATIONS = "/api/ocloudNotifications/v2"


def main(http: str, amqp: str, grpc: str | None = None) -> None:
    """See the module."""
    import_everything()
    with connect(http) as server:
        server.log(LOG).append([Event("PostedOverHttp", b"{}")])
        with Client(amqp) as client:
            client.sender(LOG).send(Message([b"{}"], DATA, properties=Properties(subject="SentOverAmqp")))
        if grpc is not None:
            put_over_flight(grpc)
        add_over_futoin(f"ws{http.removeprefix('http')}/futoin/{LOG}")
        call_a_webhook(http + NOTIFICATIONS)
        print(*(event.type for event in server.log(LOG).read()))


def import_everything() -> None:
    """Every module that is not a program."""
    for module in pkgutil.walk_packages(headwater.__path__, "headwater."):
        is_there = find_spec("pyspark") is not None or not module.name.startswith("headwater.spark.")
        if is_there and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def put_over_flight(url: str) -> None:
    """One event at once, another staged and committed, and both read back."""
    table = pyarrow.table({"type": ["PutOverFlight"], "data": ["{}"]})
    with BulkClient(url) as bulk:
        list(bulk.append(LOG, table))
        staged = bulk.stage(LOG, "writer", 0, 0, 0, table)
        bulk.commit(LOG, "writer", 0, [staged.stage])
        ticket = Ticket(LOG, query="type=PutOverFlight", columns=("type",))
        assert sum(batch.num_rows for batch in bulk.read(ticket)) == 2


def add_over_futoin(url: str) -> None:
    """One event in CBOR, over a WebSocket."""
    call = {"f": "futoin.evt.gen:1.1:addEvent", "p": {"type": "ADDED", "data": {}}, "rid": "C1"}
    with connect_websocket(url) as connection:
        connection.send(b"CBOR" + cbor2.dumps(call))
        answer = connection.recv(PATIENCE_S)
        assert isinstance(answer, bytes) and "r" in cbor2.loads(answer.removeprefix(b"CBOR")), answer


def call_a_webhook(routes: str) -> None:
    """A publisher's notification comes to who subscribed."""
    with webhook() as (uri, heard):
        id = post(f"{routes}/publishers", {"ResourceAddress": RESOURCE})["SubscriptionId"]
        value = {
            "ResourceAddress": RESOURCE,
            "data_type": "notification",
            "value_type": "enumeration",
            "value": "LOCKED",
        }
        data = {"version": "1.0", "values": [value]}
        post(f"{routes}/create/event", {"id": id, "type": "event.sync", "source": "/s", "data": data})
        post(f"{routes}/subscriptions", {"EndpointUri": uri, "ResourceAddress": RESOURCE})
        assert heard.wait(PATIENCE_S), "the webhook was not called"


@contextmanager
def webhook() -> Iterator[tuple[str, threading.Event]]:
    """Its URI, and what is set when a notification has come."""
    heard = threading.Event()

    class Subscriber(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if b"LOCKED" in self.rfile.read(int(self.headers["Content-Length"])):
                heard.set()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Subscriber) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}/", heard
        finally:
            server.shutdown()
            thread.join()


def post(url: str, body: Any) -> Any:
    """The JSON that a POST of JSON is answered; None for an answer without a body."""
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=PATIENCE_S) as answer:
        text = answer.read()
    return json.loads(text) if text else None


if __name__ == "__main__":
    main(*sys.argv[1:])
