"""The AMQP container: its connections, and its nodes by the names of their logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ..core.access import Guard, Right
from ..core.bus import Bus
from ..core.clocks import wall_clock_ms
from ..core.errors import EventLogError
from ..core.limits import show
from ..core.spans import Spans
from ..core.store import LogStore
from ..core.turns import Turns
from .addresses import parse_address, shown_address
from .protocol import conditions
from .protocol.conditions import ConnectionFault, LinkFault
from .settings import AmqpSettings
from .shared import Shared
from .streams import downtime
from .streams.downtime import Run
from .streams.node import EventLogNode
from .streams.positions import Positions, load
from .streams.suspended import SuspendedLinks
from .transport import Transport

_logger = logging.getLogger("headwater.amqp")


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
        turns: Turns | None = None,
        spans: Spans | None = None,
        remembers: bool = True,
        sent_away: Callable[[], ConnectionFault | None] = lambda: None,
    ) -> None:
        """`bus` gets the notifications of connections, links and partitions; `turns` deals the time of the loop.

        `spans` gets what producers had appended, where somebody collects that.
        Without `remembers` nothing is known of receivers that came before, and nothing kept of those that are there.
        `sent_away`: with what a connection is closed as soon as it is open, if it is.
        """
        self.store = store
        self._remembers, self.sent_away = remembers, sent_away
        self._run = Run(wall_clock_ms(), 0)
        self._noted_at = 0.0
        """When it was last written down that this run goes on, by the clock of the loop."""
        self.shared = Shared(guard, settings, bus or Bus(), name, turns or Turns(), spans, takes_messages=remembers)
        self.statistics = self.shared.statistics
        self.connections: set[Transport] = set()
        self.numbered: dict[int, Transport] = {}
        """The same, by what the server calls them, in that order."""
        self.empty = asyncio.Event()
        """Set while there is no connection."""
        self.empty.set()
        self.is_stopping = False
        """Whether nothing new is taken."""
        self.suspended = SuspendedLinks()
        self._nodes: dict[str, EventLogNode] = {}
        self._opening: dict[str, asyncio.Task[EventLogNode]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Find out how long no server ran: to be called before anything else. Raises what the state store raises."""
        if self._remembers:
            self._run = await asyncio.to_thread(downtime.begin, self.store.state, wall_clock_ms())
            self._noted_at = self.shared.loop.time()
            await self.note_run()  # a full disk, which refuses it, keeps no server from its start

    # Connections

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
        for node in tuple(self._nodes.values()):
            node.tick(now)
        self.suspended.tick(now)
        if self._remembers and now - self._noted_at >= downtime.NOTE_S:
            self._noted_at = now
            self.spawn(self.note_run())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that may outlive the connection that it is for."""
        task = self.shared.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Take nothing more, and wait until what was taken is on disk and answered, and listeners are served."""
        self.is_stopping = True
        for transport in tuple(self.connections):
            transport.stop_reading()
        while any(transport.is_busy for transport in self.connections):
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Let go of the logs, which stay open."""
        for task in tuple(self._tasks):
            task.cancel()
        for node in self._nodes.values():
            await node.close()
        self._nodes.clear()
        if self._remembers:
            await self.note_run()

    async def note_run(self) -> None:
        """Write down that this run goes on, or has until now: before a primary gives up its turn, too."""
        try:
            await asyncio.to_thread(downtime.note, self.store.state, self._run, wall_clock_ms())
        except Exception as error:  # the storage refuses, as of a former primary; the next run counts more as downtime
            is_ours = not isinstance(error, EventLogError)
            _logger.warning(
                "the time of this run was not stored", exc_info=is_ours, extra={"fields": {"problem": str(error)}}
            )

    # Nodes

    async def node(self, transport: Transport, log: str, right: Right) -> EventLogNode:
        """The node of a log, for a peer who has the right. Raises Forbidden, LogNotFound, StorageCorrupted."""
        assert transport.user is not None
        self.shared.guard.authorize(transport.user, right, log)
        return await self.node_of(log)

    async def producers_node(self, transport: Transport, address: str) -> EventLogNode:
        """The node to which a producer sends. Raises LinkFault, Forbidden, LogNotFound, StorageCorrupted."""
        parsed = parse_address(address)
        if parsed.is_info or parsed.group is not None:
            raise LinkFault(conditions.NOT_ALLOWED, f"{show(shown_address(address))} can only be read")
        return await self.node(transport, parsed.log, Right.APPEND)

    def stored_positions(self, incarnation: str) -> Positions:
        """The stored receivers of that incarnation of a log; blocks. Raises what the state store raises."""
        settings = self.shared.settings
        return load(
            self.store.state, incarnation, wall_clock_ms(), settings.termini_max, settings.abandoned_ms, self._run
        )

    @property
    def nodes(self) -> list[EventLogNode]:
        """Those that are there: of logs that somebody has used over AMQP."""
        return [node for node in self._nodes.values() if not node.log.is_closed]

    async def node_of(self, log: str) -> EventLogNode:
        """The node of a log. Raises LogNotFound, StorageCorrupted."""
        return self.node_if_there(log) or await self._open(log)

    def node_if_there(self, log: str) -> EventLogNode | None:
        """The node of a log, if there is one already."""
        node = self._nodes.get(log)
        return None if node is None or node.log.is_closed else node

    async def _open(self, name: str) -> EventLogNode:
        """Open a log once, however many links ask for it at the same time."""
        task = self._opening.get(name)
        if task is None:
            task = self._opening[name] = self.shared.loop.create_task(self._opened(name))
            task.add_done_callback(lambda opened: self._on_opened(name, opened))
        return await asyncio.shield(task)

    def _on_opened(self, name: str, opened: asyncio.Task[EventLogNode]) -> None:
        self._opening.pop(name, None)
        if not opened.cancelled():
            opened.exception()  # whoever asked has gone perhaps, and does not look at it

    async def _opened(self, name: str) -> EventLogNode:
        old = self._nodes.pop(name, None)
        if old is not None:
            await old.close()
        log = await asyncio.to_thread(self.store.open, name)
        shared = self.shared
        node = await EventLogNode.open(
            log, self.store.state, shared.settings, shared.loop, self._on_log_closed, shared.bus,
            remembers=self._remembers, may_act=self.store.may_act, run=self._run,
        )  # fmt: skip
        self._nodes[name] = node
        return node

    def _on_log_closed(self, node: EventLogNode) -> None:
        for transport in tuple(self.connections):
            transport.expel_all(node.log, conditions.RESOURCE_DELETED, f"log {node.log.name!r} was deleted")
