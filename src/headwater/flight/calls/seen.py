"""The known extent of each log, so that switching addresses never goes back in a log or to another log. No I/O."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ...core.errors import EventLogError, PositionOfOtherIncarnation
from ...core.extent import Extent
from ...core.limits import SEQUENCE_NUMBER_MAX
from ...core.log import LogInfo
from ...formats.clients.endpoints import Endpoint

LOGS_MAX = 10_000
"""How many logs are remembered. An additional log replaces the oldest."""


class NotHereYet(EventLogError):
    """A replica has not yet caught up with the known extent of a log."""

    def __init__(self, log: str, url: str, wanted: int, head: int) -> None:
        self.log, self.url, self.wanted, self.head = log, url, wanted, head
        super().__init__(f"log {log!r} ends at {head} at {url}, but this client has seen event {wanted}")


class OtherEverywhere(PositionOfOtherIncarnation):
    """All addresses report another incarnation of the log."""


@dataclass(slots=True)
class _Seen:
    incarnation: str | None
    """None: unknown."""
    head: int
    at: dict[Endpoint, tuple[int, int]] = field(default_factory=dict)
    """Where it was found: the endpoint's failure count at that time, and its head. After a failure, it is checked
    again.
    """


class SeenLogs:
    """What one client knows about logs at several addresses. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[str, _Seen] = {}

    def check(self, endpoint: Endpoint, failures: int, log: str, found: Extent | LogInfo) -> None:
        """Process an endpoint's answer. `failures` is its failure count when the request was sent.

        Raises PositionOfOtherIncarnation, NotHereYet: the endpoint has another log of that name, or not all of it.
        """
        with self._lock:
            seen = self._of(log, found.incarnation)
            if seen.incarnation is None:
                seen.incarnation = found.incarnation
            if seen.incarnation != found.incarnation:
                error = PositionOfOtherIncarnation(seen.head, found.incarnation, found.first_retained)
                error.args = (
                    f"{endpoint.url}: log {log} has the incarnation {found.incarnation}, but this client has used "
                    f"the incarnation {seen.incarnation}, whose positions are no longer valid. Read the head of the "
                    "log again to use the current incarnation",
                )
                raise error
            if found.head < seen.head:
                raise NotHereYet(log, endpoint.url, seen.head, found.head)
            seen.head = found.head
            seen.at[endpoint] = failures, found.head

    def is_checked(self, endpoint: Endpoint, log: str) -> bool:
        """Whether the endpoint has had the whole known log since its last failure."""
        with self._lock:
            seen = self._logs.get(log)
            failures, head = seen.at.get(endpoint, (-1, 0)) if seen is not None else (-1, 0)
            return seen is not None and failures == endpoint.failures and head >= seen.head

    def excuse(self, endpoint: Endpoint, failures: int, log: str) -> None:
        """Skip the check for a user who may only append, because such a user cannot read the extent."""
        with self._lock:
            self._of(log, None).at[endpoint] = failures, SEQUENCE_NUMBER_MAX

    def reached(self, endpoint: Endpoint, log: str, head: int) -> None:
        """Record that an append at that endpoint ended at that head."""
        with self._lock:
            if (seen := self._logs.get(log)) is not None and endpoint in seen.at and head > seen.head:
                seen.head = head
                seen.at[endpoint] = endpoint.failures, max(head, seen.at[endpoint][1])

    def expect(self, log: str, incarnation: str, head: int) -> None:
        """Record from another source that the log reaches at least that head."""
        with self._lock:
            seen = self._of(log, incarnation)
            if seen.incarnation != incarnation:
                self._logs[log] = _Seen(incarnation, head)
            seen.head = max(seen.head, head)

    def forget(self, log: str) -> None:
        """Forget the log: the next answer is accepted as it is."""
        with self._lock:
            self._logs.pop(log, None)

    def _of(self, log: str, incarnation: str | None) -> _Seen:
        if log not in self._logs:
            if len(self._logs) >= LOGS_MAX:
                del self._logs[next(iter(self._logs))]
            self._logs[log] = _Seen(incarnation, 0)
        return self._logs[log]
