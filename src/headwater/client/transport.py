"""Requests to one server: idle connections, retries while it is away or overloaded, problems as exceptions.

Every request sent from here may be repeated: appends carry ids, so a repeated one is recognised by the log.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from ..core.closing import Closing
from ..core.errors import EventLogError
from ..formats import retrying
from ..formats.retrying import Attempts
from ..formats.unreachable import ServerUnreachable
from .address import Address
from .connection import Connection
from .handshakes import why_hopeless
from .problems import UnexpectedAnswer, error_of

JSON = "application/json"
IDLE_CONNECTIONS_MAX = 32
PASSING = (OSError, *retrying.PASSING)
"""What may be better in a moment: the server is away, stopping (503), or has too much to do (503)."""


class Transport:
    """The way to one server. Safe to use from any thread: each request has a connection of its own."""

    def __init__(
        self,
        address: Address,
        timeout_s: float,
        retry_s: float,
        on_waiting: Callable[[EventLogError], object] | None = None,
    ) -> None:
        self.address = address
        self._on_waiting = on_waiting
        self._has_answered = False
        self._retry_s = retry_s
        self._timeout_s = timeout_s
        self._idle: deque[Connection] = deque()
        self._is_closed = False
        self._fixed_head = f" HTTP/1.1\r\nhost: {address.host_header}\r\nuser-agent: headwater-client\r\n" + (
            f"authorization: {address.authorization}\r\n" if address.authorization else ""
        )

    def call(self, method: str, path: str, body: bytes = b"", *, log: str = "", content_type: str = JSON) -> bytes:
        """A whole answer. Raises ServerUnreachable, UnexpectedAnswer, and what the problem document says."""
        return self.ask(method, path, body, log=log, content_type=content_type)[1]

    def ask(
        self, method: str, path: str, body: bytes = b"", *, log: str = "", content_type: str = JSON
    ) -> tuple[int, bytes]:
        """The same with the status before it."""
        attempts = self.attempts()
        while True:
            try:
                with self.open(method, path, body, log=log, content_type=content_type) as answer:
                    return answer.status, answer.rest()
            except PASSING as error:
                attempts.failed(self.known(error))

    def attempts(self, sleep: Callable[[float], object] = time.sleep) -> Attempts:
        """How often to try: until `retry_s` went by since the first failure in a row."""
        return Attempts(within_s=self._retry_s, sleep=sleep, on_waiting=self._on_waiting)

    def known(self, error: OSError | EventLogError) -> EventLogError:
        """What a failed attempt is to be told as: ServerUnreachable for an OSError."""
        if not isinstance(error, OSError):
            return error
        unreachable = ServerUnreachable(self.address.url, str(error) or type(error).__name__)
        unreachable.__cause__ = error
        return unreachable

    def open(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        log: str = "",
        accept: str = JSON,
        content_type: str = JSON,
    ) -> Stream:
        """An answer whose head has come, for its caller to read and close; one attempt.

        Raises OSError where the server is away, ServerUnreachable where it is of no use to try again, and what the
        problem document says.
        """
        if self._is_closed:
            raise ServerUnreachable(self.address.url, "this client was closed")
        connection = self._connection()
        try:
            stream = Stream(self, connection, self._head(method, path, body, accept, content_type), body)
            self._has_answered = True
            if stream.status >= 400:
                raise error_of(stream.status, stream.rest(), stream.retry_after_s, log)
        except OSError as error:
            connection.close()
            if reason := why_hopeless(error, self.address, has_received=self._has_answered or connection.has_received):
                raise ServerUnreachable(self.address.url, reason) from error
            raise
        except BaseException:
            connection.close()
            raise
        return stream

    def close(self) -> None:
        """Close what is idle, and what is in use as soon as it is given back; no more requests are taken."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer is complete for the next request."""
        if self._is_closed or len(self._idle) >= IDLE_CONNECTIONS_MAX:
            connection.close()
        else:
            self._idle.append(connection)

    def _connection(self) -> Connection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return Connection(self.address, self._timeout_s)
            if not connection.is_stale():
                return connection
            connection.close()

    def _head(self, method: str, path: str, body: bytes, accept: str, content_type: str) -> bytes:
        head = f"{method} {self.address.path}{path}{self._fixed_head}accept: {accept}\r\n"
        if body:
            head += f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
        elif method != "GET":
            head += "content-length: 0\r\n"
        return f"{head}\r\n".encode("latin-1")


class Stream(Closing):
    """An answer being read; closing it before its end costs the connection, and nothing else."""

    def __init__(self, transport: Transport, connection: Connection, head: bytes, body: bytes) -> None:
        self._transport = transport
        self._connection: Connection | None = connection
        self._answer = connection.send(head, body)
        self.status = self._answer.status

    @property
    def retry_after_s(self) -> float | None:
        """What `Retry-After` asks for, in seconds."""
        value = self._answer.headers.get(b"retry-after", b"")
        return float(value) if value.isdigit() else None

    @property
    def media_type(self) -> str:
        """What the body is said to be, without parameters."""
        return self._answer.headers.get(b"content-type", b"").partition(b";")[0].decode("latin-1")

    def number(self, name: bytes) -> int:
        """A header field (its name in lower case) that is a number. Raises UnexpectedAnswer if it is missing."""
        value = self._answer.headers.get(name, b"")
        if not value.isdigit():
            raise UnexpectedAnswer(self.status, f"the header {name.decode()} is missing")
        return int(value)

    def read(self, timeout_s: float | None = None) -> bytes:
        """The next piece of the body; empty at its end, with which the stream is closed. Raises OSError."""
        if self._connection is None:
            return b""
        piece = self._connection.read(timeout_s)
        if self._answer.is_complete and not self._answer.pieces:
            self.close()
        return piece

    def rest(self) -> bytes:
        """All of the body that was not read yet."""
        pieces = []
        while piece := self.read():
            pieces.append(piece)
        return b"".join(pieces)

    def close(self) -> None:
        """Done with it; from another thread too, where it ends a `read` with an error."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._answer.is_reusable and not self._answer.pieces:
                self._transport.give_back(connection)
            else:
                connection.close()

    def __del__(self) -> None:
        if getattr(self, "_answer", None) is not None:
            self.close()
