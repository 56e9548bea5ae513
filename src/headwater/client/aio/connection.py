"""A connection to a server on an event loop. Each request is sent and answered before the next. There are no
retries.
"""

from __future__ import annotations

import asyncio
import math
import select
from typing import cast

from ...formats.clients.answer import Answer, KnownHeads, NotHttp
from ..protocol.address import Address
from ..protocol.terms import ConnectionLost

HELD_BYTES_MAX = 256 * 1024
"""How much of a streamed answer is buffered before receiving pauses, so that the server waits."""


class Connection(asyncio.Protocol):
    """A connection to a server. For one task at a time; any task may call `close`."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._held_bytes, self._held_bytes_max = 0, math.inf
        self._is_paused = False
        self._heads = KnownHeads()
        self._poll = select.poll()
        self.has_received = False
        """Whether the server has sent anything yet."""
        self._lost: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def open(cls, address: Address, timeout_s: float, connect_s: float) -> Connection:
        """Connect to an address within `connect_s`, with TLS if its scheme asks for it. Raises OSError."""
        loop = asyncio.get_running_loop()
        connection = cls(timeout_s)
        try:
            async with asyncio.timeout(connect_s):
                if address.unix_path is not None:
                    await loop.create_unix_connection(lambda: connection, address.unix_path)
                else:
                    await loop.create_connection(lambda: connection, address.host, address.port, ssl=address.tls)
        except TimeoutError:
            raise TimeoutError("timed out while connecting") from None
        return connection

    # Per connection

    def is_stale(self) -> bool:
        """Whether the server closed it while idle, or sent unrequested data, even if the loop has not noticed it
        yet.
        """
        transport = self._transport
        return self._error is not None or transport is None or transport.is_closing() or bool(self._poll.poll(0))

    def close(self) -> None:
        """Close it; a task that waits for an answer gets ConnectionLost."""
        self._fail(ConnectionLost("the connection was closed"))

    async def wait_closed(self) -> None:
        """Wait until it is closed completely."""
        await self._lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        self.has_received = True
        answer = self._answer
        if answer is None or answer.is_complete:
            self._fail(ConnectionLost("the server sent an unexpected answer"))
            return
        try:
            answer.receive_data(data)
        except NotHttp as error:
            self._fail(ConnectionLost(f"the answer is not HTTP: {error}"))
            return
        self._held_bytes += len(data)
        if self._held_bytes > self._held_bytes_max and self._transport is not None and not answer.is_complete:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        ended = ConnectionLost("the server closed the connection before its answer was complete")
        self._fail(exc if isinstance(exc, OSError) else ended)
        if not self._lost.done():
            self._lost.set_result(None)

    def _fail(self, error: OSError) -> None:
        if self._error is None:
            self._error = error
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Per request

    async def send(self, head: bytes, body: bytes, timeout_s: float) -> Answer:
        """Send a request and wait, at most `timeout_s`, for the head of its answer. Raises OSError (such as
        ConnectionLost, TimeoutError).
        """
        if self._error is not None or self._transport is None:
            raise self._error or ConnectionLost("the connection was closed")
        self._answer = answer = Answer(self._heads)
        self._held_bytes, self._held_bytes_max = 0, HELD_BYTES_MAX
        self._transport.write(head + body)
        while not answer.status:
            await self._more(timeout_s)
        return answer

    async def finish(self, answer: Answer) -> None:
        """Wait for the rest of an answer, and store it in the answer. Raises the same errors as `send`."""
        self._held_bytes_max = math.inf
        while not answer.is_complete:
            await self._more(self._timeout_s)

    async def read(self, answer: Answer, timeout_s: float | None = None) -> bytes:
        """The next piece of an answer's body, empty at its end. Raises the same errors as `send`. No data is lost after
        a TimeoutError.
        """
        while not answer.pieces and not answer.is_complete:
            await self._more(self._timeout_s if timeout_s is None else timeout_s)
        self._held_bytes = 0
        return answer.body()

    async def _more(self, timeout_s: float) -> None:
        """Wait for more data."""
        if self._error is not None:
            raise self._error
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        self._waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._waiter
        except TimeoutError:
            raise TimeoutError("timed out waiting for the server's answer") from None
        finally:
            self._waiter = None
