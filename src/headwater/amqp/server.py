"""AMQP over TCP and TLS: accepts connections, sends heartbeats, and closes connections gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Sequence

from ..core.loop.reception import Reception
from ..core.watch.threads import Threads
from .connections.shared import TICK_S
from .connections.transport import Attach, Origin, Transport
from .container import Container
from .protocol import conditions
from .protocol.conditions import ConnectionFault

_logger = logging.getLogger("headwater.amqp")

BACKLOG = 2048
"""The number of connections that may wait to be accepted. asyncio calls listen again, with 100 unless this is given."""
FINISH_S = 5.0
"""The time limit for producers' messages to reach the disk when the server stops."""


class AmqpReception(Reception):
    """The function that the event loop calls before it opens a connection."""

    def __init__(self, container: Container, attach: Attach) -> None:
        """`attach` answers the peers' attaches."""
        super().__init__(self.transport)
        self.container, self._attach = container, attach

    def transport(self, origin: Origin | None = None, fault: ConnectionFault | None = None) -> Transport:
        """The protocol of one connection; for `origin` and `fault` see Transport."""
        return Transport(self.container, self._attach, origin, fault)

    @property
    def room(self) -> int:
        return self.container.room

    def takes(self, place: str, opening: int) -> bool:
        return self.container.has_room(place, opening)

    def refuse(self, place: str, reason: str) -> bytes:
        self.container.refuse(place, reason)
        return b""  # a peer that begins with SASL would not understand another header

    def tick(self, now: float) -> None:
        """Handle the passage of time."""
        self.container.tick(now)


class AmqpServer:
    """One container on several bound sockets, from `start` to `stop`."""

    def __init__(
        self,
        reception: AmqpReception,
        sockets: Sequence[socket.socket],
        tls: ssl.SSLContext | None,
        threads: Threads | None = None,
    ) -> None:
        """`reception` opens the connections to its container; `threads` keeps the tick task running."""
        self._threads = threads or Threads()
        self._reception, self._container = reception, reception.container
        self._sockets, self._tls = sockets, tls
        self._servers: list[asyncio.Server] = []
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start accepting connections."""
        loop = asyncio.get_running_loop()
        timeout_s = self._container.shared.settings.login_ms / 1000 if self._tls else None
        for bound in self._sockets:
            server = await loop.create_server(
                self._reception,
                sock=bound,
                backlog=BACKLOG,
                ssl=self._tls,
                ssl_handshake_timeout=timeout_s,
            )
            self._servers.append(server)
        self._ticking = self._threads.task("amqp ticks", self._tick)

    async def note_run(self) -> None:
        """See Nodes."""
        await self._container.nodes.note_run()

    async def stop(self) -> None:
        """Stop accepting, wait until producers' messages are on disk, then close every connection and clean up."""
        for server in self._servers:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                await self._container.finish()
        for connection in tuple(self._container.connections):
            connection.close(conditions.CONNECTION_FORCED, "the server is stopping")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                await self._container.empty.wait()
        for connection in tuple(self._container.connections):
            connection.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                await self._container.empty.wait()  # the state that they leave is stored, too
        self._container.shared.lingering.close()
        if self._ticking is not None:
            self._ticking.cancel()
        await self._container.nodes.close()

    async def cut_off(self) -> None:
        """Stop accepting, without waiting for any peer."""
        for server in self._servers:
            server.close()
        self._container.is_stopping = True
        for connection in tuple(self._container.connections):
            connection.abort()
        self._container.shared.lingering.close()
        if self._ticking is not None:
            self._ticking.cancel()
        await self._container.nodes.close()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._reception.tick(loop.time())
            except Exception:  # an error in one connection must not stop the heartbeats of the others
                _logger.exception("a tick failed")
