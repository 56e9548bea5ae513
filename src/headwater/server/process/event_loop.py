"""The server's event loop: uvloop, with an accept queue that is fair to the places from which connections come.

libuv accepts one connection in each turn of the loop, on every listening socket. A connection waits in one queue of the
operating system behind all earlier ones: measured, for 13 s behind a peer that opens hundreds per second, where a turn
takes 10 ms. Here many are accepted in a turn, and opened place after place.

    event                    queue of accepted sockets                     queue of TLS handshakes
    -----------------------  --------------------------------------------  --------------------------------------------
    the socket is readable   up to `ACCEPTED_MAX`, or for `ACCEPTING_S`,   -
                             are added
    more than the maximum    the oldest of the place with most is closed   the oldest of the place with most is closed
      (`WAITING_MAX`,
      `OPENING_MAX`)
    a turn of the loop       `OPENED_MAX` are taken                        those are added
    the handshake ends       -                                             it is removed
    no descriptor is free    none is added for `NO_ROOM_PAUSE_S`           -

Rules: the place whose turn it is gives one, and is last then. Of a place the oldest is first; but if `MANY` wait, the
newest (adaptive LIFO): it waits for certain, while the oldest may have gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import uvloop

from ...core.client_subnet import place_of
from .sockets import BACKLOG

logger = logging.getLogger("headwater.server")

ACCEPTED_MAX = 64
"""Connections that one turn of the loop accepts on one socket, at most; each costs some 15 us."""
ACCEPTING_S = 0.001
"""How long it goes on accepting: each time other threads may take the interpreter, and keep it for half of that."""
OPENED_MAX = 1
"""Connections that one turn opens on one socket, at most: each costs 0.2 to 0.5 ms until its first request is read."""
WAITING_MAX = 1024
"""Connections that are accepted and not opened. Of more, the oldest of the place that has most is dropped: it has
waited in vain for a second or more behind those of its own place."""
OPENING_MAX = 512
"""Connections on which TLS is not agreed on yet: each costs a descriptor and some 0.1 MB, and nobody knows more of it
than its place. Of more, the oldest of the place that has most is dropped."""
MANY = 64
"""From how many that wait of one place on the newest of them is first."""
LOCAL = "local"
"""The place of all who come over a Unix socket."""
NO_ROOM_PAUSE_S = 0.5
"""How long nobody is accepted after the operating system had no room for one more: those who knock wait meanwhile."""
_OF_ONE_NAMES = "ECONNABORTED EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH ENONET ENOPROTOOPT EOPNOTSUPP EPERM EPROTO"
_OF_ONE = frozenset(getattr(errno, name) for name in _OF_ONE_NAMES.split() if hasattr(errno, name))
"""What went wrong with one connection only, which accept(2) tells, too: the next ones are no worse for it."""

Protocols = Callable[[], asyncio.BaseProtocol]
T = TypeVar("T", bound=Hashable)


class EventLoop(uvloop.Loop):
    """uvloop's, with servers of its own for sockets that are bound already."""

    async def create_server(self, protocol_factory: Protocols, *args: Any, **options: Any) -> Any:
        """As in `asyncio`; with `sock` it is a `BoundListener`, with `ssl`, `ssl_handshake_timeout` and `backlog`."""
        if (sock := options.get("sock")) is None:
            return await super().create_server(protocol_factory, *args, **options)
        if sock.family == socket.AF_UNIX:
            options["ssl"] = None  # what is said there leaves the machine never
        return BoundListener(self, protocol_factory, **options)


