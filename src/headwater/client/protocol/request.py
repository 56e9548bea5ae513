"""A request to a server before it is sent: a route, a body, a head, and how to decode its answer. No I/O."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from ...formats.clients.answer import Answer
from .address import Address
from .identity import Identity

T = TypeVar("T")

JSON = "application/json"


class Closable(Protocol):
    """A connection, as far as this module needs it."""

    def close(self) -> None:
        """End it."""


class UnderWay:
    """The connection on which the head of an answer is awaited. `close` ends that wait, from any thread or task; a
    connection that was returned stays open.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._connection: Closable | None = None
        self.is_closed = False

    def begin(self, connection: Closable) -> None:
        """A request uses this connection now."""
        with self._changing:
            self._connection = connection
            if self.is_closed:
                connection.close()

    def end(self) -> None:
        """The request is finished."""
        with self._changing:
            self._connection = None

    def close(self) -> None:
        """Close it and any later connection: a waiting request gets ConnectionLost."""
        with self._changing:
            self.is_closed = True
            if self._connection is not None:
                self._connection.close()


class Route(NamedTuple):
    """The common part of all requests of one kind: their head depends only on it and the length of the body."""

    method: str
    path: str
    """Including its query, if any."""
    content_type: str = JSON
    accept: str = JSON


class Request(Struct, Generic[T], frozen=True):
    """One request. It may be repeated, unless `is_sent_once`: an append carries ids by which the log recognises it, and
    most other requests are idempotent.
    """

    route: Route
    body: bytes
    log: str
    """The log that the request is about, or empty. Used in messages."""
    decode: Callable[[Answer], T]
    """Decodes a whole answer whose status is below 300."""
    identity: Identity | None = None
    """The identity of the log, if it must be the same at each address."""
    waits: bool = False
    """Whether its answer may wait for something to happen, so that its duration says nothing about the load."""
    appended_ids: Callable[[], Sequence[str]] | None = None
    """The ids of the events that it appends; None if it appends nothing. If its answer is lost, it is unknown whether
    they are in the log.
    """
    is_sent_once: bool = False
    """Whether repeating it could do harm: delete something created meanwhile, or revert a later change. If so, it is
    not repeated after its answer is lost. """
    deadline: float | None = None
    """The deadline for the head of its answer, by the monotonic clock. None means the timeout of any answer."""
    under_way: UnderWay | None = None
    """Allows another thread or task to end the wait for the head of its answer."""


HEADS_MAX = 1024
"""The maximum number of cached heads, one per route. When there are more, the cache is cleared."""


class Heads:
    """The heads of requests to one address (RFC 9112, 3): the heads of a route differ only in the length of the body.
    Each is made once. Safe to use from any thread."""

    def __init__(self, address: Address) -> None:
        self._path = address.path
        self._fields = f" HTTP/1.1\r\nhost: {address.host_header}\r\nuser-agent: headwater-client\r\n" + (
            f"authorization: {address.authorization}\r\n" if address.authorization else ""
        )
        self._made: dict[Route, tuple[bytes, bytes]] = {}

    def of(self, request: Request[Any]) -> bytes:
        """The head of a request, with the empty line at its end."""
        route = request.route
        bodiless, start = self._made.get(route) or self._start(route)
        return b"%b%d\r\n\r\n" % (start, len(request.body)) if request.body else bodiless

    def _start(self, route: Route) -> tuple[bytes, bytes]:
        """The head of a request without a body, and that of one with a body up to its length."""
        text = f"{route.method} {self._path}{route.path}{self._fields}accept: {route.accept}\r\n"
        bodiless = text + ("\r\n" if route.method == "GET" else "content-length: 0\r\n\r\n")
        with_body = f"{text}content-type: {route.content_type}\r\ncontent-length: "
        start = bodiless.encode("latin-1"), with_body.encode("latin-1")
        if "?" not in route.path:  # a head with a query differs each time
            if len(self._made) >= HEADS_MAX:
                self._made.clear()
            self._made[route] = start
        return start
