"""Requests to one server by a thread: idle connections, retries while it is away or overloaded, problems as exceptions.

Which of its addresses is asked, `targets` says.
Every request sent from here may be repeated: appends carry ids, so a repeated one is recognised by the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..core.access import Forbidden
from ..core.closing import Closing
from ..core.errors import EventLogError, PositionOfOtherIncarnation
from ..formats.answer import Answer
from ..formats.retrying import Attempts
from .connection import Connection
from .handshakes import why_hopeless
from .identity import Identity
from .request import Request
from .routes import head_of
from .targets import HOPS_MAX, PrimaryAway, Target, Targets
from .terms import IDLE_CONNECTIONS_MAX, PASSING, ConnectionLost, Terms, refusal

T = TypeVar("T")


Send = Callable[[Connection, bytes, bytes], Answer]


class Transport:
    """The way to one server. Safe to use from any thread: each request has a connection of its own."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.targets = Targets[Connection](terms)
        self._is_closed = False

    def call(self, request: Request[T]) -> T:
        """What a whole answer means. Raises ServerUnreachable, UnexpectedAnswer, and what the problem document says."""
        attempts = None
        while True:
            try:
                target, connection, answer = self._sent(request, Connection.ask)
            except PASSING as error:
                attempts = attempts or self.terms.attempts()
                self.wait_after(attempts, error)
            else:
                self.give_back(target, connection, answer)
                return request.decode(answer)

    def open(self, request: Request[T]) -> Stream:
        """An answer whose head has come, for its caller to read and close; one attempt.

        Raises OSError where the server is away, ServerUnreachable where it is of no use to try again, and what the
        problem document says.
        """
        return Stream(self, *self._sent(request, Connection.send))

    def wait_after(self, attempts: Attempts, error: OSError | EventLogError) -> None:
        """Pause before the next attempt; where there is none left, raises the error."""
        attempts.sleep(self.targets.pause_s(attempts, error))

    def close(self) -> None:
        """Close what is idle, and what is in use as soon as it is given back; no more requests are taken."""
        self._is_closed = True
        for connection in self.targets.idle():
            connection.close()

    def give_back(self, target: Target[Connection], connection: Connection, answer: Answer) -> None:
        """Keep a connection for the next request, if its answer is complete and leaves it open."""
        if not answer.is_reusable or self._is_closed or len(target.idle) >= IDLE_CONNECTIONS_MAX:
            connection.close()
        else:
            target.idle.append(connection)

    def _sent(self, request: Request[T], send: Send) -> tuple[Target[Connection], Connection, Answer]:
        """One attempt, wherever the primary is: the answer as far as `send` waits for it, or the error that it is."""
        target = self.targets.best()
        for _ in range(HOPS_MAX):
            if request.identity is not None and not self.targets.is_single:
                proved = self._proved(target, request.identity)
                if proved is not target:
                    target = proved
                    continue
            connection, answer = self._answered(target, request, send)
            if answer.status < 300:
                return target, connection, answer
            target = self._elsewhere(target, request, connection, answer)
        raise PrimaryAway(f"{HOPS_MAX} servers in a row name another one as the primary")

    def _proved(self, target: Target[Connection], identity: Identity) -> Target[Connection]:
        """The target, if it has the log that is meant; or the primary that it names. Raises as `_sent`."""
        if identity.is_proved(target, failures := target.failures):
            return target
        question = head_of(identity)
        connection, answer = self._answered(target, question, Connection.ask)
        if answer.status >= 300:
            try:
                return self._elsewhere(target, question, connection, answer)
            except Forbidden:  # whoever may only append is not told
                identity.prove(target, failures, 0, None)
                return target
        self.give_back(target, connection, answer)
        try:
            identity.prove(target, failures, *question.decode(answer))
        except PositionOfOtherIncarnation as error:  # another address may have the log that is meant
            self.targets.failed(target, ConnectionLost(str(error)))
            raise
        return target

    def _elsewhere(
        self, target: Target[Connection], request: Request[Any], connection: Connection, answer: Answer
    ) -> Target[Connection]:
        """The primary that an answer names; raises the error that any other answer of 300 or above stands for."""
        self.give_back(target, connection, answer)
        if (primary := self.targets.named_by(target, answer)) is not None:
            return primary
        error = refusal(request, answer)
        self.targets.failed(target, error)
        raise error

    def _answered(self, target: Target[Connection], request: Request[Any], send: Send) -> tuple[Connection, Answer]:
        """What one address answers: all of it, where it is no success. Raises OSError, ServerUnreachable."""
        connection = self._connection(target)
        try:
            answer = send(connection, target.heads.of(request), request.body)
            if answer.status >= 300:
                connection.finish(answer)
        except OSError as error:
            connection.close()
            has_received = target.has_answered or connection.has_received
            self.targets.lost(target, error, why_hopeless(error, target.address, has_received=has_received))
            raise
        except BaseException:
            connection.close()
            raise
        target.succeeded()
        return connection, answer

    def _connection(self, target: Target[Connection]) -> Connection:
        if self._is_closed:
            raise self.terms.closed()
        while True:
            try:
                connection = target.idle.pop()
            except IndexError:
                return Connection(target.address, self.terms.timeout_s, self.terms.connect_s)
            if not connection.is_stale():
                return connection
            connection.close()


class Stream(Closing):
    """An answer being read; closing it before its end costs the connection, and nothing else."""

    def __init__(
        self, transport: Transport, target: Target[Connection], connection: Connection, answer: Answer
    ) -> None:
        self._transport, self._target = transport, target
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
            self._transport.give_back(self._target, connection, self.answer)

    def give_up(self, error: OSError | EventLogError) -> None:
        """It cannot be used, for this reason: whoever asks again may turn to another address."""
        self.close()
        self._transport.targets.failed(self._target, error)

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()
