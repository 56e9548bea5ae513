"""Requests to one server by tasks: idle connections, retries while it is away or overloaded, problems as exceptions.

Every request sent from here may be repeated: appends carry ids, so a repeated one is recognised by the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...formats.answer import Answer
from ...formats.unreachable import ServerUnreachable
from ..handshakes import why_hopeless
from ..heads import Heads
from ..request import Request
from ..terms import IDLE_CONNECTIONS_MAX, PASSING, Terms, refusal
from .connection import Connection

T = TypeVar("T")

UNDER_WAY_MAX = 64
"""Requests whose answers are awaited at the same time; more wait for them, so that a thousand tasks are no thousand
connections. An answer that is read piece by piece does not count once it has begun."""

Send = Callable[[Connection, bytes, bytes], Awaitable[Answer]]


class Transport:
    """The way to one server, on one event loop: each request has a connection of its own while it is under way."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._heads = Heads(terms.address)
        self._has_answered = False
        self._idle: deque[Connection] = deque()
        self._places = asyncio.Semaphore(UNDER_WAY_MAX)
        self._is_closed = False

    async def call(self, request: Request[T]) -> T:
        """What a whole answer means. Raises ServerUnreachable, UnexpectedAnswer, and what the problem document says."""
        attempts = None
        while True:
            try:
                connection, answer = await self._sent(request, Connection.ask)
            except PASSING as error:
                attempts = attempts or self.terms.attempts()
                await asyncio.sleep(attempts.pause_s(self.terms.known(error)))
            else:
                self.give_back(connection, answer)
                return request.decode(answer)

    async def open(self, request: Request[T]) -> Stream:
        """An answer whose head has come, for its caller to read and close; one attempt.

        Raises OSError where the server is away, ServerUnreachable where it is of no use to try again, and what the
        problem document says.
        """
        return Stream(self, *await self._sent(request, Connection.send))

    async def close(self) -> None:
        """Close what is idle, and what is in use as soon as it is given back; no more requests are taken."""
        self._is_closed = True
        closing = list(self._idle)
        self._idle.clear()
        for connection in closing:
            connection.close()
        for connection in closing:
            await connection.lost

    def give_back(self, connection: Connection, answer: Answer) -> None:
        """Keep a connection for the next request, if its answer is complete and leaves it open."""
        if not answer.is_reusable or self._is_closed or len(self._idle) >= IDLE_CONNECTIONS_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    async def _sent(self, request: Request[T], send: Send) -> tuple[Connection, Answer]:
        """One attempt: the answer as far as `send` waits for it, or the error that it is as a whole."""
        if self._is_closed:
            raise self.terms.closed()
        async with self._places:
            connection = None
            try:
                connection = self._idle_connection() or await Connection.open(self.terms.address, self.terms.timeout_s)
                answer = await send(connection, self._heads.of(request), request.body)
                self._has_answered = True
                if answer.status < 400:
                    return connection, answer
                await connection.finish(answer)
            except OSError as error:
                has_received = self._has_answered or (connection is not None and connection.has_received)
                _close(connection)
                await self._raise_hopeless(error, has_received)
                raise
            except BaseException:
                _close(connection)
                raise
            self.give_back(connection, answer)
            raise refusal(request, answer)

    def _idle_connection(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return None

    async def _raise_hopeless(self, error: OSError, has_received: bool) -> None:
        address = self.terms.address
        if reason := await asyncio.to_thread(why_hopeless, error, address, has_received=has_received):
            raise ServerUnreachable(address.url, reason) from error


class Stream:
    """An answer being read; closing it before its end costs the connection, and nothing else."""

    def __init__(self, transport: Transport, connection: Connection, answer: Answer) -> None:
        self._transport = transport
        self._connection: Connection | None = connection
        self.answer = answer

    @property
    def is_over(self) -> bool:
        """Whether all of it was read, or it was closed."""
        return self._connection is None

    async def read(self, timeout_s: float | None = None) -> bytes:
        """The next piece of the body; empty at its end, with which the stream is closed. Raises OSError."""
        if (connection := self._connection) is None:
            return b""
        piece = await connection.read(self.answer, timeout_s)
        if self.answer.is_complete:
            self.close()
        return piece

    def close(self) -> None:
        """Done with it; from another task too, where it ends a `read` with an error."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(connection, self.answer)

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()


def _close(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()
