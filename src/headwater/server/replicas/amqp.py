"""AMQP of a server with a shared home: a read-only port, and on a replica the main port, which leads to the primary.

The read-only port stays open in any role, so its receivers stay connected. At the main port a replica forwards
connections to the primary. If it cannot, or `replica.forward` is off, it sends clients the primary's address.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial

from ...amqp.connections.transport import Attach, Origin
from ...amqp.container import Container
from ...amqp.protocol.conditions import CONNECTION_FORCED, ConnectionFault
from ...amqp.redirect import Elsewhere, attach_reading, connection_redirect
from ...amqp.server import AmqpReception, AmqpServer
from ...amqp.settings import AmqpSettings
from ...core.access import Guard
from ...core.loop.memory import MemoryAccount
from ...core.loop.reception import Welcome
from ...core.loop.scheduler import FairScheduler
from ...core.store import LogStore
from ...core.watch.bus import Bus
from ...core.watch.threads import Threads
from ...homes.home_secret import HomeSecret
from .forwarded_connection import ForwardedConnections
from .origin_header import Origins
from .origin_reception import OriginReception

ONE_HOP = "another server forwarded this connection, but this server is not the primary; reconnect"


class ReplicaReception(OriginReception):
    """Opens connections at the main AMQP port of a replica."""

    def __init__(
        self,
        container: Container,
        attach: Attach,
        origins: Origins,
        elsewhere: Elsewhere,
        forwarded: ForwardedConnections | None,
    ) -> None:
        """`container` gets connections that are not forwarded; `forwarded` gets the others. None: no connection is
        forwarded.
        """
        super().__init__(container, attach, origins)
        self._elsewhere, self.forwarded = elsewhere, forwarded

    @property
    def room(self) -> int:
        """See Reception."""
        return super().room if self.forwarded is None else self.forwarded.room

    def takes(self, place: str, opening: int) -> bool:
        """See Reception."""
        return super().takes(place, opening) and (self.forwarded is None or self.forwarded.room > opening)

    def of_server(self, origin: Origin) -> Welcome:
        """Refuse a connection that was already forwarded: only one hop is allowed."""
        return Welcome(lambda: self.transport(origin, ConnectionFault(CONNECTION_FORCED, ONE_HOP)))

    async def of_client(self, connection: socket.socket) -> Welcome | None:
        """Forward the connection, or open it and send the primary's address."""
        url = self._elsewhere.primary()
        fault = connection_redirect(url)
        if self.forwarded is not None and url is not None:
            try:
                both = await self.forwarded.begin(connection, url)
                return Welcome(both.client, ends_tls=False, unopened=both.end)
            except (OSError, UnicodeError) as error:
                self.forwarded.statistics.failed += 1
                why = str(error) or "it did not respond in time"
                fault = ConnectionFault(CONNECTION_FORCED, f"this replica cannot reach the primary at {url}: {why}")
        return Welcome(lambda: self.transport(fault=fault))

    def tick(self, now: float) -> None:
        """See AmqpReception."""
        super().tick(now)
        if self.forwarded is not None:
            self.forwarded.tick(now)


class ReplicaAmqp:
    """Both AMQP ports. The caller binds and owns their sockets."""

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
        secret: HomeSecret,
        home_time_ms: Callable[[], int],
        *,
        forwards: bool,
        bus: Bus,
        turns: FairScheduler,
        memory: MemoryAccount,
    ) -> None:
        """While this server is a replica, clients of `sockets` are forwarded; clients of `reading_sockets` receive.

        `elsewhere` is called for each connection and link. Without `forwards` clients only get the primary's address.
        For `secret` and `home_time_ms` see `Origins`, for the rest `Container` and `AmqpServer`.
        """
        self._sockets, self._tls = sockets, tls
        contained = partial(Container, store, guard, settings, bus=bus, turns=turns, memory=memory, remembers=False)
        self.containers = reading, telling = contained(), contained()
        """The containers of receivers, and of clients that only get the primary's address."""
        self.forwarded = (
            ForwardedConnections(settings, memory, secret, home_time_ms, elsewhere.primary) if forwards else None
        )
        answer = partial(attach_reading, reading, elsewhere)
        self._reading = AmqpServer(AmqpReception(reading, answer), reading_sockets, tls, threads)
        origins = Origins(secret, home_time_ms)
        self._reception = ReplicaReception(telling, answer, origins, elsewhere, self.forwarded)
        self._standing_by: AmqpServer | None = None

    async def start(self) -> None:
        """Accept connections at both ports."""
        await self._reading.start()
        bound = [each.dup() for each in self._sockets]  # the server closes them, and they are needed again
        self._standing_by = AmqpServer(self._reception, bound, self._tls)
        await self._standing_by.start()

    async def end_standing_by(self) -> None:
        """Stop forwarding, so that the AMQP server of the primary can use the port."""
        if self._standing_by is not None:
            await self._standing_by.cut_off()
        if self.forwarded is not None:
            self.forwarded.end()

    async def stop(self) -> None:
        """Close both ports. May be called again."""
        await self.end_standing_by()
        await self._reading.stop()
