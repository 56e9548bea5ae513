"""The limit of HTTP connections, and the treatment of connections above it.

| connections | treatment of one more |
| --- | --- |
| below the limit | it is served |
| up to `SURPLUS_MAX` above, half of them from one place | one request is read: a health check, or one for
  operators (login, console, management, metrics), is answered; any other gets 503 |
| more | over plain HTTP any request gets 503, over TLS the connection is closed; it is counted and logged |

So load balancers and operators are answered while the server is full: a list of connections shows their users, and a
client can be disconnected. Open connections stay.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from ...core.client_subnet import place_of
from ...core.loop.reception import LIMIT, Reception
from ...core.loop.refused_connections import RefusedConnections
from ...core.watch.bus import Bus
from ...http import Application, Receive, Scope, Send, refuse_unready

PROTOCOL = "http"
SURPLUS_MAX = 64
"""How many connections above the limit are still read, so that load balancers get answers."""
SURPLUS_OF_PLACE_MAX = SURPLUS_MAX // 2
"""How many of them may come from one address."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b"
)


class Verdict(Enum):
    """The treatment of a connection."""

    SERVED = auto()
    SURPLUS = auto()
    """The connection is above the limit. Its request gets a refusal that says so."""
    DROPPED = auto()
    """Closed without reading a request."""


class Passage(Protocol):
    """The ASGI application that every request passes."""

    def passes_always(self, scope: Scope) -> bool:
        """Whether it is answered regardless of the number of connections."""

    def is_for_operators(self, scope: Scope) -> bool:
        """Whether operators need it: login, console, management, metrics."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

    async def refuse(self, scope: Scope, receive: Receive, send: Send, detail: str) -> None:
        """Refuse the request temporarily, with the reason."""


class Admission:
    """The admission of one server. Each connection asks it for a decision, and surplus connections report their end."""

    def __init__(self, connections_max: int, gate: Passage | None = None, bus: Bus | None = None) -> None:
        """`gate` knows which requests are always admitted; `bus` is notified of refused connections."""
        self._connections_max, self._gate = connections_max, gate
        self._notices = RefusedConnections(bus or Bus(), PROTOCOL)
        self._surplus: Counter[str] = Counter()
        """Surplus connections by place."""
        self.surplus = 0
        """Surplus connections at this moment."""
        self.served = self.refused = 0
        """Connections so far."""
        detail = self._detail.encode()
        self.full = _FULL % (len(detail), detail)
        """The response to a connection whose request is not read."""

    def judge(self, connections: int, peer: str) -> Verdict:
        """Decide on a connection of that peer. `connections` includes it and surplus ones."""
        place = place_of(peer)
        if connections - self.surplus <= self._connections_max:
            self.served += 1
            return Verdict.SERVED
        if self._may_be_surplus(place):
            self.surplus += 1
            self._surplus[place] += 1
            return Verdict.SURPLUS
        self.refuse(peer)
        return Verdict.DROPPED

    def room(self, connections: int) -> int:
        """How many more connections are allowed."""
        return self._connections_max + SURPLUS_MAX - connections

    def takes(self, connections: int, place: str) -> bool:
        """Whether one more connection from that address would be served, or read as a surplus one."""
        return connections - self.surplus < self._connections_max or self._may_be_surplus(place)

    def forget_surplus(self, peer: str) -> None:
        """Record the end of a surplus connection of that peer."""
        place = place_of(peer)
        self.surplus -= 1
        self._surplus[place] -= 1
        if not self._surplus[place]:
            del self._surplus[place]

    def refuse(self, peer: str, reason: str = LIMIT) -> None:
        """Count and notify of a refused connection."""
        self.refused += 1
        self._notices.tell(peer, reason)

    def turning_away(self, peer: str) -> Application:
        """The application that answers the request of a surplus connection of that peer."""

        async def turn_away(scope: Scope, receive: Receive, send: Send) -> None:
            gate = self._gate
            if gate is not None and (gate.passes_always(scope) or gate.is_for_operators(scope)):
                await gate(scope, receive, send)
                return
            self.refuse(peer)
            refuse = refuse_unready if gate is None else gate.refuse
            await refuse(scope, receive, send, self._detail)

        return turn_away

    @property
    def _detail(self) -> str:
        return f"the server has {self._connections_max} connections, the maximum"

    def _may_be_surplus(self, place: str) -> bool:
        return self.surplus < SURPLUS_MAX and self._surplus[place] < SURPLUS_OF_PLACE_MAX


class HttpReception(Reception):
    """What the event loop asks before it opens a connection of the server."""

    def __init__(
        self, protocols: Callable[[], asyncio.BaseProtocol], admission: Admission, connections: Callable[[], int]
    ) -> None:
        """`connections` returns how many there are, surplus ones included."""
        super().__init__(protocols)
        self._admission, self._connections = admission, connections

    @property
    def room(self) -> int:
        return self._admission.room(self._connections())

    def takes(self, place: str, opening: int) -> bool:
        return self._admission.takes(self._connections() + opening, place)

    def refuse(self, place: str, reason: str) -> bytes:
        self._admission.refuse(place, reason)
        return self._admission.full
