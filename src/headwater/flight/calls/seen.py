"""How far logs are known to go, so that another address takes nobody back, nor to another log. No I/O."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from ...core.errors import EventLogError, PositionOfOtherIncarnation
from ...core.extent import Extent
from ...core.limits import SEQUENCE_NUMBER_MAX
from ...core.log import LogInfo
from ...formats.clients.endpoints import Endpoint

LOGS_MAX = 10_000
"""Logs that are remembered; a further one takes the place of the oldest."""


class NotHereYet(EventLogError):
    """A replica has not caught up yet with what is known of a log."""

    def __init__(self, log: str, url: str, wanted: int, head: int) -> None:
        self.log, self.url, self.wanted, self.head = log, url, wanted, head
        super().__init__(f"log {log!r} ends at {head} at {url}, and is known to go to {wanted}")


class OtherEverywhere(PositionOfOtherIncarnation):
    """All addresses say that it is another log now."""


@dataclass(slots=True)
class _Seen:
    incarnation: str | None
    """None: nobody said."""
    head: int
    at: dict[Endpoint, tuple[int, int]] = field(default_factory=dict)
    """Where it was found: the endpoint's failures then, and its head. After a failure, look again."""


class SeenLogs:
    """What one client has seen of logs at several addresses. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[str, _Seen] = {}

    def check(self, endpoint: Endpoint, failures: int, log: str, found: Extent | LogInfo) -> None:
        """Take what an endpoint answers, which had failed so often when it was asked.

        Raises PositionOfOtherIncarnation, NotHereYet: it has another log of that name, or not all of it.
        """
        with self._lock:
            seen = self._of(log, found.incarnation)
            if seen.incarnation is None:
                seen.incarnation = found.incarnation
            if seen.incarnation != found.incarnation:
                error = PositionOfOtherIncarnation(seen.head, found.incarnation, found.first_retained)
                error.args = (
                    f"{endpoint.url} has another incarnation of the log {log}, {found.incarnation}, and this client "
                    f"has worked with {seen.incarnation}, whose positions mean nothing there. Ask for its head anew "
                    "to work with the present one",
                )
                raise error
            if found.head < seen.head:
                raise NotHereYet(log, endpoint.url, seen.head, found.head)
            seen.head = found.head
            seen.at[endpoint] = failures, found.head

    def is_checked(self, endpoint: Endpoint, log: str) -> bool:
        """Whether all that is known of the log was found there, since it failed last."""
        with self._lock:
            seen = self._logs.get(log)
            failures, head = seen.at.get(endpoint, (-1, 0)) if seen is not None else (-1, 0)
            return seen is not None and failures == endpoint.failures and head >= seen.head

    def excuse(self, endpoint: Endpoint, failures: int, log: str) -> None:
        """Whoever may only append is not told how far it goes."""
        with self._lock:
            self._of(log, None).at[endpoint] = failures, SEQUENCE_NUMBER_MAX

    def reached(self, endpoint: Endpoint, log: str, head: int) -> None:
        """An append ended there, at that endpoint."""
        with self._lock:
            if (seen := self._logs.get(log)) is not None and endpoint in seen.at and head > seen.head:
                seen.head = head
                seen.at[endpoint] = endpoint.failures, max(head, seen.at[endpoint][1])

    def expect(self, log: str, incarnation: str, head: int) -> None:
        """It is known from elsewhere that the log goes so far at least."""
        with self._lock:
            seen = self._of(log, incarnation)
            if seen.incarnation != incarnation:
                self._logs[log] = _Seen(incarnation, head)
            seen.head = max(seen.head, head)

    def forget(self, log: str) -> None:
        """Whatever it is now, is right."""
        with self._lock:
            self._logs.pop(log, None)

    def _of(self, log: str, incarnation: str | None) -> _Seen:
        if log not in self._logs:
            if len(self._logs) >= LOGS_MAX:
                del self._logs[next(iter(self._logs))]
            self._logs[log] = _Seen(incarnation, 0)
        return self._logs[log]
