"""Requests to one server by a thread: idle connections, retries while it is away or overloaded, problems as exceptions.

Every request sent from here may be repeated: appends carry ids, so a repeated one is recognised by the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from ..core.closing import Closing
from ..formats.answer import Answer
from ..formats.unreachable import ServerUnreachable
from .address import Address
from .connection import Connection
from .handshakes import why_hopeless
from .heads import Heads
from .request import Request
from .terms import IDLE_CONNECTIONS_MAX, PASSING, Terms, refusal

T = TypeVar("T")


class Transport:
    """The way to one server. Safe to use from any thread: each request has a connection of its own."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._heads = Heads(terms.address)
        self._has_answered = False
        self._idle: deque[Connection] = deque()
        self._is_closed = False

    @property
    def address(self) -> Address:
        """Where the server is."""
        return self.terms.address

    def call(self, request: Request[T]) -> T:
        """What a whole answer means. Raises ServerUnreachable, UnexpectedAnswer, and what the problem document says."""
        attempts = None
        while True:
            try:
                return self._asked(request)
            except PASSING as error:
                attempts = attempts or self.terms.attempts()
                attempts.failed(self.terms.known(error))

    def open(self, request: Request[T]) -> Stream:
        """An answer whose head has come, for its caller to read and close; one attempt.

        Raises OSError where the server is away, ServerUnreachable where it is of no use to try again, and what the
        problem document says.
        """
        return Stream(self, *self._sent(request, Connection.send))

    def _asked(self, request: Request[T]) -> T:
        connection, answer = self._sent(request, Connection.ask)
        self.give_back(connection, answer)
        return request.decode(answer)

    def _sent(
        self, request: Request[T], send: Callable[[Connection, bytes, bytes], Answer]
    ) -> tuple[Connection, Answer]:
        """One attempt: the answer as far as `send` waits for it, or the error that it is as a whole."""
        connection = self._connection()
        try:
            answer = send(connection, self._heads.of(request), request.body)
            self._has_answered = True
            if answer.status < 400:
                return connection, answer
            connection.finish(answer)
        except OSError as error:
            connection.close()
            if reason := why_hopeless(error, self.address, has_received=self._has_answered or connection.has_received):
                raise ServerUnreachable(self.address.url, reason) from error
            raise
        except BaseException:
            connection.close()
            raise
        self.give_back(connection, answer)
        raise refusal(request, answer)

    def close(self) -> None:
        """Close what is idle, and what is in use as soon as it is given back; no more requests are taken."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def give_back(self, connection: Connection, answer: Answer) -> None:
        """Keep a connection for the next request, if its answer is complete and leaves it open."""
        if not answer.is_reusable or self._is_closed or len(self._idle) >= IDLE_CONNECTIONS_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    def _connection(self) -> Connection:
        if self._is_closed:
            raise self.terms.closed()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return Connection(self.address, self.terms.timeout_s)
            if not connection.is_stale():
                return connection
            connection.close()


class Stream(Closing):
    """An answer being read; closing it before its end costs the connection, and nothing else."""

    def __init__(self, transport: Transport, connection: Connection, answer: Answer) -> None:
        self._transport = transport
        self._connection: Connection | None = connection
        self.answer = answer

    @property
    def is_over(self) -> bool:
        """Whether all of it was read, or it was closed."""
        return self._connection is None

    def read(self, timeout_s: float | None = None) -> bytes:
        """The next piece of the body; empty at its end, with which the stream is closed. Raises OSError."""
        if (connection := self._connection) is None:
            return b""
        answer = self.answer
        piece = connection.read(answer, timeout_s)
        if answer.is_complete:
            self.close()
        return piece

    def close(self) -> None:
        """Done with it; from another thread too, where it ends a `read` with an error."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(connection, self.answer)

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()
