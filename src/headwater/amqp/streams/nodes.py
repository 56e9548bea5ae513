"""The nodes of one container by log name, with the suspended links and stored positions of each.

It also records the server's downtime, during which stored positions do not age.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ...core.access import Right
from ...core.clocks import wall_clock_ms
from ...core.errors import EventLogError
from ...core.limits import show
from ...core.store import LogStore
from ..connections.addresses import parse_address, shown_address
from ..connections.shared import LinkKey, Shared
from ..connections.transport import Transport
from ..positions import downtime
from ..positions.downtime import UptimeRun
from ..positions.stored import Positions, load
from ..protocol import conditions
from ..protocol.conditions import LinkFault
from .node import EventLogNode

_logger = logging.getLogger("headwater.amqp")

LINKS_MAX = 1000
DELIVERIES_MAX = 100_000
SUSPENDED_S = 600.0
"""The limits on detached links: their number, their total deliveries, and the retention time."""


class Nodes:
    """The nodes of one store's logs, on one event loop."""

    def __init__(
        self,
        store: LogStore,
        shared: Shared,
        on_log_closed: Callable[[EventLogNode], None],
        *,
        remembers: bool = True,
    ) -> None:
        """`on_log_closed` is called when the log of a node is closed while the node has links.

        If `remembers` is false, no state of receivers is loaded or kept.
        """
        self.store = store
        self.suspended = SuspendedLinks()
        self._shared, self._on_log_closed, self._remembers = shared, on_log_closed, remembers
        self._run = UptimeRun(wall_clock_ms(), 0)
        self._noted_at = 0.0
        """When it last recorded that this run continues, by the clock of the loop."""
        self._nodes: dict[str, EventLogNode] = {}
        self._opening: dict[str, asyncio.Task[EventLogNode]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Determine the time in which no server ran. Call this first. Raises what the state store raises."""
        if self._remembers:
            self._run = await asyncio.to_thread(downtime.begin, self.store.state, wall_clock_ms())
            self._noted_at = self._shared.loop.time()
            await self.note_run()  # a full disk, which refuses it, must not prevent startup

    @property
    def all(self) -> list[EventLogNode]:
        """The open nodes, which belong to the logs used over AMQP."""
        return [node for node in self._nodes.values() if not node.log.is_closed]

    async def node(self, transport: Transport, log: str, right: Right) -> EventLogNode:
        """The node of a log, for a peer with that right.

        Raises Forbidden, LogNotFound, StorageCorrupted, NotPrimary.
        """
        assert transport.user is not None
        self._shared.guard.authorize(transport.user, right, log)
        node = await self.node_of(log)
        node.log.check_current()
        return node

    async def producers_node(self, transport: Transport, address: str) -> EventLogNode:
        """The node that a producer sends to. Raises LinkFault, Forbidden, LogNotFound, StorageCorrupted."""
        parsed = parse_address(address)
        if parsed.is_info or parsed.group is not None:
            raise LinkFault(conditions.NOT_ALLOWED, f"{show(shown_address(address))} is read-only")
        return await self.node(transport, parsed.log, Right.APPEND)

    async def node_of(self, log: str) -> EventLogNode:
        """The node of a log. Raises LogNotFound, StorageCorrupted."""
        return self.node_if_there(log) or await self._open(log)

    def node_if_there(self, log: str) -> EventLogNode | None:
        """The node of a log, if it is open."""
        node = self._nodes.get(log)
        return None if node is None or node.log.is_closed else node

    def stored_positions(self, incarnation: str) -> Positions:
        """The stored receivers of that incarnation of a log; blocks. Raises what the state store raises."""
        settings = self._shared.settings
        return load(
            self.store.state, incarnation, wall_clock_ms(), settings.termini_max, settings.abandoned_ms, self._run
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that may outlive its connection."""
        task = self._shared.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tick(self, now: float) -> None:
        """Handle the passage of time."""
        for node in tuple(self._nodes.values()):
            node.tick(now)
        self.suspended.tick(now)
        if self._remembers and now - self._noted_at >= downtime.NOTE_S:
            self._noted_at = now
            self.spawn(self.note_run())

    async def close(self) -> None:
        """Close the nodes; the logs stay open."""
        for task in tuple(self._tasks):
            task.cancel()
        for node in self._nodes.values():
            await node.close()
        self._nodes.clear()
        if self._remembers:
            await self.note_run()

    async def note_run(self) -> None:
        """Record that this run continues, or has continued until now. Also called before a primary hands over its
        role.
        """
        try:
            await asyncio.to_thread(downtime.note, self.store.state, self._run, wall_clock_ms())
        except Exception as error:  # storage refused, as for a former primary; the next run counts more as downtime
            is_ours = not isinstance(error, EventLogError)
            _logger.warning(
                "the start time of this server was not stored",
                exc_info=is_ours,
                extra={"fields": {"problem": str(error)}},
            )

    async def _open(self, name: str) -> EventLogNode:
        """Open a log once, regardless of how many links ask for it at the same time."""
        task = self._opening.get(name)
        if task is None:
            task = self._opening[name] = self._shared.loop.create_task(self._opened(name))
            task.add_done_callback(lambda opened: self._on_opened(name, opened))
        return await asyncio.shield(task)

    def _on_opened(self, name: str, opened: asyncio.Task[EventLogNode]) -> None:
        self._opening.pop(name, None)
        if not opened.cancelled():
            opened.exception()  # the caller may have disconnected without using it

    async def _opened(self, name: str) -> EventLogNode:
        old = self._nodes.pop(name, None)
        if old is not None:
            await old.close()
        log = await asyncio.to_thread(self.store.open, name)
        shared = self._shared
        node = await EventLogNode.open(
            log, self.store.state, shared.settings, shared.loop, self._on_log_closed, shared.bus,
            remembers=self._remembers, may_act=self.store.may_act, run=self._run, memory=shared.memory,
        )  # fmt: skip
        self._nodes[name] = node
        return node


class SuspendedLinks:
    """Accepted but unsettled deliveries of detached links, and their targets, for recovery (2.6.13)."""

    def __init__(self) -> None:
        self._by_key: dict[LinkKey, _Suspended] = {}
        """The oldest first."""

    def put(self, key: LinkKey, accepted: dict[bytes, None], now: float, address: str | None = None) -> None:
        """Keep the tags of a detached link to that address; `now` is the loop's time."""
        self._by_key.pop(key, None)
        count = len(accepted) + sum(len(each.accepted) for each in self._by_key.values())
        while self._by_key and (len(self._by_key) >= LINKS_MAX or count > DELIVERIES_MAX):
            count -= len(self._by_key.pop(next(iter(self._by_key))).accepted)
        self._by_key[key] = _Suspended(accepted, now + SUSPENDED_S, address)

    def take(self, key: LinkKey) -> dict[bytes, None]:
        """Remove and return the tags of a link that is attached again; empty if there are none."""
        found = self._by_key.pop(key, None)
        return {} if found is None else found.accepted

    def holds(self, key: LinkKey) -> bool:
        """Whether the tags of that link are kept."""
        return key in self._by_key

    def address(self, key: LinkKey) -> str | None:
        """The target address of the link. None if the link is not kept, or had no target address."""
        found = self._by_key.get(key)
        return None if found is None else found.address

    def tick(self, now: float) -> None:
        """Forget links whose retention time has passed."""
        while self._by_key and next(iter(self._by_key.values())).until < now:
            del self._by_key[next(iter(self._by_key))]


class _Suspended(NamedTuple):
    accepted: dict[bytes, None]
    until: float
    address: str | None
