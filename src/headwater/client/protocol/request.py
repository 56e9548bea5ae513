"""What is asked of a server, before anything is sent: a route, a body, a head, and what its answer means. No I/O."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ...formats.clients.answer import Answer
from .address import Address
from .identity import Identity

T = TypeVar("T")

JSON = "application/json"


class Closable(Protocol):
    """A connection, as far as this module knows it."""

    def close(self) -> None:
        """End it."""


class UnderWay:
    """The connection on which the head of an answer is awaited. `close` ends that wait, from any thread or task; a
    connection that was given back stays open.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._connection: Closable | None = None
        self.is_closed = False

    def begin(self, connection: Closable) -> None:
        """A request goes over this one."""
        with self._changing:
            self._connection = connection
            if self.is_closed:
                connection.close()

    def end(self) -> None:
        """It is under way no more."""
        with self._changing:
            self._connection = None

    def close(self) -> None:
        """Close it, and each that comes later: a waiting request gets ConnectionLost."""
        with self._changing:
            self.is_closed = True
            if self._connection is not None:
                self._connection.close()


class Route(NamedTuple):
    """What the requests of one kind have in common: their head depends on nothing else, but the length of the body."""

    method: str
    path: str
    """With its query, if it has one."""
    content_type: str = JSON
    accept: str = JSON


class Request(NamedTuple, Generic[T]):
    """One request. It may be sent again, unless `is_sent_once`: what appends carries ids, by which the log recognises
    it, and of most others a second one does nothing.
    """

    route: Route
    body: bytes
    log: str
    """The log that is asked, or nothing: for messages."""
    decode: Callable[[Answer], T]
    """What a whole answer means, if its status is below 300."""
    identity: Identity | None = None
    """What is known of the log, if it must be the same one at each address."""
    waits: bool = False
    """Whether its answer may wait for something to happen, so that it is no measure of the load."""
    appended_ids: Callable[[], Sequence[str]] | None = None
    """The ids of the events that it puts into the log; None of what appends nothing. If its answer is lost, it is not
    known whether they are there."""
    is_sent_once: bool = False
    """Whether a second one may do something else than the first: take away what somebody made meanwhile, or set back
    what somebody changed. Then it is not sent again where its answer is lost."""
    deadline: float | None = None
    """Until when the head of its answer is awaited, by the monotonic clock; None: as long as any answer."""
    under_way: UnderWay | None = None
    """By which another thread or task ends the wait for the head of its answer."""


HEADS_MAX = 1024
"""Heads that are kept, of as many routes; then all are made anew."""


class Heads:
    """The heads of requests to one address (RFC 9112, 3): but for the length of a body, those of a route are the same.

    Each is made once. Safe to use from any thread.
    """

    def __init__(self, address: Address) -> None:
        self._path = address.path
        self._fields = f" HTTP/1.1\r\nhost: {address.host_header}\r\nuser-agent: headwater-client\r\n" + (
            f"authorization: {address.authorization}\r\n" if address.authorization else ""
        )
        self._made: dict[Route, bytes] = {}

    def of(self, request: Request[Any]) -> bytes:
        """The head of a request, with the empty line at its end."""
        route = request.route
        start = self._made.get(route) or self._start(route)
        if body := request.body:
            return b"%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (start, route.content_type.encode(), len(body))
        return start + (b"\r\n" if route.method == "GET" else b"content-length: 0\r\n\r\n")

    def _start(self, route: Route) -> bytes:
        text = f"{route.method} {self._path}{route.path}{self._fields}accept: {route.accept}\r\n"
        start = text.encode("latin-1")
        if "?" not in route.path:  # another one each time
            if len(self._made) >= HEADS_MAX:
                self._made.clear()
            self._made[route] = start
        return start
