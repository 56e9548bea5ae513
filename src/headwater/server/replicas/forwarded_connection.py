"""Connections that a replica forwards to the primary: raw bytes in both directions.

The primary handles TLS, the login and AMQP. Data is read from one side only while the other side accepts it, so at most
one read per direction is buffered. Half-closes and closes are forwarded too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from typing import cast
from urllib.parse import urlsplit

from ...amqp.connections.transport import Origin
from ...amqp.redirect import PORTS
from ...amqp.settings import AmqpSettings
from ...core.client_subnet import place_of
from ...core.loop.memory import MemoryAccount, Share
from ...core.loop.turn_reads import READ_BYTES, TurnReads
from ...homes.home_secret import NO_SECRET, HomeSecret
from ..process.sockets import watch_peer
from .origin_header import origin_header

CONNECT_S = 2.0
"""Connect timeout of the primary."""
CLOSE_S = 5.0
"""How long the last bytes of one side may wait until the other side has read them."""
TCP_INFO = getattr(socket, "TCP_INFO", None)
"""Linux's socket option for the state of a connection."""
_CLOSED, _CLOSE_WAIT = 7, 8
HALF_OPEN_S = 30.0
"""How long one side may stay silent after the other has closed its half."""


class _Pause(Flag):
    """A reason not to read from a side."""

    FULL = auto()
    """The other side has not accepted the last read yet."""
    TURN = auto()
    """Other connections come first."""


_NOT_PAUSED = _Pause(0)
_buffer = memoryview(bytearray(READ_BYTES))
"""The read buffer shared by all connections; its content is copied at once."""


@dataclass(slots=True)
class ForwardingStatistics:
    """Counters since this server became a replica. Live; callers must not change them."""

    forwarded: int = 0
    """Connections forwarded to the primary."""
    failed: int = 0
    """Connections that could not be forwarded, because the primary did not accept them."""


class ForwardedConnections:
    """All connections that this replica forwards, on one event loop."""

    def __init__(
        self,
        settings: AmqpSettings,
        memory: MemoryAccount,
        secret: HomeSecret,
        home_time_ms: Callable[[], int],
        primary: Callable[[], str | None],
    ) -> None:
        """`primary`: the URL of the primary's AMQP; None if it is unknown.

        `secret` and `home_time_ms`: the home's secret and time of day, as known to this server.
        """
        self.settings, self.memory, self._primary = settings, memory, primary
        self._secret, self._home_time_ms = secret, home_time_ms
        self.statistics = ForwardingStatistics()
        self.reads = TurnReads()
        self.open: set[ForwardedConnection] = set()
        """The open connections."""

    @property
    def room(self) -> int:
        """The number of further connections that may be forwarded."""
        return self.settings.connections_max - len(self.open)

    async def begin(self, connection: socket.socket, url: str) -> ForwardedConnection:
        """Connect to the primary at that URL for a client's connection, from which no data was read.

        Raises OSError: also if this server does not have the secret that proves the client's address.
        """
        if (secret := await self._secret.fetched()) is None:
            raise ConnectionError(NO_SECRET)
        watch_peer(connection)
        origin, replica = _address(connection.getpeername()), _address(connection.getsockname())
        both, parts = ForwardedConnection(self, url), urlsplit(url)
        host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme, PORTS["amqp"])
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().create_connection(both.primary, host, port)
        except BaseException:
            both.end()
            raise
        self.statistics.forwarded += 1
        both.begin(origin, origin_header(secret, origin, replica, self._home_time_ms()))
        return both

    def tick(self, now: float) -> None:
        """Close connections that take too long or lead to a server that is no longer the primary."""
        primary = self._primary()
        for both in tuple(self.open):
            both.tick(now, primary)

    def end(self) -> None:
        """Close all connections."""
        for both in tuple(self.open):
            both.end()


