"""What rooms tell of their work to whoever collects spans of it (OpenTelemetry). Where nobody does, they tell nothing.

A room is given `Spans` or None, and asks which: that is all it costs where there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..event import Event


class CallSpan(Protocol):
    """A call to another server, which has begun."""

    headers: Mapping[str, str]
    """Header fields that the call carries, so that the other server's work is below it (W3C Trace Context)."""

    def end(self, status: int, problem: str) -> None:
        """It is over: with the status of the answer, or 0 and the reason why there was none."""


class Spans(Protocol):
    """Who collects spans. Every method returns at once: it neither waits nor raises, whatever becomes of the span."""

    def now_ns(self) -> int:
        """The time, in ns since 1970: what `began_ns` is."""

    def request(self, scope: Mapping[str, Any], route: str, status: int, duration_s: float) -> None:
        """A request over HTTP, or a WebSocket, is over; its head is an ASGI scope.

        An empty `route` is none that is known, a `status` of 0 is no answer.
        """

    def appended(self, log: str, events: Sequence[Event], began_ns: int, problem: str) -> None:
        """Events that came together were appended, or not; then the problem says why."""

    def calls(self, uri: str, shown: str, trace: Mapping[str, str]) -> CallSpan:
        """A POST to that URI begins, for an event in that trace; `shown` is the URI without what is secret in it."""
