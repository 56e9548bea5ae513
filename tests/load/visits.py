"""Short visits by each protocol: something is asked for, and the connection is left, politely or not."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from headwater.amqp.client import Client
from headwater.flight.client import Ticket
from tests.amqp.asking import EARLIEST

from .place import LOG, TIMEOUT_S, Place, ask

Visit = Callable[[Place, bool], None]
"""Of a place; whether it is polite."""


def amqp(place: Place, is_polite: bool) -> None:
    """A sender and a receiver, with messages on their way."""
    with _amqp_client(place, is_polite) as client:
        client.sender(LOG)
        client.receiver(LOG, filter=EARLIEST).take(1)


def management(place: Place, is_polite: bool) -> None:
    """A listener, and a question."""
    with _amqp_client(place, is_polite) as client:
        client.receiver("$events")
        assert client.manage("READ", type="io.headwater.log", name=LOG).status == 200


def http(place: Place, is_polite: bool) -> None:
    """A few events, read by the client."""
    with place.client(retry_s=0) as server:
        reading = server.log(LOG).read(limit=10)
        if is_polite:
            list(reading)


def subscription(place: Place, is_polite: bool) -> None:
    """Server-Sent Events from the first on, of which a part is taken."""
    parts = urlsplit(place.http)
    request = f"GET /logs/{LOG}/subscribe?query=all&after=0 HTTP/1.1\r\nhost: {parts.netloc}\r\n"
    with socket.create_connection((parts.hostname, parts.port), TIMEOUT_S) as connection:
        connection.sendall(f"{request}authorization: {place.authorization}\r\n\r\n".encode())
        assert connection.recv(1024).startswith(b"HTTP/1.1 200")
        if is_polite:
            connection.shutdown(socket.SHUT_WR)


def futoin(place: Place, is_polite: bool) -> None:
    """What happens from now on, over a WebSocket."""
    with place.websocket(LOG, max_size=None, close_timeout=1) as connection:
        for function in ("registerConsumer", "readyToReceive"):
            message = {"f": f"futoin.evt.push:1.1:{function}", "p": {"component": "LIVE"}, "rid": "C1"}
            connection.send(json.dumps(message).encode())
            connection.recv(timeout=TIMEOUT_S)
        if not is_polite:
            connection.socket.shutdown(socket.SHUT_RDWR)


def cne(place: Place, _is_polite: bool) -> None:
    """A look at the subscriptions."""
    ask(place, "GET", "/ocloudNotifications/v2/subscriptions")


def flight(place: Place, is_polite: bool) -> None:
    """A bulk read: of a few events, or of all, of which a part is taken."""
    with place.bulk_client(retries=0) as client:
        upto = 100 if is_polite else None
        for _batch in client.read(Ticket(LOG, upto=upto, columns=("sequence_number", "data"))):
            if not is_polite:
                return


@contextmanager
def _amqp_client(place: Place, is_polite: bool) -> Iterator[Client]:
    client = place.amqp_client()
    try:
        yield client
        if is_polite:
            client.close()
    finally:
        client.drop()


VISITS: Mapping[str, Visit] = {
    "amqp": amqp,
    "management": management,
    "http": http,
    "subscription": subscription,
    "futoin": futoin,
    "cne": cne,
    "flight": flight,
}
