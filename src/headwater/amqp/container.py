"""The AMQP container: its connections, its nodes, and what an attach leads to."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..core.access import Guard, Right
from ..core.bus import Bus
from ..core.errors import EventLogError
from ..core.limits import show
from ..core.store import LogStore
from .addresses import EVENTS, MANAGEMENT, parse_address, server_node, shown_address
from .errors import refusal_of
from .login import Login
from .management.listener import attach_listener
from .management.node import ManagementNode
from .protocol import conditions
from .protocol.conditions import AmqpError, LinkFault
from .protocol.connection import Connection
from .protocol.link import Link, Receiver, Sender
from .protocol.performatives import Source, Target
from .protocol.settings import ConnectionSettings
from .protocol.types import Symbol
from .settings import AmqpSettings
from .statistics import AmqpStatistics
from .streams.consuming import attach_consumer
from .streams.info_source import InfoSource
from .streams.node import EventLogNode
from .streams.producer import SuspendedDeliveries
from .streams.producing import attach_producer

if TYPE_CHECKING:
    from .transport import Transport

CAPABILITIES = tuple(
    Symbol(name)
    for name in (
        "AMQP_EVENT_STREAMS_V1_0",
        "AMQP_FILTEX_SQL_V1_0",
        "AMQP_FILTEX_PROP_V1_0",
        "AMQP_FILTEX_GROUP_V1_0",
        "APACHE.ORG:SELECTOR",
        "APACHE.ORG:LEGACY_AMQP_EXCHANGE_FILTERS",
        "ANONYMOUS-RELAY",
    )
)
"""What is offered in the open: event streams (3.1), the filters that are there, and links without target address."""
SUSPENDED_MAX = 1000
SUSPENDED_DELIVERIES_MAX = 100_000
SUSPENDED_S = 600.0
"""How many detached links of producers are remembered, with how many deliveries in all, and for how long."""
LinkKey = tuple[str, str, str, bool]
PROPERTIES = {Symbol("product"): "Headwater", Symbol("version"): __version__}


class Container:
    """All connections to the logs of one store, on one event loop."""

    TICK_S = 0.5
    """How often `tick` is called."""

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        settings: AmqpSettings,
        *,
        name: str = "headwater",
        bus: Bus | None = None,
    ) -> None:
        """`bus` is told of connections, links and partitions."""
        self.store, self.guard, self.settings = store, guard, settings
        self.bus = bus or Bus()
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.statistics = AmqpStatistics()
        self.connections: set[Transport] = set()
        self.numbered: dict[int, Transport] = {}
        """The same, by what the server calls them, in that order."""
        self.empty = asyncio.Event()
        """Set while there is no connection."""
        self.empty.set()
        self._nodes: dict[str, EventLogNode] = {}
        self._opening: dict[str, asyncio.Task[EventLogNode]] = {}
        self._links: dict[LinkKey, tuple[Transport, Link]] = {}
        """Attached links by user, container, name and direction (2.6.1)."""
        self.suspended: dict[LinkKey, SuspendedDeliveries] = {}
        """What detached producers' links have left behind, the oldest first."""
        self.management = ManagementNode(self)
        """What clients manage the server by."""
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    # Connections

    def engine(self, login: Login, now: float) -> Connection:
        """The engine of a new connection."""
        settings = self.settings
        limits = ConnectionSettings(
            frame_bytes_max=settings.frame_bytes_max,
            channel_max=settings.sessions_max - 1,
            handle_max=settings.links_max - 1,
            idle_ms=settings.idle_ms,
            sasl_mechanisms=login.mechanisms,
            needs_sasl=not self.guard.is_open,
            open_fields={"offered_capabilities": CAPABILITIES, "properties": PROPERTIES},
        )
        return Connection(limits, self.name, is_server=True, now=now)

    @property
    def is_stopping(self) -> bool:
        """Whether nothing new is taken."""
        return self._is_stopping

    def admit(self, transport: Transport) -> bool:
        """Whether one more connection is taken."""
        if self._is_stopping or len(self.connections) >= self.settings.connections_max:
            self.statistics.connections_refused += 1
            return False
        self.connections.add(transport)
        self.statistics.connections += 1
        transport.number = self.statistics.connections
        self.numbered[transport.number] = transport
        self.empty.clear()
        return True

    def forget(self, transport: Transport) -> None:
        """A connection is over."""
        self.connections.discard(transport)
        self.numbered.pop(transport.number, None)
        if not self.connections:
            self.empty.set()

    def open(self, transport: Transport) -> None:
        """A peer has opened its side."""
        transport.engine.open()

    def tick(self, now: float) -> None:
        """Time has passed."""
        for transport in tuple(self.connections):
            transport.tick(now)
        for node in tuple(self._nodes.values()):
            node.tick(now)
        while self.suspended and next(iter(self.suspended.values())).until < now:
            del self.suspended[next(iter(self.suspended))]

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that may outlive the connection that it is for."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Take nothing more, and wait until what was taken is on disk and answered, and who listens was told."""
        self._is_stopping = True
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

    # Links

    async def attach(self, transport: Transport, link: Link) -> None:
        """Answer a peer's attach. Raises AmqpError or EventLogError where it is refused."""
        remote = link.remote
        assert remote is not None
        if self._is_stopping:
            raise LinkFault(conditions.LINK_DETACH_FORCED, "the server is stopping")
        if isinstance(link, Receiver):
            if not isinstance(remote.target, Target):
                raise LinkFault(conditions.NOT_IMPLEMENTED, "a target is needed; transactions are not served here")
            if remote.target.dynamic:
                self.management.attach_mailbox(transport, link, remote.target)
                return
            if (its := server_node(remote.target.address)) is not None:
                if its != MANAGEMENT:
                    raise LinkFault(conditions.NOT_ALLOWED, f"{show(its)} can only be read")
                self.management.attach_requests(transport, link, remote.target)
                return
            await attach_producer(self, transport, link, remote.target)
        else:
            assert isinstance(link, Sender)
            if not isinstance(remote.source, Source):
                raise LinkFault(conditions.INVALID_FIELD, "a source is needed")
            if await self._is_of_server(transport, link, remote.source):
                return
            address = parse_address(remote.source.address or "")
            node = await self.node(transport, address.log, Right.READ)
            if not link.is_waiting:
                return  # the peer has changed its mind meanwhile, made a mistake, or gone
            self.steal(transport, link)
            if address.is_info:
                InfoSource.attach(transport, link, node)
            else:
                await attach_consumer(transport, link, remote.source, node)

    async def _is_of_server(self, transport: Transport, link: Sender, source: Source) -> bool:
        """Answer the attach of a receiver where it is to a node of the server, or to one that is made on demand."""
        address = server_node(source.address)
        if address == EVENTS:
            await attach_listener(self.management, transport, link, source)
        elif source.dynamic or address is not None:
            self.management.attach_replies(transport, link, source, address)
        else:
            return False
        return True

    async def node(self, transport: Transport, log: str, right: Right) -> EventLogNode:
        """The node of a log, for a peer who has the right. Raises Forbidden, LogNotFound, StorageCorrupted."""
        assert transport.user is not None
        self.guard.authorize(transport.user, right, log)
        return await self.node_of(log)

    def node_if_there(self, log: str) -> EventLogNode | None:
        """The node of a log, if there is one already."""
        node = self._nodes.get(log)
        return None if node is None or node.log.is_closed else node

    async def node_of(self, log: str) -> EventLogNode:
        """The node of a log. Raises LogNotFound, StorageCorrupted."""
        return self.node_if_there(log) or await self._open(log)

    async def producers_node(self, transport: Transport, address: str) -> EventLogNode:
        """The node to which a producer sends. Raises LinkFault, Forbidden, LogNotFound, StorageCorrupted."""
        parsed = parse_address(address)
        if parsed.is_info:
            raise LinkFault(conditions.NOT_ALLOWED, f"{show(shown_address(address))} can only be read")
        return await self.node(transport, parsed.log, Right.APPEND)

    def suspend(self, transport: Transport, link: Receiver, accepted: dict[bytes, None]) -> None:
        """Keep what a detached link had accepted and its sender not settled, in case the link is recovered (2.6.13)."""
        key = self.key(transport, link)
        self.suspended.pop(key, None)
        count = len(accepted) + sum(len(each.accepted) for each in self.suspended.values())
        while self.suspended and (len(self.suspended) >= SUSPENDED_MAX or count > SUSPENDED_DELIVERIES_MAX):
            count -= len(self.suspended.pop(next(iter(self.suspended))).accepted)
        self.suspended[key] = SuspendedDeliveries(accepted, self.loop.time() + SUSPENDED_S)

    def key(self, transport: Transport, link: Link) -> LinkKey:
        """What identifies a link beyond its connection."""
        user = transport.user.name if transport.user else ""
        return user, transport.container_id, link.name, link.is_sender

    def detached(self, transport: Transport, link: Link) -> None:
        """A link is over."""
        key = self.key(transport, link)
        if self._links.get(key, (None, None))[1] is link:
            del self._links[key]

    @staticmethod
    def fault_of(error: EventLogError) -> AmqpError:
        """What the peer is told of an error of the log."""
        refusal = refusal_of(error)
        return LinkFault(refusal.condition, refusal.description, refusal.info or None)

    def steal(self, transport: Transport, link: Link) -> None:
        """One link of a name: an older one, on another connection, is detached (2.6.1).

        From now on `detached` must be called when this link is over, also if it is refused.
        """
        key = self.key(transport, link)
        old = self._links.get(key)
        self._links[key] = transport, link
        if old is not None and old[1] is not link:
            old[0].expel(old[1], conditions.LINK_STOLEN, f"link {link.name!r} was attached anew on another connection")

    def _on_log_closed(self, node: EventLogNode) -> None:
        for transport in tuple(self.connections):
            transport.expel_all(node, conditions.RESOURCE_DELETED, f"log {node.log.name!r} was deleted")

    async def _open(self, name: str) -> EventLogNode:
        """Open a log once, however many links ask for it at the same time."""
        task = self._opening.get(name)
        if task is None:
            task = self._opening[name] = self.loop.create_task(self._opened(name))
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
        node = await EventLogNode.open(log, self.store.state, self.settings, self.loop, self._on_log_closed, self.bus)
        self._nodes[name] = node
        return node
