"""What the connections of one HTTP server share: its application and bounds, who is there, and what all of them are."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

from ...core.clocks import wall_clock_ms
from ...core.loop.byte_account import ByteAccount
from ...core.loop.memory import MIB, MemoryAccount, Share
from ...http import Application, Scope
from .admission import Admission


class ServerState:
    """Of one server. All of it belongs to the event loop on which its connections are."""

    def __init__(self, application: Application, admission: Admission, unfinished: ByteAccount | None = None) -> None:
        """`admission` says whether there may be one connection more; messages of WebSockets draw from `unfinished`."""
        self.application = application
        self.admission = admission
        self.unfinished = unfinished or ByteAccount()
        self.memory = MemoryAccount(64 * MIB)
        """The budget of memory that peers make this process hold."""
        self.connections: set[Any] = set()
        """Those that are open; a WebSocket stands for the connection that it was before."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Event | None = None
        """Set when no connection is open and no task runs; `emptied` makes it."""
        self._dated_at = 0
        self._date = b""

    def fields_of_all(self) -> bytes:
        """The header fields that every answer has, as lines: `Date`, to the second."""
        now = int(time.time())
        if now != self._dated_at:
            self._dated_at, self._date = now, b"date: %b\r\n" % formatdate(now, usegmt=True).encode()
        return self._date

    def remove(self, connection: Any) -> None:
        """It is closed. It need not be known here."""
        self.connections.discard(connection)
        self._tell()

    def keep(self, task: asyncio.Task[None]) -> None:
        """A request is answered in it: it is kept, and counts as there, until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> int:
        """Cancel the tasks that run; answers how many."""
        for task in self._tasks:
            task.cancel()
        return len(self._tasks)

    async def emptied(self, within_s: float) -> bool:
        """Wait until no connection is open and no task runs; False if there still are some after that time."""
        self._emptied = asyncio.Event()
        self._tell()
        try:
            async with asyncio.timeout(within_s):
                await self._emptied.wait()
        except TimeoutError:
            return False
        return True

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._tell()

    def _tell(self) -> None:
        if self._emptied is not None and not self.connections and not self._tasks:
            self._emptied.set()


class PeerConnection(asyncio.Protocol):
    """A connection, with the data that its peer sent and that is not parsed yet."""

    def __init__(self, memory: MemoryAccount) -> None:
        """On the running loop, whose budget is given."""
        self.loop = asyncio.get_running_loop()
        self.share = Share(memory, self)
        """What it holds. Whoever closes the connection closes it."""
        self._unsent_bytes = 0
        """Counted in the share while the peer does not take what it is sent."""
        self.transport: asyncio.Transport
        self.opened_at = 0
        """When it was made, in ms since 1970."""
        self.tls: str | None = None
        """The version of TLS, if it is used."""
        self.client: tuple[str, int] | None = None
        """Address and port of the peer, if they are known."""
        self.scope: Scope = {}
        """The application's: of the last request, or of the WebSocket. Empty before there is one."""
        self.is_full = False
        """Whether the peer does not take what it is sent."""
        self._writable: asyncio.Event | None = None
        """Where something waits until it does."""
        self._unread = b""
        """Received data for later."""
        self._read_to = 0
        """How much of that was looked at."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        tls = transport.get_extra_info("ssl_object")
        self.opened_at, self.tls = wall_clock_ms(), tls.version() if tls is not None else None

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
        """Wait until the peer takes what it is sent, or is gone."""
        while self.is_full:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def unsent_bytes(self) -> int:
        """See `core.loop.memory.Reader`."""
        return self.transport.get_write_buffer_size()

    def end_stalled(self, reason: str) -> None:
        """See `core.loop.memory.Reader`. It reads nothing, so it gets no reason; its request ends with it."""
        self.transport.abort()

    def _advance(self, size: int) -> None:
        """So much more of what came was looked at."""
        self._read_to += size
        if self._read_to >= len(self._unread):
            self._unread, self._read_to = b"", 0
