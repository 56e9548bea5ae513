"""A primary and a replica of a home without a home: what they share is a secret, and one clock."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from headwater.amqp.connections.transport import Attach
from headwater.amqp.container import Container
from headwater.amqp.redirect import Elsewhere
from headwater.core.watch.notification_types import NotificationType
from headwater.homes.home_secret import HomeSecret, ensure_secret
from headwater.server.process.event_loop import EventLoop
from headwater.server.replicas.amqp import ReplicaReception
from headwater.server.replicas.forwarded_connection import ForwardedConnections
from headwater.server.replicas.origin_header import Origins, origin_header
from headwater.server.replicas.origin_reception import OriginReception
from headwater.storage.memory import MemoryState

from ...amqp.served import Served

_STATE = MemoryState()
ensure_secret(_STATE)
HOME = HomeSecret(_STATE)
SECRET = HOME.value or b""
PLAIN = b"AMQP\x00\x01\x00\x00"
"""How a client begins that does not log in, and what it is answered."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def header(client: tuple[str, int] = ("198.51.100.7", 50123), secret: bytes = SECRET) -> bytes:
    """What a replica sends before a client's bytes."""
    replica = ("2001:db8::1", 5672) if ":" in client[0] else ("192.0.2.1", 5672)
    return origin_header(secret, client, replica, now_ms())


class Place(Served):
    """A server of a home, and the connections that it refused."""

    def __init__(self, **options: Any) -> None:
        super().__init__(loop=EventLoop, **options)
        self.refusals: list[dict[str, Any]] = []
        self.bus.subscribe(
            lambda told: self.refusals.append(dict(told.attributes)), (NotificationType.CONNECTION_REFUSED,)
        )

    def knock(self, *first: bytes) -> socket.socket:
        """A connection on which that was sent, each in a packet of its own."""
        peer = socket.create_connection(("127.0.0.1", self.port), 10)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for data in first:
            peer.sendall(data)
        return peer

    @property
    def peers(self) -> list[tuple[str, int | None]]:
        """The addresses of the clients of its open connections."""
        return sorted((each.peer, each.port) for each in tuple(self.container.connections))


def primary(**options: Any) -> Place:
    """A server that believes the headers of others."""
    return Place(reception=_believing, **options)


def replica(url: Callable[[], str | None], forwards: bool = True, **options: Any) -> Place:
    """A server that forwards connections to the primary at that URL."""
    return Place(reception=partial(_forwarding, url, forwards), **options)


def forwarded(place: Place) -> ForwardedConnections:
    """The connections that a replica forwards."""
    reception = place.reception
    assert isinstance(reception, ReplicaReception)
    assert reception.forwarded is not None
    return reception.forwarded


def _believing(container: Container, attach: Attach) -> OriginReception:
    return OriginReception(container, attach, Origins(HOME, now_ms))


def _forwarding(
    url: Callable[[], str | None], forwards: bool, container: Container, attach: Attach
) -> ReplicaReception:
    found = ForwardedConnections(container.shared.settings, container.shared.memory, HOME, now_ms, url)
    elsewhere = Elsewhere(url, lambda _: None)
    return ReplicaReception(container, attach, Origins(HOME, now_ms), elsewhere, found if forwards else None)
