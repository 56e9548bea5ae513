"""A blocking connection to a server: a request is sent and answered, then the next. No retries."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl

from ...formats.clients.answer import Answer, KnownHeads, NotHttp
from ..protocol.address import Address
from ..protocol.terms import ConnectionLost

RECEIVE_BYTES = 64 * 1024
"""A larger buffer would be mapped again for each call, which costs more than the answer in it."""
JOINED_BYTES_MAX = 64 * 1024
"""A longer body is sent separately, rather than copied behind its head."""


class Connection:
    """A connection to a server. For one thread at a time; any thread may call `close`."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        """`timeout_s` limits the wait for each piece of an answer."""
        self._timeout_s = self._waits_s = timeout_s
        self._socket: socket.socket | None = sock
        sock.settimeout(timeout_s)
        self._heads = KnownHeads()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self.has_received = False
        """Whether the server has sent anything yet."""

    @classmethod
    def open(cls, address: Address, timeout_s: float, connect_s: float) -> Connection:
        """Connect to that address within `connect_s`, with TLS if the address has it. Raises OSError."""
        try:
            return cls(open_socket(address, connect_s), timeout_s)
        except TimeoutError:
            raise TimeoutError("timed out while connecting") from None

    # Per connection

    def is_stale(self) -> bool:
        """Whether the server closed an idle connection, or sent unrequested data."""
        return self._socket is None or bool(self._poll.poll(0))

    def close(self) -> None:
        """Close it; a thread that waits for an answer gets ConnectionLost."""
        if (sock := self._socket) is not None:
            self._socket = None
            with contextlib.suppress(OSError):  # the peer closed it first
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            sock.close()

    def wait_closed(self) -> None:
        """Does nothing: once closed, it is closed completely."""

    # Per request

    def send(self, head: bytes, body: bytes, timeout_s: float) -> Answer:
        """Send a request and wait, at most `timeout_s`, for the head of its answer. Raises OSError (such as
        ConnectionLost, TimeoutError).
        """
        if (sock := self._socket) is None:
            raise ConnectionLost("the connection was closed")
        if timeout_s != self._waits_s:
            self._wait_for(timeout_s)
        if len(body) <= JOINED_BYTES_MAX:
            sock.sendall(head + body)
        else:
            sock.sendall(head)
            sock.sendall(body)
        answer = Answer(self._heads)
        while not answer.status:
            self._receive(answer)
        return answer

    def finish(self, answer: Answer) -> None:
        """Wait for the rest of an answer, which is kept in it. Raises the same errors as `send`."""
        while not answer.is_complete:
            self._receive(answer)

    def read(self, answer: Answer, timeout_s: float | None = None) -> bytes:
        """The next piece of an answer's body, empty at its end. Raises the same errors as `send`; TimeoutError loses
        nothing.
        """
        if not answer.pieces and not answer.is_complete:
            self._wait_for(self._timeout_s if timeout_s is None else timeout_s)
            while not answer.pieces and not answer.is_complete:
                self._receive(answer)
        return answer.body()

    def _wait_for(self, timeout_s: float) -> None:
        if timeout_s != self._waits_s and self._socket is not None:
            self._socket.settimeout(timeout_s)
            self._waits_s = timeout_s

    def _receive(self, answer: Answer) -> None:
        if (sock := self._socket) is None:
            raise ConnectionLost("the connection was closed")
        try:
            received = sock.recv(RECEIVE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            raise TimeoutError("timed out waiting for the server's answer") from None
        if not received:
            raise ConnectionLost("the server closed the connection before its answer was complete")
        self.has_received = True
        try:
            answer.receive_data(received)
        except NotHttp as error:
            raise ConnectionLost(f"the answer is not HTTP: {error}") from None


def open_socket(address: Address, timeout_s: float) -> socket.socket:
    """Connect to that address, with TLS if the address has it. Raises OSError."""
    if address.unix_path is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(address.unix_path)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((address.host, address.port), timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.tls is None:
        return sock
    try:
        return address.tls.wrap_socket(sock, server_hostname=address.host)
    except BaseException:
        sock.close()
        raise