class BoundListener(asyncio.AbstractServer):
    """Accepts the connections of one bound socket, until `close`: a server as asyncio knows it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocols: Protocols,
        *,
        sock: socket.socket,
        ssl: ssl.SSLContext | None = None,
        ssl_handshake_timeout: float | None = None,
        backlog: int = BACKLOG,
    ) -> None:
        """`protocols` makes the protocol of each connection."""
        self._loop, self._protocols, self._socket = loop, protocols, sock
        self._tls: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": ssl_handshake_timeout} if ssl else {}
        self._waiting: PendingConnections[socket.socket] = PendingConnections()
        self._opening: PendingConnections[asyncio.Task[None]] = PendingConnections()
        self._is_reading = self._is_due = False
        self._pause: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        sock.listen(backlog)
        self._read()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether connections are accepted: until `close`."""
        return self._socket.fileno() >= 0

    async def start_serving(self) -> None:
        """Does nothing: it accepts from the beginning."""

    async def serve_forever(self) -> None:
        """Serve until this is cancelled; then close."""
        try:
            await self._loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        """Accept no more connections, and drop those that are not opened yet; the others stay. May be called again."""
        if self._socket.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._rest()
        self._socket.close()
        while self._waiting:
            self._waiting.take()[1].close()
        for opening in self._opening:
            opening.cancel()

    async def wait_closed(self) -> None:
        """Wait until what `close` has dropped is gone."""
        while self._opening:
            await asyncio.wait(tuple(self._opening))

    def _read(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._socket, self._accept)

    def _rest(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket)

    def _accept(self) -> None:
        """Accept those who knock, and open some: the rest in the next turn."""
        until = time.perf_counter() + ACCEPTING_S
        for _ in range(ACCEPTED_MAX):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in _OF_ONE:
                    continue
                self._wait(error)  # no descriptor, no memory: what is there stays, and may go meanwhile
                break
            self._waiting.add(place_of(address[0] if isinstance(address, tuple) else LOCAL), connection)
            if len(self._waiting) > WAITING_MAX:
                self._waiting.take_surplus().close()
            if time.perf_counter() > until:
                break
        if not self._is_due:
            self._open_some()

    def _wait(self, error: OSError) -> None:
        logger.warning("no connection can be accepted for %s s: %s", NO_ROOM_PAUSE_S, error)
        self._rest()
        self._pause = self._loop.call_later(NO_ROOM_PAUSE_S, self._read)

    def _open_some(self) -> None:
        self._is_due = False
        for _ in range(min(OPENED_MAX, len(self._waiting))):
            place, connection = self._waiting.take()
            opening = self._loop.create_task(self._open(place, connection))
            self._opening.add(place, opening)
            opening.add_done_callback(partial(self._opened, place, connection))
            if len(self._opening) > OPENING_MAX:
                self._opening.take_surplus().cancel()
        if self._waiting:
            self._is_due = True
            self._loop.call_soon(self._open_some)

    def _opened(self, place: str, connection: socket.socket, opening: asyncio.Task[None]) -> None:
        self._opening.discard(place, opening)
        if opening.cancelled():
            connection.close()  # if it was not begun with; else its transport does so

    async def _open(self, place: str, connection: socket.socket) -> None:
        opening = asyncio.current_task()
        assert opening is not None

        def made() -> bool:
            self._opening.discard(place, opening)
            return not opening.cancelling()

        connection.setblocking(False)
        with contextlib.suppress(OSError):  # who came has gone, and the loop finds out
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError, ssl.SSLError, asyncio.TimeoutError):  # gone, or speaks no TLS
            await self._loop.connect_accepted_socket(lambda: _Newcomer(self._protocols, made), connection, **self._tls)


class _Newcomer(asyncio.Protocol):
    """Stands for the protocol of a connection until that is made, which ends its opening.

    uvloop closes the transport of an opening that is cancelled without `connection_lost`, even after `connection_made`.
    So an opening is cancelled until here only, and one that was cancelled in the same moment makes no connection.
    """

    def __init__(self, protocols: Protocols, made: Callable[[], bool]) -> None:
        self._protocols, self._made = protocols, made

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        if self._made():
            protocol = self._protocols()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
        else:
            transport.abort()


class PendingConnections(Generic[T]):
    """What is under way to a connection (a socket, say), by the place that it comes from."""

    def __init__(self) -> None:
        self._places: dict[str, dict[T, None]] = {}
        """In the order in which it is their turn; of each, in the order in which they came."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter([each for waiting in self._places.values() for each in waiting])

    def add(self, place: str, one: T) -> None:
        """One more."""
        self._count += 1
        self._places.setdefault(place, {})[one] = None

    def take(self) -> tuple[str, T]:
        """The place whose turn it is, and its next one."""
        place = next(iter(self._places))
        waiting = self._places.pop(place)
        one = next(reversed(waiting)) if len(waiting) >= MANY else next(iter(waiting))
        self._places[place] = waiting
        self.discard(place, one)
        return place, one

    def take_surplus(self) -> T:
        """The oldest of the place that has most."""
        place = max(self._places, key=lambda each: len(self._places[each]))
        one = next(iter(self._places[place]))
        self.discard(place, one)
        return one

    def discard(self, place: str, one: T) -> None:
        """It is over; does nothing if it was taken."""
        waiting = self._places.get(place, {})
        if one in waiting:
            del waiting[one]
            self._count -= 1
            if not waiting:
                del self._places[place]
