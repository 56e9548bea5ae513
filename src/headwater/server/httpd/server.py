"""The HTTP server: connections on sockets that are already bound, from `start` to `stop`."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Collection, Sequence
from functools import partial

from ...core.loop.memory import MemoryAccount
from ...http import Application
from ..config.settings import Http
from ..process.log_lines import fields
from ..process.sockets import BACKLOG
from .admission import Admission, HttpReception
from .connection import HttpConnection
from .forwarded import Forwarded, TrustedProxies
from .server_state import ServerState
from .tunnel import TunnelEnd
from .websocket import WebSocketProtocol

logger = logging.getLogger("headwater.server")

LAST_ANSWERS_S = 2
"""How long responses may take after the server has stopped producing data for them."""

OpenConnection = HttpConnection | TunnelEnd | WebSocketProtocol


class HttpServer:
    """One ASGI application on bound sockets, from `start` to `stop`."""

    def __init__(
        self,
        application: Application,
        sockets: Sequence[socket.socket],
        http: Http,
        tls: ssl.SSLContext | None,
        admission: Admission | None = None,
        memory: MemoryAccount | None = None,
    ) -> None:
        """`admission` limits the connections; by default, to the configured number.

        Connections draw from `memory`. The server owns the sockets from `start` on.
        """
        if http.trusted_proxies:
            application = Forwarded(application, TrustedProxies(http.trusted_proxies))
        self.admission = admission or Admission(http.connections_max)
        self._state = ServerState(application, self.admission, memory)
        self._sockets, self._tls = tuple(sockets), tls
        self._listeners: list[asyncio.AbstractServer] = []

    @property
    def open_connections(self) -> Collection[OpenConnection]:
        """The open connections, WebSockets included."""
        return self._state.connections

    @property
    def connections(self) -> int:
        """How many connections are open, including WebSockets."""
        return len(self._state.connections)

    async def start(self) -> None:
        """Accept connections. Raises OSError if a socket cannot listen; in this case none does."""
        loop = asyncio.get_running_loop()
        connect = HttpReception(partial(HttpConnection, self._state), self.admission, lambda: self.connections)
        try:
            for bound in self._sockets:
                listener = await loop.create_server(connect, sock=bound, ssl=self._tls, backlog=BACKLOG)
                self._listeners.append(listener)
        except BaseException:
            self.refuse_connections()
            raise

    def refuse_connections(self) -> None:
        """Accept no more connections; the open ones stay."""
        for listener in self._listeners:
            listener.close()

    def cut_off(self) -> None:
        """Drop the connections with an unfinished response. To the application, their clients disconnect."""
        for connection in tuple(self.open_connections):
            if isinstance(connection, HttpConnection) and connection.is_answering:
                connection.transport.abort()

    async def stop(self) -> None:
        """Close idle connections, give running responses a moment, and end. May be called again."""
        self.refuse_connections()
        for connection in tuple(self.open_connections):
            connection.shutdown()
        if not await self._state.emptied(LAST_ANSWERS_S):
            if running := self._state.cancel():
                logger.error("answers cut off", extra=fields(connections=self.connections, running=running))
            for connection in tuple(self.open_connections):
                connection.transport.abort()
            self._state.lingering.close()
        for listener in self._listeners:
            await listener.wait_closed()
