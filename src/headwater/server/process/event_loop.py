"""The server's event loop: uvloop, with an accept queue that is fair to the places from which connections come.

libuv accepts one connection in each turn of the loop, on every listening socket. A connection waits in one queue of the
operating system behind all earlier ones: measured, for 13 s behind a peer that opens hundreds per second, where a turn
takes 10 ms. Here many are accepted in a turn, and opened place after place.

    event                    queue of accepted sockets                     queue of TLS handshakes
    -----------------------  --------------------------------------------  --------------------------------------------
    the socket is readable   up to `ACCEPTED_MAX`, or for `ACCEPTING_S`,   -
                             are added
    more than there is room  the oldest of the place with most gets its    the next one of a place waits, or the oldest
      for (`Reception`,        refusal, is counted and closed                makes way (`_make_way`)
      `OPENING_MAX`)
    a turn of the loop       some are taken (`_due`)                       those are added
    the handshake ends       -                                             it is removed
    no descriptor is free    none is added for `NO_ROOM_PAUSE_S`           -

Rules: the place whose turn it is gives one, and is last then. Of a place the oldest is first; but if `MANY` wait, the
newest (adaptive LIFO): it waits for certain, while the oldest may have gone. A waiting one costs a descriptor and
hardly any memory, so a burst waits as long as there is room for its connections. None is closed without being counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop

from ...core.client_subnet import place_of
from ...core.loop.reception import HANDSHAKE, LIMIT, Reception
from .farewells import Farewells
from .pending_connections import PendingConnections
from .sockets import BACKLOG

logger = logging.getLogger("headwater.server")

ACCEPTED_MAX = 64
"""Connections that one turn of the loop accepts on one socket, at most; each costs some 15 us."""
ACCEPTING_S = 0.001
"""How long it goes on accepting: each time other threads may take the interpreter, and keep it for half of that."""
OPENED_MAX = 8
"""Connections that one turn opens on one socket, at most: each costs 0.2 to 0.5 ms until its first request is read."""
OPENED_EACH_S = 0.002
"""One is opened in every turn, and one more for each time as long as this that the turn before took: so opening takes
a fifth of the loop's time, whether turns are short or long, and 2,000 connections take 4 s where turns take 10 ms."""
WAITING_MIN = 512
"""Connections that may wait to be opened even where there is no room: they get their refusals, one by one."""
OPENING_MAX, OPENING_OF_PLACE_MAX = 512, 384
"""Connections on which TLS is not agreed on yet, in all and of one place: each costs some 0.1 MB."""
HANDSHAKE_S = 5.0
"""How long a handshake may take while others of its place wait for their turn."""
BLOCKED_S = 0.25
"""How often connections that make way are looked for, while none may be opened."""
LOCAL = "local"
"""The place of all who come over a Unix socket."""
NO_ROOM_PAUSE_S = 0.5
"""How long nobody is accepted after the operating system had no room for one more: those who knock wait meanwhile."""
_OF_ONE_NAMES = "ECONNABORTED EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH ENONET ENOPROTOOPT EOPNOTSUPP EPERM EPROTO"
_OF_ONE = frozenset(getattr(errno, name) for name in _OF_ONE_NAMES.split() if hasattr(errno, name))
"""What went wrong with one connection only, which accept(2) tells, too: the next ones are no worse for it."""

Protocols = Callable[[], asyncio.BaseProtocol]


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
        """`protocols` makes the protocol of each connection; a `Reception` says how many there may be, too."""
        self._loop, self._socket = loop, sock
        self._reception = protocols if isinstance(protocols, Reception) else Reception(protocols)
        self._tls: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": ssl_handshake_timeout} if ssl else {}
        self._waiting: PendingConnections[socket.socket] = PendingConnections()
        self._opening: PendingConnections[asyncio.Task[None]] = PendingConnections()
        self._farewells = Farewells(loop)
        self._is_reading = self._is_due = False
        self._due_since = 0.0
        self._pause: asyncio.TimerHandle | None = None
        self._blocked: asyncio.TimerHandle | None = None
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
        for timer in (self._pause, self._blocked):
            if timer is not None:
                timer.cancel()
        self._rest()
        self._socket.close()
        self._farewells.close()
        while (found := self._waiting.take()) is not None:
            found[1].close()
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
            if len(self._waiting) > WAITING_MIN and len(self._waiting) + len(self._opening) > self._reception.room:
                self._refuse(*self._waiting.take_surplus(), LIMIT)
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
        if self._socket.fileno() < 0:
            return
        for _ in range(self._due()):
            if (found := self._waiting.take(self._make_way)) is None:
                break
            place, connection = found
            if not self._reception.takes(place, len(self._opening)):
                self._refuse(place, connection, LIMIT)
                continue
            opening = self._loop.create_task(self._open(place, connection))
            self._opening.add(place, opening, self._loop.time())
            opening.add_done_callback(partial(self._opened, place, connection))
        else:
            if self._waiting:
                self._is_due, self._due_since = True, time.perf_counter()
                self._loop.call_soon(self._open_some)
            return
        if self._waiting and self._blocked is None:
            self._blocked = self._loop.call_later(BLOCKED_S, self._unblock)

    def _due(self) -> int:
        """How many may be opened in this turn."""
        turn_s = time.perf_counter() - self._due_since if self._due_since else 0.0
        self._due_since = 0.0
        return min(1 + int(turn_s / OPENED_EACH_S), OPENED_MAX, len(self._waiting))

    def _make_way(self, place: str) -> bool:
        """Whether one more of that place may be opened. Where too many are opening, the oldest makes way: that of a
        place that has more than this one has, or one that has taken long.
        """
        opening = self._opening
        if opening.of(place) >= OPENING_OF_PLACE_MAX:
            rival = place
        elif len(opening) >= OPENING_MAX:
            rival = opening.most()
        else:
            return True
        oldest, since = opening.oldest(rival)
        if opening.of(rival) <= opening.of(place) + 1 and self._loop.time() - since < HANDSHAKE_S:
            return False
        opening.discard(rival, oldest)
        self._reception.refuse(rival, HANDSHAKE)
        oldest.cancel()
        return True

    def _unblock(self) -> None:
        self._blocked = None
        if not self._is_due:
            self._open_some()

    def _refuse(self, place: str, connection: socket.socket, reason: str) -> None:
        """It is not opened: its peer hears why, where that can be read without TLS."""
        words = self._reception.refuse(place, reason)
        self._farewells.tell(connection, b"" if self._tls else words)

    def _opened(self, place: str, connection: socket.socket, opening: asyncio.Task[None]) -> None:
        self._opening.discard(place, opening)
        if self._blocked is not None:
            self._blocked.cancel()
            self._unblock()
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
            await self._loop.connect_accepted_socket(lambda: _Newcomer(self._reception, made), connection, **self._tls)


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
