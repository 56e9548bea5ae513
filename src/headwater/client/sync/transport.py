# Made from aio/transport.py by python -m tests.client.unasync: change that file, not this one.
"""Requests to one server by threads: idle connections, retries while it is unreachable or overloaded, and problems as
exceptions.

`protocol.dispatch` selects the address. For repeats after a lost answer, see `protocol.request`.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

from msgspec.structs import replace

from ...core.access import Forbidden
from ...core.errors import EventLogError, PositionOfOtherIncarnation
from ...formats.clients.answer import Answer
from ...formats.clients.retry import Attempts
from ..protocol.dispatch import NOT_SENT, Opened, Sending, Sent, Trying
from ..protocol.handshakes import why_hopeless
from ..protocol.request import Request
from ..protocol.routes import head_of
from ..protocol.targets import FORWARDED_BY, HOPS_MAX, PrimaryAway, Target
from ..protocol.terms import PASSING, ConnectionLost, DeadlinePassed, NotConnected, Terms, meaning
from .connection import Connection
from .primitives import in_worker, places, sleep

T = TypeVar("T")

LEFT_S_MIN = 0.001
"""The shortest wait. With 0, a socket would not wait at all."""


class Transport(Sending[Connection]):
    """The requests to one server, for any thread. Each uses its own connection while it is in progress."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self._places = places()

    def call(self, request: Request[T]) -> T:
        """The decoded answer. Raises ServerUnreachable, UnexpectedAnswer, and the error in the problem document.

        An append that ends with neither an acknowledgement nor a refusal by the server raises OutcomeUnknown.
        """
        trying = None
        while True:
            try:
                target, connection, answer = self._sent(request, is_whole=True)
                self.give_back(target, connection, answer)
                return meaning(request, answer)
            except PASSING as error:
                trying = trying or Trying(self, request)
                sleep(trying.pause_s(error))
            except EventLogError as error:
                (trying or Trying(self, request)).check_settled(error)
                raise

    def open(self, request: Request[T]) -> Stream:
        """An answer whose head has arrived, for its caller to read and close; one attempt.

        Raises OSError if the server is unreachable, ServerUnreachable if retrying is useless, and the error in the
        problem document."""
        return Stream(self, self._sent(request, is_whole=False))

    def wait_after(self, attempts: Attempts, error: OSError | EventLogError) -> None:
        """Pause before the next attempt; raises the error if none is left."""
        sleep(self.targets.pause_s(attempts, error))

    def close(self) -> None:
        """Close idle connections now, and connections in use when they are returned. Accept no more requests."""
        self._is_closed = True
        closing = self.targets.idle()
        for connection in closing:
            connection.close()
        for connection in closing:
            connection.wait_closed()

    def _sent(self, request: Request[Any], *, is_whole: bool) -> Sent[Connection]:
        """One attempt, wherever the primary is. Returns as much of the answer as needed, or raises its error.

        Raises OSError, EventLogError.
        """
        targets = self.targets
        target = targets.current if targets.is_single else targets.best()
        for _ in range(HOPS_MAX):
            if not targets.is_single and (proved := self._proved(target, request)) is not target:
                target = proved
                continue
            connection, answer = self._answered(target, request, is_whole=is_whole)
            if answer.status < 300:
                if FORWARDED_BY in answer.fields:
                    targets.forwarded_by(target, answer)
                return target, connection, answer
            target = self._elsewhere(target, request, connection, answer)
        raise PrimaryAway(f"{HOPS_MAX} servers in a row named another server as the primary")

    def _proved(self, target: Target[Connection], request: Request[Any]) -> Target[Connection]:
        """The target, if it has the right log; or the primary that it names. Raises the same errors as `_sent`."""
        identity = request.identity
        if identity is None or identity.is_proved(target, failures := target.failures):
            return target
        question = replace(head_of(identity), under_way=request.under_way)
        connection, answer = self._answered(target, question, is_whole=True)
        if answer.status >= 300:
            try:
                return self._elsewhere(target, question, connection, answer)
            except Forbidden:  # a user who may only append cannot see the incarnation
                identity.prove(target, failures, 0, None)
                return target
        self.give_back(target, connection, answer)
        try:
            identity.prove(target, failures, *meaning(question, answer))
        except PositionOfOtherIncarnation as error:  # another address may have the right log
            self.targets.failed(target, ConnectionLost(str(error)))
            raise
        return target

    def _answered(
        self, target: Target[Connection], request: Request[Any], *, is_whole: bool
    ) -> tuple[Connection, Answer]:
        """The answer from one address. It is read completely if it is an error. Raises OSError, ServerUnreachable.

        DeadlinePassed does not count against the address.
        """
        under_way = request.under_way
        places = None if request.waits else self._places
        if places is not None:
            places.acquire()
        connection = None
        try:
            connection = None if request.is_sent_once else self._idle(target)  # an idle connection may be closing
            connection = connection or self._opened(target, request)
            if under_way is not None:
                under_way.begin(connection)
            timeout_s = _left_s(request, self.terms.timeout_s) if request.deadline is not None else self.terms.timeout_s
            answer = connection.send(target.heads.of(request), request.body, timeout_s)
            if not answer.is_complete and (is_whole or answer.status >= 300):
                connection.finish(answer)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, TimeoutError) and _left_s(request, self.terms.timeout_s) <= LEFT_S_MIN:
                raise DeadlinePassed(str(error)) from None
            if isinstance(error, OSError) and not (under_way is not None and under_way.is_closed):
                has_received = target.has_answered or (connection is not None and connection.has_received)
                hopeless = in_worker(why_hopeless, error, target.address, has_received=has_received)
                self.targets.lost(target, error, hopeless)
                if connection is None and not isinstance(error, NOT_SENT):
                    raise NotConnected(str(error) or type(error).__name__) from error
            raise
        finally:
            if under_way is not None:
                under_way.end()
            if places is not None:
                places.release()
        if target.problem is not None or not target.has_answered:
            target.succeeded()
        return connection, answer

    def _idle(self, target: Target[Connection]) -> Connection | None:
        if self._is_closed:
            raise self.terms.closed()
        while True:
            try:
                connection = target.idle.pop()
            except IndexError:
                return None
            if not connection.is_stale():
                return connection
            connection.close()

    def _opened(self, target: Target[Connection], request: Request[Any]) -> Connection:
        connect_s = _left_s(request, self.targets.connect_s)
        return Connection.open(target.address, self.terms.timeout_s, connect_s)


class Stream(Opened[Connection]):
    """A streamed answer. Closing it before its end only closes the connection."""

    def read(self, timeout_s: float | None = None) -> bytes:
        """The next piece of the body; empty at its end, which closes the stream. Raises OSError."""
        if (connection := self._connection) is None:
            return self.answer.body()
        piece = connection.read(self.answer, timeout_s)
        if self.answer.is_complete:
            self.close()
        return piece


def _left_s(request: Request[Any], limit_s: float) -> float:
    """How long to wait for it: within that limit, and until its own deadline."""
    if request.deadline is None:
        return limit_s
    return min(limit_s, max(LEFT_S_MIN, request.deadline - time.monotonic()))
