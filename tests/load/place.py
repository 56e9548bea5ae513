"""Where a server is, and who asks: all that a load needs to know of it."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_websocket

from headwater.amqp.client import Client as AmqpClient
from headwater.client import Server, connect
from headwater.flight.client import BulkClient

LOG = "orders"
RESOURCE = "/good/resource"
TIMEOUT_S = 300.0


class Place(NamedTuple):
    http: str
    amqp: str
    flight: str
    user: str
    password: str

    @property
    def authorization(self) -> str:
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"

    def head(self, request: str, *more: str, is_known: bool = True) -> bytes:
        """Of an HTTP request, such as `GET /logs`."""
        known = [f"authorization: {self.authorization}"] if is_known else []
        return "\r\n".join([f"{request} HTTP/1.1", "host: localhost", *known, *more, "", ""]).encode()

    def client(self, addresses: str = "", **options: Any) -> Server:
        """A client over HTTP, of other addresses if they are given."""
        options = {"timeout_s": TIMEOUT_S, **options}
        return connect(addresses or self.http, user=self.user, password=self.password, **options)

    def amqp_client(self, **options: Any) -> AmqpClient:
        options = {"timeout_s": TIMEOUT_S, **options}
        return AmqpClient(self.amqp.replace("://", f"://{self.user}:{self.password}@"), **options)

    def bulk_client(self, **options: Any) -> BulkClient:
        return BulkClient(self.flight, user=self.user, password=self.password, timeout_s=TIMEOUT_S, **options)

    def websocket(self, log: str, **options: Any) -> AbstractContextManager[ClientConnection]:
        """A connection to a log's FutoIn endpoint, as the context manager opens it."""
        url = f"ws{self.http.removeprefix('http')}/futoin/{log}"
        headers = {"authorization": self.authorization}
        options = {"open_timeout": TIMEOUT_S, "ping_timeout": None, **options}
        return connect_websocket(url, additional_headers=headers, compression=None, **options)


def ask(
    place: Place,
    method: str,
    path: str,
    body: Any = None,
    media_type: str = "application/json",
    *,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """The answer to one HTTP request, which must succeed; a body that is no bytes goes as JSON."""
    headers = {"content-type": media_type, "authorization": place.authorization}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    with urlopen(Request(f"{place.http}{path}", data, headers, method=method), timeout=timeout_s) as answer:
        content: bytes = answer.read()
    return content


def call(function: str, rid: str = "C1", **given: Any) -> bytes:
    """A message that calls a function of FutoIn."""
    return json.dumps({"f": function, "p": given, "rid": rid}).encode()


def push_calls(component: str) -> list[bytes]:
    """What a consumer of FutoIn says before it gets pushes."""
    functions = ("registerConsumer", "readyToReceive")
    return [call(f"futoin.evt.push:1.1:{function}", component=component) for function in functions]


def current_state(place: Place) -> Any:
    """What the notification API says of the resource that nodes tell about."""
    return json.loads(ask(place, "GET", f"/ocloudNotifications/v2{RESOURCE}/CurrentState"))
