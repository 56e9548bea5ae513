"""The first bytes of a connection at an AMQP port of a home: a client's, or a header of a server that forwards one."""

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
"""Why a connection is refused: it sent too little in time, or a header that is not believed."""


class OriginReception(AmqpReception):
    """Opens connections of clients, also if another server of the home forwards them, with the client's address.

    Only one byte is looked at, and stays where it is: AMQP begins with `A`, TLS with 0x16. A peer that sends nothing
    gets `amqp.login_ms`, as for a TLS handshake and for the login.
    """

    def __init__(self, container: Container, attach: Attach, origins: Origins) -> None:
        """`origins` believes the headers of other servers."""
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
            pass  # it has gone
        else:
            return await self.of_client(connection) if first else None
        return None

    def of_server(self, origin: Origin) -> Welcome:
        """How to open a connection that another server forwards for that client."""
        return Welcome(lambda: self.transport(origin))

    async def of_client(self, connection: socket.socket) -> Welcome | None:
        """How to open a client's own connection; None: it is closed."""
        return Welcome(self)


async def first_byte(connection: socket.socket) -> bytes:
    """The first byte that the peer sends, which is not taken; empty if it closes before. Raises OSError."""
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
    """A header, and nothing behind it. Raises OriginRefused, EOFError, OSError."""
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
