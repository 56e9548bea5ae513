"""State shared by all connections of one container: limits, counters, guard, loop, notifications, and links by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ... import __version__
from ...core.access import Guard
from ...core.loop.fair_semaphore import FairSemaphore
from ...core.loop.linger import LingeringConnections
from ...core.loop.memory import MemoryAccount, Share
from ...core.loop.scheduler import FairScheduler, Flow
from ...core.loop.turn_reads import TurnReads
from ...core.watch.bus import Bus
from ...core.watch.spans import Spans
from ..protocol import conditions
from ..protocol.codec import encode
from ..protocol.connection import Connection
from ..protocol.link import Link
from ..protocol.settings import ConnectionSettings
from ..protocol.types import Symbol
from ..settings import AmqpSettings
from .login import Login


@dataclass(slots=True)
class AmqpStatistics:
    """Counters since the server started. Live; callers must not change them."""

    connections: int = 0
    """Admitted connections; the container's `connections` contains the open ones."""
    connections_refused: int = 0
    """Refused because there were too many, or because the server was stopping."""
    origins_refused: int = 0
    """The refused connections whose PROXY header did not prove that a server of the same home sent it."""
    faults: int = 0
    """Connections that ended because the peer broke the protocol."""
    links: int = 0
    """Attaches that were answered with a link."""
    links_refused: int = 0
    messages_received: int = 0
    messages_rejected: int = 0
    messages_appended: int = 0
    """Received messages that are now events of a log, and were not duplicates."""
    messages_sent: int = 0
    messages_sent_again: int = 0
    """Redelivered messages, which their receiver had returned before."""
    notifications_skipped: int = 0
    """Messages for which a filter failed, or that have no encoding. This is a server error; the server's log has
    details.
    """


RELAY = "ANONYMOUS-RELAY"
"""Links without a target address, to which messages are sent."""
EVENT_STREAMS = "AMQP_EVENT_STREAMS_V1_0"
"""A client that uses the event stream extensions requests this capability in its open (3.1)."""
CAPABILITIES = tuple(
    Symbol(name)
    for name in (
        EVENT_STREAMS,
        "AMQP_FILTEX_SQL_V1_0",
        "AMQP_FILTEX_PROP_V1_0",
        "AMQP_FILTEX_GROUP_V1_0",
        "APACHE.ORG:SELECTOR",
        "APACHE.ORG:LEGACY_AMQP_EXCHANGE_FILTERS",
        RELAY,
    )
)
"""Capabilities offered in the open: event streams (3.1), the supported filters, and links without a target address."""
PROPERTIES = {Symbol("product"): "Headwater", Symbol("version"): __version__}
TICK_S = 0.5
"""The interval of `tick` for connections and nodes."""
LARGE_FILTER_BYTES = 4096
"""Larger filters are parsed in a thread, because the largest take tens of ms."""
LinkKey = tuple[str, str, str, bool]
"""Identifies a link across connections: user, container, name and direction (2.6.1)."""
T = TypeVar("T")
Expel = Callable[[Link, Symbol, str], None]
"""Detaches a link from this side, with a condition and a description."""


class Shared:
    """State shared by all connections of one container, on its event loop."""

    def __init__(
        self,
        guard: Guard,
        settings: AmqpSettings,
        bus: Bus,
        name: str,
        turns: FairScheduler,
        spans: Spans | None,
        memory: MemoryAccount,
        *,
        takes_messages: bool = True,
    ) -> None:
        """`name` is the container's id; `turns` shares the loop's time; `takes_messages`: offer links without a target.

        `memory` is the budget of what all connections hold.
        """
        self.memory = memory
        self._offered = CAPABILITIES if takes_messages else tuple(name for name in CAPABILITIES if name != RELAY)
        self.turns, self.spans = turns, spans
        self.guard, self.settings, self.bus, self.name = guard, settings, bus, name
        self.loop = asyncio.get_running_loop()
        self.statistics = AmqpStatistics()
        self.lingering = LingeringConnections()
        """Connections that have ended, but whose peer may still send."""
        self.reads = TurnReads()
        self._filters = FairSemaphore(1)
        """Parses large filters, one at a time, because a thread uses as much of the interpreter's time as the loop."""
        self._links: dict[LinkKey, tuple[Link, Expel]] = {}
        """Attached links, each with the function that detaches it."""

    def engine(self, login: Login, share: Share, now: float) -> Connection:
        """The engine for a new connection, which can hold as much as its share of the memory allows."""
        settings = self.settings
        limits = ConnectionSettings(
            frame_bytes_max=settings.frame_bytes_max,
            channel_max=settings.sessions_max - 1,
            handle_max=settings.links_max - 1,
            idle_ms=settings.idle_ms,
            take=share.take,
            give=share.give,
            sasl_mechanisms=login.mechanisms,
            needs_sasl=not self.guard.is_open,
            open_fields={"offered_capabilities": self._offered, "properties": PROPERTIES},
        )
        return Connection(limits, self.name, is_server=True, now=now)

    async def read_filter(self, flow: Flow, link: Link, given: object, read: Callable[[], T]) -> T | None:
        """The result of `read` for a filter, in a thread if the filter is large; raises what `read` raises.

        None if the peer no longer waits for it, because it has detached, made a mistake, or disconnected in the
        meantime."""
        if not given or len(encode(given)) <= LARGE_FILTER_BYTES:
            return read()
        found = await self._filters.run(flow.user, read, lambda: link.is_waiting)
        return found if link.is_waiting else None

    def steal(self, key: LinkKey, link: Link, expel: Expel) -> None:
        """Register a link, and detach an older one with the same key on another connection (2.6.1).

        Call `detached` when this link has ended, even if it was refused.
        """
        old = self._links.get(key)
        self._links[key] = link, expel
        if old is not None and old[0] is not link:
            old[1](old[0], conditions.LINK_STOLEN, f"link {link.name!r} was attached again on another connection")

    def detached(self, key: LinkKey, link: Link) -> None:
        """Unregister a link that is over."""
        if self._links.get(key, (None, None))[0] is link:
            del self._links[key]