class ForwardedConnection:
    """A client's connection and its connection to the primary. It is a `Reader` of its share of memory."""

    def __init__(self, all_of_them: ForwardedConnections, url: str) -> None:
        self.all, self._url = all_of_them, url
        self._loop = asyncio.get_running_loop()
        self._client, self._primary = _Side(self), _Side(self)
        self._client.other, self._primary.other = self._primary, self._client
        self.share = Share(all_of_them.memory, self)
        self._began = self.moved_at = self._loop.time()
        """When bytes last arrived."""
        self._closing_at: float | None = None

    def client(self) -> asyncio.BaseProtocol:
        """The protocol of the client's connection."""
        return self._client

    def primary(self) -> asyncio.BaseProtocol:
        """The protocol of the connection to the primary."""
        return self._primary

    def begin(self, origin: Origin, header: bytes) -> None:
        """Begin after the primary has accepted: send it the header first."""
        self.all.open.add(self)
        self.share.belong(self.all.memory.owner(place_of(origin[0])))
        self._primary.begin(header)

    def tick(self, now: float, primary: str | None) -> None:
        """See ForwardedConnections."""
        is_elsewhere = primary is not None and primary != self._url
        is_mute = not self._primary.has_sent and now - self._began > self.all.settings.login_ms / 1000
        is_half = self._client.is_leaving or self._primary.is_leaving
        is_overdue = self._closing_at is not None and now >= self._closing_at
        if is_elsewhere or is_mute or is_overdue or (is_half and now - self.moved_at > HALF_OPEN_S):
            self.end()

    def close(self) -> None:
        """One side is lost: close the other one once it has read all earlier bytes."""
        self._closing_at = self._closing_at or self._loop.time() + CLOSE_S
        for side in (self._client, self._primary):
            side.close()
        if self._client.is_over and self._primary.is_over:
            self._forget()

    def end(self) -> None:
        """Close both sides now. May be called again."""
        for side in (self._client, self._primary):
            side.abort()
        if self._client.is_over and self._primary.is_over:
            self._forget()

    def unsent_bytes(self) -> int:
        """See `core.loop.memory.Reader`."""
        return self._client.waiting + self._primary.waiting

    def end_stalled(self, reason: str) -> None:
        """See `core.loop.memory.Reader`."""
        self.end()

    def _forget(self) -> None:
        self.all.open.discard(self)
        self.share.close()
        for side in (self._client, self._primary):
            side.cut()


class _Side(asyncio.BufferedProtocol):
    """One of the two connections."""

    other: _Side

    def __init__(self, connection: ForwardedConnection) -> None:
        self._connection, self._loop = connection, asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pauses = _NOT_PAUSED
        self._is_lost = self._is_cut = False
        self.has_sent = self.has_ended = False
        """Whether its peer has sent anything; whether its peer has closed its half."""
        self.waiting = 0
        """Bytes that its peer has not read yet."""

    @property
    def is_leaving(self) -> bool:
        """Whether its peer has closed its half. While reading is paused, the operating system is asked."""
        if self.has_ended or not self._pauses or self._transport is None or TCP_INFO is None:
            return self.has_ended
        information = self._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, TCP_INFO, 1)
        return information[0] in (_CLOSED, _CLOSE_WAIT)

    @property
    def is_over(self) -> bool:
        """Whether there is no connection yet, or no longer."""
        return self._transport is None or self._is_lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = cast(asyncio.Transport, transport)
        if self._is_cut:
            self.abort()  # the primary has disconnected in the meantime
            return
        self._transport.set_write_buffer_limits(high=0)

    def begin(self, header: bytes) -> None:
        """Send the header, which fits into the socket's buffer."""
        assert self._transport is not None
        watch_peer(self._transport.get_extra_info("socket"))
        self._transport.write(header)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self.has_sent, self._connection.moved_at = True, self._loop.time()
        if self.other.is_over:  # a primary that speaks first, or a client whose primary is lost
            self._connection.end()
            return
        self.other.send(bytes(_buffer[:nbytes]))
        if self._connection.all.reads.are_over(nbytes):
            self.pause(_Pause.TURN)
            self._loop.call_soon(self.resume, _Pause.TURN)

    def send(self, data: bytes) -> None:
        """Write bytes of the other side."""
        assert self._transport is not None
        self._transport.write(data)

    def eof_received(self) -> bool:
        """Its peer closed its half: forward this to the other side, which may continue to send."""
        self.has_ended = True
        if self.other.is_over or self.other.has_ended:
            return False
        assert self.other._transport is not None
        self.other._transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._is_lost = True
        if self._is_cut:
            return
        self._drained()
        self._connection.close()

    def pause_writing(self) -> None:
        """Its peer is slow: stop reading from the other side."""
        assert self._transport is not None
        self.waiting = self._transport.get_write_buffer_size()
        self._connection.share.hold(self.waiting)
        self._connection.share.stalls()
        self.other.pause(_Pause.FULL)

    def resume_writing(self) -> None:
        """Its peer has read everything."""
        self._drained()
        self.other.resume(_Pause.FULL)

    def pause(self, why: _Pause) -> None:
        """Stop reading from its peer."""
        if not self._pauses and self._transport is not None:
            self._transport.pause_reading()
        self._pauses |= why

    def resume(self, why: _Pause) -> None:
        """Resume reading, unless another reason remains."""
        self._pauses &= ~why
        if not self._pauses and not self.has_ended and self._transport is not None and not self._is_lost:
            self._transport.resume_reading()

    def cut(self) -> None:
        """Both are over: drop what refers back to this, which would form a reference cycle. May be called again."""
        if not self._is_cut:
            self._is_cut = True
            del self.other, self._connection

    def close(self) -> None:
        """Close it once its peer has read all bytes."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it now."""
        if self._transport is not None:
            self._transport.abort()

    def _drained(self) -> None:
        self._connection.share.give(self.waiting)
        self.waiting = 0
        if not self.other.waiting:
            self._connection.share.flows()


def _address(of_socket: tuple[str, int, object, object] | tuple[str, int]) -> Origin:
    return of_socket[0], of_socket[1]
