"""The AMQP container: its connections, and the nodes they reach."""

from __future__ import annotations

import asyncio
from collections import Counter

from ..core.access import Guard, Right
from ..core.client_subnet import place_of
from ..core.loop.memory import MemoryAccount
from ..core.loop.refused_connections import RefusedConnections
from ..core.loop.scheduler import FairScheduler
from ..core.store import LogStore
from ..core.watch.bus import Bus
from ..core.watch.spans import Spans
from .connections.notifications import PROTOCOL
from .connections.shared import Shared
from .connections.transport import Transport
from .protocol import conditions
from .protocol.conditions import ConnectionFault
from .settings import AmqpSettings
from .streams.node import EventLogNode
from .streams.nodes import Nodes

SURPLUS_MAX = 16
"""The number of connections above the limit that may log in. Administrators are served; all others are disconnected."""
SURPLUS_OF_PLACE_MAX = SURPLUS_MAX // 2
"""The number of these that may come from one address."""
MEMORY_BYTES = 2**30
"""The memory budget of a container that was created without one."""


class Container:
    """All connections to the logs of one store, on one event loop."""

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        settings: AmqpSettings,
        *,
        name: str = "headwater",
        bus: Bus | None = None,
        turns: FairScheduler | None = None,
        spans: Spans | None = None,
        memory: MemoryAccount | None = None,
        remembers: bool = True,
    ) -> None:
        """`bus` receives notifications of connections, links and partitions; `turns` shares the time of the loop.

        `memory` is the budget for what connections hold on this event loop; by default the container has its own.

        `spans` receives the spans of producers' appends, if they are collected. For `remembers` see `Nodes`.
        """
        self.shared = Shared(
            guard,
            settings,
            bus or Bus(),
            name,
            turns or FairScheduler(),
            spans,
            memory or MemoryAccount(MEMORY_BYTES),
            takes_messages=remembers,
        )
        self.statistics = self.shared.statistics
        self._refused = RefusedConnections(self.shared.bus, PROTOCOL)
        self._surplus: dict[Transport, str] = {}
        """Connections above the limit, with their addresses."""
        self.nodes = Nodes(store, self.shared, self._on_log_closed, remembers=remembers)
        self.connections: set[Transport] = set()
        self.numbered: dict[int, Transport] = {}
        """The connections by their numbers, ascending."""
        self.empty = asyncio.Event()
        """Set while there are no connections."""
        self.empty.set()
        self.is_stopping = False
        """Whether new connections are refused."""

    def admit(self, transport: Transport) -> str | None:
        """Admit one more connection; returns the reason if it is refused, None if it is admitted."""
        place = place_of(transport.peer)
        if self.is_stopping or not self.has_room(place):
            self.statistics.connections_refused += 1
            return "stopping" if self.is_stopping else "limit"
        if self._is_full(0):
            self._surplus[transport] = place
        self.connections.add(transport)
        self.statistics.connections += 1
        transport.number = self.statistics.connections
        self.numbered[transport.number] = transport
        self.empty.clear()
        return None

    @property
    def room(self) -> int:
        """How many more connections are allowed."""
        return self.shared.settings.connections_max + SURPLUS_MAX - len(self.connections)

    def has_room(self, place: str, opening: int = 0) -> bool:
        """Whether one more connection from that address is admitted in addition to the `opening` ones, or may at least
        log in.
        """
        if not self._is_full(opening):
            return True
        if self.shared.guard.is_open or len(self._surplus) >= SURPLUS_MAX:
            return False
        return Counter(self._surplus.values())[place] < SURPLUS_OF_PLACE_MAX

    def refuse(self, place: str, reason: str, description: str | None = None) -> None:
        """Count and report a connection from that address that is refused before it opens."""
        self.statistics.connections_refused += 1
        self._refused.tell(place, reason, description)

    def sent_away(self, transport: Transport) -> ConnectionFault | None:
        """See Owner. Above the limit, only administrators are served."""
        if transport in self._surplus and (transport.user is None or not transport.user.may(Right.MANAGE, "*")):
            self.statistics.connections_refused += 1
            most = self.shared.settings.connections_max
            detail = f"the server has {most} connections, and accepts only administrators now"
            return ConnectionFault(conditions.RESOURCE_LIMIT_EXCEEDED, detail)
        return transport.fault

    def _is_full(self, opening: int) -> bool:
        return len(self.connections) + opening - len(self._surplus) >= self.shared.settings.connections_max

    def forget(self, transport: Transport) -> None:
        """Forget a connection that is over."""
        self.connections.discard(transport)
        self._surplus.pop(transport, None)
        self.numbered.pop(transport.number, None)
        if not self.connections:
            self.empty.set()

    def tick(self, now: float) -> None:
        """Handle the passage of time."""
        for transport in tuple(self.connections):
            transport.tick(now)
        self.nodes.tick(now)

    async def finish(self) -> None:
        """Admit no more connections. Wait until accepted messages are on disk and acknowledged, and listeners have been
        served.
        """
        self.is_stopping = True
        for transport in tuple(self.connections):
            transport.stop_reading()
        while any(transport.is_busy for transport in self.connections):
            await asyncio.sleep(0.01)

    def _on_log_closed(self, node: EventLogNode) -> None:
        for transport in tuple(self.connections):
            transport.expel_all(node.log, conditions.RESOURCE_DELETED, f"log {node.log.name!r} was deleted")
