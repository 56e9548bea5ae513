"""The AMQP container: its connections, and the nodes that they lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..core.access import Guard
from ..core.loop.memory import MemoryAccount
from ..core.loop.scheduler import FairScheduler
from ..core.store import LogStore
from ..core.watch.bus import Bus
from ..core.watch.spans import Spans
from .connections.shared import Shared
from .connections.transport import Transport
from .protocol import conditions
from .protocol.conditions import ConnectionFault
from .settings import AmqpSettings
from .streams.node import EventLogNode
from .streams.nodes import Nodes

MEMORY_BYTES = 2**30
"""The budget of a container that was given none."""


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
        sent_away: Callable[[], ConnectionFault | None] = lambda: None,
    ) -> None:
        """`bus` gets the notifications of connections, links and partitions; `turns` deals the time of the loop.

        `memory` is the budget for what connections hold, on this event loop; without it they have one of their own.

        `spans` gets what producers had appended, where somebody collects that.
        For `remembers` see `Nodes`. `sent_away`: with what a connection is closed as soon as it is open, if it is.
        """
        self.sent_away = sent_away
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
        self.nodes = Nodes(store, self.shared, self._on_log_closed, remembers=remembers)
        self.connections: set[Transport] = set()
        self.numbered: dict[int, Transport] = {}
        """The same, by what the server calls them, in that order."""
        self.empty = asyncio.Event()
        """Set while there is no connection."""
        self.empty.set()
        self.is_stopping = False
        """Whether nothing new is taken."""

    def admit(self, transport: Transport) -> str | None:
        """Take one more connection; answers why not, or None if it is taken."""
        if self.is_stopping or len(self.connections) >= self.shared.settings.connections_max:
            self.statistics.connections_refused += 1
            return "stopping" if self.is_stopping else "limit"
        self.connections.add(transport)
        self.statistics.connections += 1
        transport.number = self.statistics.connections
        self.numbered[transport.number] = transport
        self.empty.clear()
        return None

    def forget(self, transport: Transport) -> None:
        """A connection is over."""
        self.connections.discard(transport)
        self.numbered.pop(transport.number, None)
        if not self.connections:
            self.empty.set()

    def tick(self, now: float) -> None:
        """Time has passed."""
        for transport in tuple(self.connections):
            transport.tick(now)
        self.nodes.tick(now)

    async def finish(self) -> None:
        """Take nothing more, and wait until what was taken is on disk and answered, and listeners are served."""
        self.is_stopping = True
        for transport in tuple(self.connections):
            transport.stop_reading()
        while any(transport.is_busy for transport in self.connections):
            await asyncio.sleep(0.01)

    def _on_log_closed(self, node: EventLogNode) -> None:
        for transport in tuple(self.connections):
            transport.expel_all(node.log, conditions.RESOURCE_DELETED, f"log {node.log.name!r} was deleted")
