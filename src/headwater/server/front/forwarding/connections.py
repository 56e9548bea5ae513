"""The connections of a replica to its primary: opened when they are needed, kept while they are idle."""

from __future__ import annotations

import asyncio
from functools import partial

from ....http.outgoing import Tls, target_of
from .connection import READ_BYTES, HopConnection

CONNECT_S = 2.0
"""How long opening a connection may take, including the TLS handshake."""
KEPT_MAX = 64
"""The maximum number of idle connections that are kept."""


class HopConnections:
    """All connections on one event loop. Call `close` at the end."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._kept: list[tuple[str, HopConnection]] = []
        self._all: set[HopConnection] = set()
        self._tls = Tls()

    def kept(self, url: str) -> HopConnection | None:
        """An idle connection to that server. Idle connections to a former primary are closed."""
        while self._kept:
            origin, connection = self._kept.pop()
            if origin == url and not connection.is_stale():
                return connection
            connection.close()
        return None

    async def open(self, url: str) -> HopConnection:
        """A new connection. Certificates are verified with the system's authorities. Raises OSError, ValueError."""
        origin = target_of(url).origin
        async with asyncio.timeout(CONNECT_S):
            tls = await self._tls.context() if origin.is_tls else None
            name = origin.host.rstrip(".").partition("%")[0] if origin.is_tls else None
            _, connection = await asyncio.get_running_loop().create_connection(
                partial(HopConnection, self._buffer, self._forget), origin.host, origin.port, ssl=tls,
                server_hostname=name,
            )  # fmt: skip
        self._all.add(connection)
        return connection

    def keep(self, url: str, connection: HopConnection) -> None:
        """Keep a connection whose answer is complete, if it can be reused."""
        if connection.release():
            if len(self._kept) < KEPT_MAX:
                self._kept.append((url, connection))
            else:
                connection.close()

    def close_idle(self) -> None:
        """Close all idle connections."""
        kept, self._kept = self._kept, []
        for _, connection in kept:
            connection.close()

    async def close(self) -> None:
        """Close all connections."""
        self.close_idle()
        for connection in list(self._all):
            connection.close()
        await asyncio.sleep(0)  # the loop tells them that they are closed

    def _forget(self, connection: HopConnection) -> None:
        self._all.discard(connection)
        self._kept = [each for each in self._kept if each[1] is not connection]
