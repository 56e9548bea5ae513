"""What threads and tasks share when they send requests: idle connections, where an answer leads, and further attempts.
No I/O.

`sync.transport` sends on a thread, `aio.transport` on an event loop.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from ...core import errors as core
from ...core.access import Forbidden, Unauthenticated
from ...formats.clients.answer import Answer
from ...formats.clients.retry import ServerUnreachable
from .problems import GatewayFailed, UnexpectedAnswer, change_unknown, outcome_unknown
from .request import Closable, Request
from .targets import PrimaryAway, Target, Targets
from .terms import IDLE_CONNECTIONS_MAX, NotConnected, Terms, refusal

C = TypeVar("C", bound=Closable)

NOT_SENT = (ConnectionRefusedError, socket.gaierror, PrimaryAway, NotConnected)
"""Errors that prove that no server has carried out the request."""


_UNSETTLED = (
    Unauthenticated,
    Forbidden,
    UnexpectedAnswer,
    ServerUnreachable,
    core.StorageCorrupted,
    core.DiskFull,
    core.SequenceExhausted,
    core.LogNotFound,
    core.PositionOfOtherIncarnation,
)
"""Refusals that do not depend on whether the events are already in the log. A lagging replica lacks a log, or has its
previous incarnation.
"""


Sent = tuple[Target[C], C, Answer]
"""An answer with a status below 300, and its source."""


class Sending(Generic[C]):
    """The requests to one server: its addresses, and idle connections."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.targets = Targets[C](terms)
        self._is_closed = False

    def give_back(self, target: Target[C], connection: C, answer: Answer) -> None:
        """Keep a connection for the next request, if its answer is complete and the connection stays open."""
        if not answer.is_reusable or self._is_closed or len(target.idle) >= IDLE_CONNECTIONS_MAX:
            connection.close()
        else:
            target.idle.append(connection)
            if self._is_closed:  # another thread has closed it since the check
                for each in self.targets.idle():
                    each.close()

    def _elsewhere(self, target: Target[C], request: Request[Any], connection: C, answer: Answer) -> Target[C]:
        """The primary that an answer names; raises the error of any other answer of 300 or above."""
        self.give_back(target, connection, answer)
        if (primary := self.targets.named_by(target, answer)) is not None:
            return primary
        error = refusal(request, answer)
        self.targets.failed(target, error)
        raise error


class Trying(Generic[C]):
    """The further attempts of a request with a whole answer, after the first one failed."""

    def __init__(self, sending: Sending[C], request: Request[Any]) -> None:
        self._targets, self._request = sending.targets, request
        self.attempts = sending.terms.attempts()
        self._may_be_done = False
        """Whether an answer was lost, so that the server may have carried out the request."""

    def pause_s(self, error: OSError | core.EventLogError) -> float:
        """How long to wait before the next attempt, in seconds. Raises the error if no attempt is left.

        An append that may have been carried out raises OutcomeUnknown; a request that is sent once raises it at once.
        """
        is_lost = isinstance(error, OSError | GatewayFailed) and not isinstance(error, NOT_SENT)
        self._may_be_done = self._may_be_done or is_lost
        if is_lost and self._request.is_sent_once:
            lost = self._targets.known(error)
            raise self._unknown(lost) from lost
        try:
            return self._targets.pause_s(self.attempts, error)
        except core.EventLogError as last:
            if self._request.appended_ids is None or not self._may_be_done:
                raise
            raise self._unknown(last) from last

    def check_settled(self, error: core.EventLogError) -> None:
        """Check an error that retrying cannot fix. Raises OutcomeUnknown for a change that may have been made, if the
        error is not a refusal by the server, or is a refusal that does not cover an earlier attempt."""
        if self._request.appended_ids is None and not self._request.is_sent_once:
            return
        if isinstance(error, core.OutcomeUnknown):  # the server itself says so
            error.ids = self._ids()
            return
        is_refusal = not isinstance(error, UnexpectedAnswer) or error.is_refusal
        if not is_refusal or (self._may_be_done and isinstance(error, _UNSETTLED)):
            raise self._unknown(error) from error

    def _unknown(self, error: core.EventLogError) -> core.OutcomeUnknown:
        request = self._request
        if request.appended_ids is None:
            return change_unknown(request.log, error)
        return outcome_unknown(request.log, error, self._ids())

    def _ids(self) -> Sequence[str]:
        ids = self._request.appended_ids
        return () if ids is None else ids()


class Opened(Generic[C]):
    """A streamed answer. Closing it before its end only closes the connection."""

    def __init__(self, sending: Sending[C], sent: Sent[C]) -> None:
        self._connection: C | None
        self._sending = sending
        self._target, self._connection, self.answer = sent
        if self.answer.is_complete:  # its connection is free before its pieces are read
            sending.give_back(*sent)
            self._connection = None

    def close(self) -> None:
        """Close it. If another thread or task calls this, a running `read` ends with an error."""
        connection, self._connection = self._connection, None
        if connection is None:
            self.answer.pieces.clear()
        else:
            self._sending.give_back(self._target, connection, self.answer)

    def give_up(self, error: OSError | core.EventLogError) -> None:
        """Record that it cannot be used, for this reason. A retry may use another address."""
        self.close()
        self._sending.targets.failed(self._target, error)

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()
