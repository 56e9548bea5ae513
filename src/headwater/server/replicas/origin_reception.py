"""Reads the first bytes of an AMQP connection: a client's own, or the header of a forwarding server."""

from __future__ import annotations

import asyncio
import socket

from ...amqp.connections.transport import Attach, Origin
from ...amqp.container import Container
from ...amqp.server import AmqpReception
from ...core.client_subnet import place_of
from ...core.loop.reception import Welcome
from .origin_header import FIXED, SIGNATURE, OriginRefused, Origins, bytes_after

TIMEOUT, ORIGIN = "timeout", "origin"
"""Reasons to refuse a connection: it sent too little in time, or a header that does not verify."""


class OriginReception(AmqpReception):
    """Opens connections of clients, including connections that another server forwards with the client's address.

    It peeks at the first byte only: AMQP begins with `A`, TLS with 0x16. A peer that sends nothing is disconnected
    after `amqp.login_ms`, as in a TLS handshake or a login.
    """

    def __init__(self, container: Container, attach: Attach, origins: Origins) -> None:
        """`origins` verifies the headers of other servers."""
        super().__init__(container, attach)
        self._origins = origins
        self._patience_s = container.shared.settings.login_ms / 1000

    async def meet(self, connection: socket.socket) -> Welcome | None:
        """See Reception."""
        try:
            async with asyncio.timeout(self._patience_s):
                first = await first_byte(connection)
                if first == SIGNATURE[:1]:
                    return self.of_server(self._origins.believe(await _header(connection)))
        except OriginRefused as refused:
            self.container.statistics.origins_refused += 1
            self.container.refuse(_place(connection), ORIGIN, str(refused))
        except TimeoutError:
            self.container.refuse(_place(connection), TIMEOUT)
        except (OSError, EOFError):
            pass  # the peer has disconnected
        else:
            return await self.of_client(connection) if first else None
        return None

    def of_server(self, origin: Origin) -> Welcome:
        """How to open a connection that another server forwards for that client."""
        return Welcome(lambda: self.transport(origin))

    async def of_client(self, connection: socket.socket) -> Welcome | None:
        """How to open a client's own connection; None if it is closed."""
        return Welcome(self)


async def first_byte(connection: socket.socket) -> bytes:
    """The peer's first byte, which stays unread; empty if the peer closes first. Raises OSError."""
    while True:
        try:
            return connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            await _readable(connection)


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection, wake)
    try:
        await ready
    finally:
        loop.remove_reader(connection)


async def _header(connection: socket.socket) -> bytes:
    """Read exactly one header. Raises OriginRefused, EOFError, OSError."""
    fixed = await _exactly(connection, FIXED.size)
    return fixed + await _exactly(connection, bytes_after(fixed))


async def _exactly(connection: socket.socket, count: int) -> bytes:
    loop, taken = asyncio.get_running_loop(), b""
    while len(taken) < count:
        if not (more := await loop.sock_recv(connection, count - len(taken))):
            raise EOFError
        taken += more
    return taken


def _place(connection: socket.socket) -> str:
    try:
        return place_of(connection.getpeername()[0])
    except OSError:
        return ""
