"""One HTTP/1.1 connection: a request goes out, its answer comes in, then the next. No retries and no JSON here.

Answers are parsed by httptools: the parser of `http.client` alone takes more time than a whole small request may.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl

import httptools

from .address import Address

RECEIVE_BYTES = 64 * 1024
"""More would be mapped from the system anew each time it is asked for, which costs more than the answer in it."""


class ConnectionLost(OSError):
    """The server went away, or does not speak HTTP, before its answer was complete."""


class Connection:
    """A connection to a server, opened by its first request. For one thread at a time; `close` is for any."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._answer: _Answer | None = None
        self.has_received = False
        """Whether the server ever said anything."""

    # Per connection

    def is_stale(self) -> bool:
        """Whether the server closed an idle connection, or sent what nobody asked for."""
        if self._socket is None:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close it; a thread that waits for an answer gets ConnectionLost."""
        if (sock := self._socket) is not None:
            self._socket = None
            with contextlib.suppress(OSError):  # the peer was faster
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            sock.close()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            address = self._address
            sock = socket.create_connection((address.host, address.port), self._timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.tls is not None:
                try:
                    sock = address.tls.wrap_socket(sock, server_hostname=address.host)
                except BaseException:
                    sock.close()
                    raise
            self._socket = sock
        return self._socket

    # Per request

    def send(self, head: bytes, body: bytes) -> _Answer:
        """Send a request and wait for the head of its answer. Raises OSError (such as ConnectionLost, TimeoutError)."""
        sock = self._connected()
        sock.settimeout(self._timeout_s)
        self._answer = answer = _Answer()
        sock.sendall(head + body)
        while not answer.has_head:
            self._receive(answer)
        return answer

    def read(self, timeout_s: float | None = None) -> bytes:
        """The next piece of the answer's body, empty at its end. Raises as `send`; TimeoutError loses nothing."""
        answer = self._answer
        assert answer is not None, "send a request first"
        if not answer.pieces and not answer.is_complete:
            if self._socket is not None:
                self._socket.settimeout(self._timeout_s if timeout_s is None else timeout_s)
            while not answer.pieces and not answer.is_complete:
                self._receive(answer)
        body = b"".join(answer.pieces)
        answer.pieces.clear()
        return body

    def _receive(self, answer: _Answer) -> None:
        if self._socket is None:
            raise ConnectionLost("the connection was closed")
        try:
            received = self._socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            raise TimeoutError("timed out waiting for the server's answer") from None
        if not received:
            raise ConnectionLost("the server closed the connection before its answer was complete")
        self.has_received = True
        try:
            answer.parser.feed_data(received)
        except httptools.HttpParserError as error:
            raise ConnectionLost(f"the answer is not HTTP: {error}") from None


class _Answer:
    """An answer as it comes in; httptools calls the `on_` methods."""

    __slots__ = ("has_head", "headers", "is_complete", "is_reusable", "parser", "pieces")

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        """By name, in lower case."""
        self.pieces: list[bytes] = []
        self.has_head = False
        self.is_complete = False
        self.is_reusable = False
        """Whether the connection may carry another request after this answer."""
        self.parser = httptools.HttpResponseParser(self)

    @property
    def status(self) -> int:
        """The status code."""
        return int(self.parser.get_status_code())

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser, which knows only now whether the connection is kept."""
        self.is_complete = True
        self.is_reusable = bool(self.parser.should_keep_alive())
