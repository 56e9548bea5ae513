"""The interface by which components report spans of their work (OpenTelemetry), if there is a collector.

A component gets `Spans` or None; without spans the check is the only cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..event import Event


class CallSpan(Protocol):
    """A call to another server that has begun."""

    headers: Mapping[str, str]
    """Header fields to send with the call, so that the other server's spans are children of it (W3C Trace Context)."""

    def end(self, status: int, problem: str) -> None:
        """The call has ended: with the status of the answer, or 0 and the reason why there was none."""


class Spans(Protocol):
    """A collector of spans. Every method returns at once: it neither waits nor raises, whatever happens to the span."""

    def now_ns(self) -> int:
        """The time in ns since 1970, as for `began_ns`."""

    def request(self, scope: Mapping[str, Any], route: str, status: int, duration_s: float) -> None:
        """An HTTP request or a WebSocket has ended; its head is an ASGI scope.

        An empty `route` means no known route; a `status` of 0 means no answer.
        """

    def appended(self, log: str, events: Sequence[Event], began_ns: int, problem: str) -> None:
        """Events that arrived together were appended, or refused with `problem`."""

    def calls(self, uri: str, shown: str, trace: Mapping[str, str]) -> CallSpan:
        """A POST to that URI begins, for an event in that trace; `shown` is the URI without secrets."""
