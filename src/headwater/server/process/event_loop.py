"""The server's event loop: uvloop, with an accept queue that is fair to the clients' places.

libuv accepts one connection per turn of the loop, on every listening socket. In the operating system's queue a
connection waits behind all earlier ones: measured, for 13 s behind a peer that opens hundreds per second, where a turn
takes 10 ms. Here many are accepted in a turn, and opened place by place.

    event                    queue of accepted sockets                     queue of TLS handshakes
    -----------------------  --------------------------------------------  --------------------------------------------
    the socket is readable   up to `ACCEPTED_MAX`, or for `ACCEPTING_S`,   -
                             are added
    more than there is room  the oldest of the place with most gets its    the next one of a place waits, or the oldest
      for (`Reception`,        refusal, is counted and closed                is closed (`_make_way`)
      `OPENING_MAX`)
    a turn of the loop       some are taken (`_due`)                       those are added
    the handshake ends       -                                             it is removed

A connection also waits in the second queue while its `Reception` looks at its first bytes (`Reception.meet`).
    no descriptor is free    none is added for `NO_ROOM_PAUSE_S`           -

Rules: places take turns, one connection each. The oldest of a place is first; but if `MANY` wait, the newest (adaptive
LIFO): its client is certainly still waiting, while the oldest may have disconnected. A waiting connection costs a
descriptor and hardly any memory, so a burst waits as long as there is room for its connections. Every closed one is
counted.
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
"""The maximum number of connections accepted in one turn on one socket. Each takes about 15 us."""
ACCEPTING_S = 0.001
"""How long a turn accepts connections. At each call another thread may take the interpreter, and keep it for half of
that time.
"""
OPENED_MAX = 8
"""The maximum number of connections opened in one turn on one socket. Each takes 0.2 to 0.5 ms until its first request
is read.
"""
OPENED_EACH_S = 0.002
"""Every turn opens one, and one more each time the turn before took this long: so opening takes a fifth of the loop's
time, whether turns are short or long, and 2,000 connections take 4 s where turns take 10 ms.
"""
WAITING_MIN = 512
"""How many connections may wait to be opened even if there is no room. They are refused one by one."""
OPENING_MAX, OPENING_OF_PLACE_MAX = 512, 384
"""The maximum number of connections in a TLS handshake, in total and from one address. Each uses about 0.1 MB."""
HANDSHAKE_S = 5.0
"""How long a handshake may take while others from its address wait for their turn."""
BLOCKED_S = 0.25
"""How often to check for connections to close, while none may be opened."""
LOCAL = "local"
"""The common address of all clients on a Unix socket."""
NO_ROOM_PAUSE_S = 0.5
"""The pause in accepting after the operating system ran out of resources: new connections wait in its queue."""
_OF_ONE_NAMES = "ECONNABORTED EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH ENONET ENOPROTOOPT EOPNOTSUPP EPERM EPROTO"
_OF_ONE = frozenset(getattr(errno, name) for name in _OF_ONE_NAMES.split() if hasattr(errno, name))
"""Errors of one connection only, which accept(2) also reports: later ones are not affected."""

Protocols = Callable[[], asyncio.BaseProtocol]


class EventLoop(uvloop.Loop):
    """uvloop's loop, with its own servers for bound sockets."""

    async def create_server(self, protocol_factory: Protocols, *args: Any, **options: Any) -> Any:
        """As in `asyncio`; with `sock` it is a `BoundListener`, with `ssl`, `ssl_handshake_timeout` and `backlog`."""
        if (sock := options.get("sock")) is None:
            return await super().create_server(protocol_factory, *args, **options)
        if sock.family == socket.AF_UNIX:
            options["ssl"] = None  # data over a Unix socket never leaves the machine
        return BoundListener(self, protocol_factory, **options)


class BoundListener(asyncio.AbstractServer):
    """Accepts the connections of one bound socket, until `close`: an asyncio server."""

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
        """`protocols` makes the protocol of each connection; a `Reception` also limits their number."""
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
        """Does nothing, because it accepts from the beginning."""

    async def serve_forever(self) -> None:
        """Serve until cancelled; then close."""
        try:
            await self._loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        """Accept no more connections, and drop unopened ones; the others stay. May be called again."""
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
        """Wait until the connections dropped by `close` have ended."""
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
        """Accept new connections, and open some: the rest in the next turn."""
        until = time.perf_counter() + ACCEPTING_S
        for _ in range(ACCEPTED_MAX):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in _OF_ONE:
                    continue
                self._wait(error)  # no descriptor or memory is left; open connections stay, and may end in the meantime
                break
            self._waiting.add(place_of(address[0] if isinstance(address, tuple) else LOCAL), connection)
            if len(self._waiting) > WAITING_MIN and len(self._waiting) + len(self._opening) > self._reception.room:
                self._refuse(*self._waiting.take_surplus(), LIMIT)
            if time.perf_counter() > until:
                break
        if not self._is_due:
            self._open_some()

    def _wait(self, error: OSError) -> None:
        logger.warning("accepting no connections for %s s: %s", NO_ROOM_PAUSE_S, error)
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
        """Whether one more of that place may be opened. If too many are opening, the oldest is closed: one from a place
        with more than this one, or one that has taken long."""
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
        """Close it without opening it. Its peer gets the reason, if that can be read without TLS."""
        words = self._reception.refuse(place, reason)
        self._farewells.tell(connection, b"" if self._tls else words)

    def _opened(self, place: str, connection: socket.socket, opening: asyncio.Task[None]) -> None:
        self._opening.discard(place, opening)
        if self._blocked is not None:
            self._blocked.cancel()
            self._unblock()
        if opening.cancelled():
            connection.close()  # if opening has not begun; otherwise its transport does so

    async def _open(self, place: str, connection: socket.socket) -> None:
        opening = asyncio.current_task()
        assert opening is not None

        def made() -> bool:
            self._opening.discard(place, opening)
            return not opening.cancelling()

        connection.setblocking(False)
        with contextlib.suppress(OSError):  # the client has disconnected, and the loop will notice
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        welcome = await self._reception.meet(connection)
        if welcome is None:
            connection.close()
            return
        tls = self._tls if welcome.ends_tls else {}
        try:
            await self._loop.connect_accepted_socket(lambda: _Newcomer(welcome.protocols, made), connection, **tls)
        except (TimeoutError, OSError, ssl.SSLError):  # it has disconnected, or does not use TLS
            welcome.unopened()
        except asyncio.CancelledError:
            welcome.unopened()
            raise


class _Newcomer(asyncio.Protocol):
    """The provisional protocol of a connection; making the real one ends the opening.

    When an opening is cancelled, uvloop closes its transport without `connection_lost`, even after `connection_made`.
    So openings are cancelled only before that, and an opening that is cancelled at the same moment does not create a
    connection."""

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
