"""State shared by the connections of one HTTP server: its application, bounds, connections and tasks."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

from ...core.clocks import wall_clock_ms
from ...core.loop.linger import LingeringConnections
from ...core.loop.memory import MemoryAccount, Share
from ...http import Application, Scope
from .admission import Admission

STRANGER_READ_BYTES = 16 * 1024
"""The maximum number of bytes in one read from a socket while the peer is unknown. Including the head of its request,
the connection holds 64 KiB in total. Later reads are as large as the event loop makes them (256 KiB). """


class Date:
    """The header field `Date`, to the second. It is written once a second at most."""

    __slots__ = ("at", "line")

    def __init__(self) -> None:
        self.at = 0
        """The second since 1970 that it says."""
        self.line = b""

    def renew(self) -> None:
        """Say the time of now."""
        self.at = int(time.time())
        self.line = b"date: %b\r\n" % formatdate(self.at, usegmt=True).encode()


class ServerState:
    """The state of one server. It belongs to the event loop of its connections."""

    def __init__(
        self,
        application: Application,
        admission: Admission,
        memory: MemoryAccount | None = None,
    ) -> None:
        """`admission` decides on each new connection; all draw from `memory` (by default, unlimited)."""
        self.application = application
        self.admission = admission
        self.memory = memory or MemoryAccount(2**62)
        self.connections: set[Any] = set()
        """The open connections; a WebSocket replaces the connection that it began on."""
        self.lingering = LingeringConnections(self._tell)
        """Connections that have sent their last response, but whose peers may still send."""
        self.tasks: set[asyncio.Task[None]] = set()
        """The tasks that answer a request."""
        self.idle: list[Any] = []
        """The `Runner`s that wait for a request."""
        self.buffer = memoryview(bytearray(STRANGER_READ_BYTES))
        """The read buffer of connections with unknown peers. All of them share it, because no data stays in it."""
        self.is_ending = False
        """Whether no more requests are expected."""
        self._emptied: asyncio.Event | None = None
        """Set when no connection is open or ending and no task is running; created by `emptied`."""
        self.date = Date()

    def remove(self, connection: Any) -> None:
        """Forget a closed connection. It may be unknown."""
        self.connections.discard(connection)
        self._tell()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep and count a task that answers a request, until it is done."""
        self.tasks.add(task)
        task.add_done_callback(self.done)

    def done(self, task: asyncio.Task[None]) -> None:
        """Forget a task that has ended."""
        self.tasks.discard(task)
        self._tell()

    def cancel(self) -> int:
        """Cancel the running tasks; returns how many."""
        for task in self.tasks:
            task.cancel()
        return len(self.tasks)

    async def emptied(self, within_s: float) -> bool:
        """Wait until no connection is open and no task runs; False after that time."""
        self.is_ending, self._emptied = True, asyncio.Event()
        while self.idle:
            self.idle.pop().task.cancel()
        self._tell()
        try:
            async with asyncio.timeout(within_s):
                await self._emptied.wait()
        except TimeoutError:
            return False
        return True

    def _tell(self) -> None:
        if self._emptied is not None and not (self.connections or self.lingering or self.tasks):
            self._emptied.set()


class _Known(asyncio.Protocol):
    """A connection with a known peer. A read needs only one call, and no extra call for a buffer."""

    def __init__(self, connection: PeerConnection) -> None:
        self.data_received = connection.data_received  # type: ignore[method-assign]
        self.eof_received = connection.eof_received  # type: ignore[method-assign]
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]
        self.connection_lost = connection.connection_lost  # type: ignore[method-assign]


class PeerConnection(asyncio.BufferedProtocol):
    """A connection, with received data that is not parsed yet."""

    def __init__(self, state: ServerState, share: Share | None = None) -> None:
        """A connection of that server, on the running loop; `share` is that of the connection that it takes over."""
        self.loop = asyncio.get_running_loop()
        self._state = state
        self.share = share or Share(state.memory)
        """Its memory; closed when the connection is over."""
        self.share.serve(self)
        self._unsent_bytes = 0
        """Counted in the share while the peer is not reading what the server sends."""
        self.transport: asyncio.Transport
        self.opened_at = 0
        """When it opened, in ms since 1970."""
        self.tls: str | None = None
        """The version of TLS, if used."""
        self.client: tuple[str, int] | None = None
        """The peer's address and port, if known."""
        self.scope: Scope = {}
        """The ASGI scope of the last request or of the WebSocket. Empty before there is one."""
        self.is_full = False
        """Whether the peer is not reading what the server sends."""
        self._writable: asyncio.Event | None = None
        """Where tasks wait until it reads."""
        self._unread = b""
        """Received data for later."""
        self._unread_taken = 0
        """How many bytes of the share are reserved for it."""
        self._read_to = 0
        """How much of it has been examined."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        tls = transport.get_extra_info("ssl_object")
        self.opened_at, self.tls = wall_clock_ms(), tls.version() if tls is not None else None

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._state.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        data = self._state.buffer[:nbytes].tobytes()
        if self.share.owner is not None:
            self._give_to(_Known(self))
        self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Process received data."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        self.is_full = True
        self._unsent_bytes = self.unsent_bytes()
        self.share.hold(self._unsent_bytes)
        self.share.stalls()

    def resume_writing(self) -> None:
        self.is_full = False
        self.share.give(self._unsent_bytes)
        self._unsent_bytes = 0
        self.share.flows()
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drained(self) -> None:
        """Wait until the peer reads what the server sends, or has disconnected."""
        while self.is_full:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def unsent_bytes(self) -> int:
        """See `core.loop.memory.Reader`."""
        return self.transport.get_write_buffer_size()

    def end_stalled(self, reason: str) -> None:
        """See `core.loop.memory.Reader`. The peer is not reading, so it gets no reason. Its request ends with the
        connection.
        """
        self.transport.abort()

    def _give_to(self, protocol: asyncio.BaseProtocol) -> None:
        """Make that the transport's protocol. Reading restarts, and the new protocol receives the data."""
        self.transport.pause_reading()
        self.transport.set_protocol(protocol)
        self.transport.resume_reading()

    def _hand_over(self) -> None:
        """Release all that it holds: data that still arrives is discarded, so that the peer can read why."""
        if not self.transport.is_closing():
            self.connection_lost(None)
            self._state.lingering.add(self.transport)

    def _has_room_for_unread(self, size: int | None = None) -> bool:
        """Count unread data as held: all of it, or `size` bytes. If there is no memory, drop it and return False."""
        more = (len(self._unread) if size is None else size) - self._unread_taken
        if more > 0 and not self.share.take(more):
            self._unread, self._read_to = b"", 0
            self._has_room_for_unread()
            return False
        if more < 0:
            self.share.give(-more)
        self._unread_taken += more
        return True

    def _advance(self, size: int) -> None:
        """Mark this many more received bytes as examined."""
        self._read_to += size
        if self._read_to >= len(self._unread):
            self._unread, self._read_to = b"", 0
