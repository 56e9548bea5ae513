"""What the connections of one HTTP server share: the application, the bounds, and who is there."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

from ...core.loop.byte_account import ByteAccount
from ...http import Application
from .admission import Admission


class ServerState:
    """Of one server. All of it belongs to the event loop on which its connections are."""

    def __init__(self, application: Application, admission: Admission, unfinished: ByteAccount | None = None) -> None:
        """`admission` says whether there may be one connection more; messages of WebSockets draw from `unfinished`."""
        self.application = application
        self.admission = admission
        self.unfinished = unfinished or ByteAccount()
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
