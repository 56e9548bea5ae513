"""One outgoing connection: a request is sent and its answer received, then the next. No retries."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from ...core.loop.deadline import Deadline
from ...formats.clients.answer import Answer, NotHttp
from .sockets import Sockets

HEAD_BYTES_MAX = 16 * 1024
"""The maximum size of an answer up to its body, including interim answers."""
INTERIM_MAX = 4
"""The maximum number of interim answers (1xx) to one request."""
KEPT_S = 60.0
"""How long an idle connection is kept."""


class AnswerTooLong(ConnectionError):
    """The called server sends more than an answer may contain."""


class Unanswered(ConnectionError):
    """The connection ended before any byte of an answer."""


class Reply(NamedTuple):
    """A received answer."""

    status: int
    fields: Mapping[bytes, bytes]
    """By name, in lower case."""
    body: bytes
    """Empty if the body is not wanted."""
    is_cut: bool
    """Whether the body was longer than allowed: the rest was not read."""


class OutgoingConnection(asyncio.Protocol):
    """A connection. It ends when an answer is too long or unrequested, and after a long idle time."""

    def __init__(self, sockets: Sockets, lost: Callable[[OutgoingConnection], None]) -> None:
        """`lost` is called once it has ended completely, if it was connected at all."""
        self._loop = asyncio.get_running_loop()
        self._sockets, self._lost = sockets, lost
        self._transport: asyncio.Transport | None = None
        self._deadline = Deadline(self._loop, self._too_late)
        self._waiter: asyncio.Future[Reply] | None = None
        self._answer: Answer | None = None
        """The answer being awaited."""
        self._head_bytes = self._body_bytes = self._body_bytes_max = 0
        self._body: list[bytes] | None = None
        self._poll = select.poll()
        self.is_open = False
        """Whether it can carry another call."""
        self._ended = "not yet connected"
        """The reason why it is not open."""

    # Per call

    def is_stale(self) -> bool:
        """Whether it has ended, or has unrequested input, including input that the loop has not seen.

        That input would be mistaken for the answer to the next call.
        """
        return not self.is_open or bool(self._poll.poll(0))

    def ask(self, request: bytes, timeout_s: float, body_bytes_max: int, *, wants_body: bool) -> asyncio.Future[Reply]:
        """Send a whole request; returns its answer, which fails with OSError (Unanswered, TimeoutError) or NotHttp.

        At most `body_bytes_max` of the body are read; a longer one ends the connection. One call at a time; a caller
        that stops waiting must close the connection.
        """
        waiter = self._waiter = self._loop.create_future()
        if not self.is_open or self._transport is None:
            waiter.set_exception(Unanswered(f"the connection has ended: {self._ended}"))
            return waiter
        self._answer = Answer(is_lenient=True)
        self._head_bytes = self._body_bytes = 0
        self._body_bytes_max, self._body = body_bytes_max, [] if wants_body else None
        self._transport.write(request)
        self._deadline.set(timeout_s)
        return waiter

    def close(self) -> None:
        """Close it at once, whatever is still unread; a waiting caller gets Unanswered."""
        self._end(Unanswered("the connection was closed"))

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self.is_open = True
        self._sockets.open += 1

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self._end(AnswerTooLong("an answer without a request"))
            return
        try:
            self._receive(answer, data)
        except (NotHttp, AnswerTooLong) as error:
            self._end(error)
            return
        if answer.is_complete:
            self._finish(answer)

    def eof_received(self) -> None:
        """See asyncio.Protocol. This may end an answer. The connection ends."""
        answer = self._answer
        if answer is not None:
            answer.receive_eof()
            if answer.is_complete:
                self._finish(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sockets.open -= 1
        reason = f": {exc}" if exc else ""
        if self._head_bytes:
            self._end(ConnectionResetError(f"the connection ended during the answer{reason}"))
        else:
            self._end(Unanswered(f"the connection ended without an answer{reason}"))
        self._lost(self)

    # Receiving

    def _receive(self, answer: Answer, data: bytes) -> None:
        """Process received data; at once, no more than may precede the body. Raises NotHttp, AnswerTooLong."""
        while data and not answer.status:
            left = HEAD_BYTES_MAX - self._head_bytes
            if not left:
                raise AnswerTooLong(f"more than {HEAD_BYTES_MAX} bytes before the body of the answer")
            head, data = data[:left], data[left:]
            self._head_bytes += len(head)
            answer.receive_data(head)
            if answer.interim > INTERIM_MAX:
                raise AnswerTooLong(f"more than {INTERIM_MAX} interim answers")
        if data:
            answer.receive_data(data)
        if answer.pieces:
            self._take(answer)

    def _take(self, answer: Answer) -> None:
        """Process the next piece of the body; it is discarded if not wanted."""
        piece = answer.body()
        self._body_bytes += len(piece)
        if self._body_bytes > self._body_bytes_max:
            self._finish(answer, is_cut=True)
        elif self._body is not None:
            self._body.append(piece)

    def _finish(self, answer: Answer, *, is_cut: bool = False) -> None:
        """Complete the caller's future, unless it is done, and keep the connection if possible."""
        waiter, transport = self._waiter, self._transport
        self._answer = self._waiter = None
        if waiter is None or waiter.done() or transport is None:
            return
        body = b"".join(self._body) if self._body else b""
        waiter.set_result(Reply(answer.status, answer.fields, body, is_cut))
        if is_cut or not answer.is_reusable or transport.get_write_buffer_size() or self._sockets.are_many:
            self.close()
        else:
            self._deadline.set(KEPT_S)

    def _too_late(self) -> None:
        self._end(TimeoutError("no answer in time"))

    def _end(self, error: Exception) -> None:
        """Fail the caller's future; close the socket at once, whatever is still unread."""
        if self.is_open:
            self.is_open, self._ended = False, str(error)
        self._answer = None
        self._deadline.stop()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()
