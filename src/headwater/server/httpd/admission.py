"""How many HTTP connections there may be, and what becomes of those above.

Open connections stay. A few above the limit are read as far as one request, which is answered 503 (or, where it asks
for the server's health, as always); more than those are dropped at once.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from ...http import Application, Receive, Scope, Send, refuse_unready

PROTOCOL = "http"
SURPLUS_MAX = 64
"""Connections above the limit that are still answered: a load balancer's question is not to starve."""


class Verdict(Enum):
    """What becomes of a connection."""

    SERVED = auto()
    SURPLUS = auto()
    """It is one too many, and is to be told so."""
    DROPPED = auto()


class Passage(Protocol):
    """What every request passes."""

    def passes_always(self, scope: Scope) -> bool:
        """Whether it is answered however many connections there are."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

    async def refuse(self, scope: Scope, receive: Receive, send: Send, detail: str) -> None:
        """Answer that it is not to be now, and why."""


class Admission:
    """Of one server: every connection asks it, and tells it of its end if it was a surplus one."""

    def __init__(self, connections_max: int, gate: Passage | None = None, bus: Bus | None = None) -> None:
        """`gate` knows what may be asked at any time; `bus` is told of connections that are refused."""
        self._connections_max, self._gate, self._bus = connections_max, gate, bus or Bus()
        self.surplus = 0
        """Surplus connections at this moment."""
        self.served = self.refused = 0
        """Connections so far."""

    def judge(self, connections: int, peer: str) -> Verdict:
        """What becomes of a connection of that peer; `connections` are there with it, surplus ones included."""
        if connections - self.surplus <= self._connections_max:
            self.served += 1
            return Verdict.SERVED
        if self.surplus < SURPLUS_MAX:
            self.surplus += 1
            return Verdict.SURPLUS
        self._tell_refused(peer)
        return Verdict.DROPPED

    def forget_surplus(self) -> None:
        """A surplus connection is over."""
        self.surplus -= 1

    def turning_away(self, peer: str) -> Application:
        """What answers the request of a surplus connection of that peer."""

        async def turn_away(scope: Scope, receive: Receive, send: Send) -> None:
            if self._gate is not None and self._gate.passes_always(scope):
                await self._gate(scope, receive, send)
                return
            self._tell_refused(peer)
            refuse = refuse_unready if self._gate is None else self._gate.refuse
            await refuse(scope, receive, send, f"the server has {self._connections_max} connections, and takes no more")

        return turn_away

    def _tell_refused(self, peer: str) -> None:
        self.refused += 1
        self._bus.emit(NotificationType.CONNECTION_REFUSED, protocol=PROTOCOL, peer=peer, reason="limit")
