"""One connection from a replica to its primary: a request goes out in pieces, and its answer comes back in pieces.

At most `HELD_BYTES_MAX` of an answer plus one read are buffered; after that, reading pauses until a piece is taken. An
accepted WebSocket turns the connection into one end of a tunnel; the other end is the client's connection.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Protocol, cast

from ....core.loop.deadline import Deadline
from ...process.sockets import watch_peer
from .answer import ForwardedAnswer, NotHttp

READ_BYTES = 64 * 1024
"""The maximum number of bytes of one read."""
HELD_BYTES_MAX = 64 * 1024
KEPT_S = 30.0
"""How long an idle connection is kept. This is shorter than at the primary, which could otherwise close it during a
request.
"""
CLOSE_S = 10.0
"""How long a closing tunnel may take to send its last bytes."""
UNACKNOWLEDGED_MS = 60_000
"""How long sent bytes may stay unacknowledged."""


class HopLost(ConnectionError):
    """The connection ended before the answer was complete."""


class ClientLeft(ConnectionError):
    """The client disconnected, so its request ends."""


class NearEnd(Protocol):
    """The client's end of a tunnel."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def hold(self, holds: bool) -> None:
        """Whether reading must pause for now."""

    def close(self, reason: str) -> None:
        """Close once everything is sent, with the reason."""


class HopConnection(asyncio.BufferedProtocol):
    """One connection, used for one request at a time."""

    def __init__(self, buffer: memoryview, lost: Callable[[HopConnection], None]) -> None:
        """All connections share `buffer`, because no data stays in it. `lost` is called once, when the connection has
        ended.
        """
        self._loop = asyncio.get_running_loop()
        self._buffer, self._lost = buffer, lost
        self._transport: asyncio.Transport | None = None
        self._patience = Deadline(self._loop, self.close)
        """When an idle connection or an ending tunnel is closed."""
        self._news = asyncio.Event()
        self._answer: ForwardedAnswer | None = None
        self._near: NearEnd | None = None
        self._error: ConnectionError | None = None
        self._is_full = self._is_paused = False
        self._poll = select.poll()

    # per request

    @property
    def is_open(self) -> bool:
        """Whether it can be used for a request."""
        return self._error is None and self._transport is not None and not self._transport.is_closing()

    def is_stale(self) -> bool:
        """Whether it has ended or has unexpected input, including input that the event loop has not read yet."""
        return not self.is_open or bool(self._poll.poll(0))

    def begin(self, head: bytes, answer: ForwardedAnswer) -> None:
        """Send the head of a request, which counts as sent from now on. `answer` receives its answer."""
        assert self._transport is not None and self._answer is None
        self._patience.clear()
        self._answer = answer
        self._transport.write(head)

    async def send(self, data: bytes) -> None:
        """Send a piece of the body, waiting while the primary does not read. Raises ConnectionError."""
        self._check()
        assert self._transport is not None
        self._transport.write(data)
        while self._is_full:
            await self._news.wait()
            self._check()

    async def is_asked_to_go_on(self) -> bool:
        """Wait until the primary asks for the body (100); False if the answer arrives first. Raises ConnectionError."""
        answer = self._running
        while not answer.is_continued and not answer.status:
            await self._wait()
        return not answer.status

    async def head(self) -> ForwardedAnswer:
        """Wait for the head of the answer. Raises ConnectionError."""
        answer = self._running
        while not answer.status:
            await self._wait()
        return answer

    async def read(self) -> bytes:
        """The next piece of the answer; empty at its end. Raises ConnectionError."""
        answer = self._running
        while not answer.held_bytes and not answer.is_complete:
            await self._wait()
        piece = answer.take()
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()
        return piece

    def release(self) -> bool:
        """Finish a request. Returns whether the connection can be reused; otherwise it is closed.

        Call it after the whole request was sent and the whole answer was taken.
        """
        answer, self._answer = self._answer, None
        transport = self._transport
        if answer is None or not answer.is_reusable or transport is None or not self.is_open:
            self.close()
            return False
        if transport.get_write_buffer_size():
            self.close()
            return False
        self._patience.set(KEPT_S)
        return True

    def fail(self, error: ConnectionError) -> None:
        """Close the connection at once. Waiting tasks get the error."""
        if self._error is None:
            self._error = error
        if self._answer is not None:
            self._answer.give_up()
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()
        self._tell()

    def close(self) -> None:
        """Close the connection at once, even with unread data."""
        self.fail(HopLost("the connection was closed"))

    # the primary's end of a tunnel

    def lead_to(self, near: NearEnd) -> None:
        """Pass all input to that end from now on, unchanged."""
        assert self._answer is not None
        rest, self._near = self._answer.rest, near
        if rest:
            near.write(rest)
        near.hold(self._is_full)
        self.hold(False)

    def write(self, data: bytes) -> None:
        """Send bytes to the primary, unchanged."""
        if self.is_open:
            assert self._transport is not None
            self._transport.write(data)

    def hold(self, holds: bool) -> None:
        """Whether reading must pause for now."""
        transport = self._transport
        if transport is None or transport.is_closing() or holds == self._is_paused:
            return
        self._is_paused = holds
        if holds:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def finish(self) -> None:
        """Close once everything is sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
            self._patience.set(CLOSE_S)

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        self._poll.register(connected.fileno(), select.POLLIN)
        watch_peer(connected)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        data = self._buffer[:nbytes]
        if self._near is not None:
            self._near.write(bytes(data))
            return
        answer = self._answer
        if answer is None:
            self.fail(HopLost("a response without a request"))
            return
        try:
            answer.receive_data(data)
        except NotHttp as error:
            self.fail(HopLost(f"the response is not valid HTTP: {error}"))
            return
        if answer.held_bytes >= HELD_BYTES_MAX or answer.status == 101:
            self.hold(True)
        self._tell()

    def eof_received(self) -> None:
        """See asyncio.Protocol. The connection ends."""
        if self._answer is not None:
            self._answer.receive_eof()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_full = True
        if self._near is not None:
            self._near.hold(True)

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._is_full = False
        if self._near is not None:
            self._near.hold(False)
        self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._patience.end()
        near, self._near = self._near, None
        self.fail(HopLost(f"the connection to the primary ended{f': {exc}' if exc else ''}"))
        if near is not None:
            near.close(str(self._error))
        self._lost(self)

    @property
    def _running(self) -> ForwardedAnswer:
        assert self._answer is not None, "no request was sent"
        return self._answer

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        self._check()
        await self._news.wait()

    def _tell(self) -> None:
        self._news.set()  # wakes all waiting tasks
        self._news.clear()
