"""AMQP of a server that shares a home: a port for reading, and, on a replica, a port that redirects clients.

The port for reading stays open while the server runs, in any role, so its receivers stay connected.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from functools import partial

from ...amqp.container import Container
from ...amqp.redirect import Elsewhere, attach_reading, connection_redirect
from ...amqp.server import AmqpServer
from ...amqp.settings import AmqpSettings
from ...core.access import Guard
from ...core.loop.memory import MemoryAccount
from ...core.loop.scheduler import FairScheduler
from ...core.store import LogStore
from ...core.watch.bus import Bus
from ...core.watch.threads import Threads


class ReplicaAmqp:
    """Both ports. Their sockets are bound already; the caller owns them."""

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        settings: AmqpSettings,
        sockets: Sequence[socket.socket],
        reading_sockets: Sequence[socket.socket],
        tls: ssl.SSLContext | None,
        elsewhere: Elsewhere,
        threads: Threads,
        *,
        bus: Bus,
        turns: FairScheduler,
        memory: MemoryAccount,
    ) -> None:
        """While this server is a replica, clients of `sockets` are redirected; clients of `reading_sockets` receive.

        `elsewhere` is asked for each connection and link; for the rest see `Container` and `AmqpServer`.
        """
        self._sockets, self._tls = sockets, tls
        contained = partial(Container, store, guard, settings, bus=bus, turns=turns, memory=memory, remembers=False)
        reading = contained()
        self.containers = [reading] if reading_sockets else []
        """The containers whose connections count."""
        self._answer = partial(attach_reading, reading, elsewhere)
        self._reading = AmqpServer(reading, self._answer, reading_sockets, tls, threads)
        self._standing_by: AmqpServer | None = None
        self._sending_away = contained(sent_away=lambda: connection_redirect(elsewhere.primary()))

    async def start(self) -> None:
        """Accept connections at both."""
        await self._reading.start()
        bound = [each.dup() for each in self._sockets]  # it closes them, and the port is needed again
        self._standing_by = AmqpServer(self._sending_away, self._answer, bound, self._tls)
        await self._standing_by.start()

    async def end_standing_by(self) -> None:
        """Stop redirecting: the primary's own AMQP server gets the port."""
        if self._standing_by is not None:
            await self._standing_by.cut_off()

    async def stop(self) -> None:
        """End both; may be called again."""
        await self.end_standing_by()
        await self._reading.stop()
