"""Which requests a replica serves: reads of its copy, as long as the copy is not too old.

All other requests are for the primary. The logs refuse changes too (`NotPrimary`); this module decides before the
body of a request is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.clocks import boot_time_s
from ...core.errors import EventLogError, LogNotFound
from ...core.store import LogStore
from ...http import Application, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from ...storage.maintenance.follower import Follower

AHEAD = (b"headwater-ahead", b"true")
"""The header field of responses from a copy that is ahead of its home and may lack newer events."""
_ROOMS = frozenset({"", "logs", "dcb", "openapi.yaml", "metrics"})
"""First path segments whose reads a replica serves."""
_LOG_ROOMS = frozenset({"logs", "dcb"})
"""First path segments that are followed by the name of a log."""
_QUESTIONS = frozenset({"read", "count", "histogram", "event-histogram"})
"""Operations of a POST to `/logs/LOG/...` that change nothing."""


class Replica:
    """The copy that a replica serves reads from, and its age limit."""

    def __init__(
        self,
        follower: Follower,
        stale_s_max: float,
        is_told: Callable[[], bool],
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        """`is_told`: whether the primary is pushing commits at present. `clock` must be the follower's, in s."""
        self._follower, self._stale_s_max, self.is_told, self._clock = follower, stale_s_max, is_told, clock

    @property
    def lag_s(self) -> float:
        """The longest time that the copy may have been behind its home, in s."""
        asked_at = self._follower.asked_at
        return float("inf") if asked_at is None else self._clock() - asked_at

    @property
    def lag_events(self) -> int:
        """The number of events, over all logs, that the copy lacked at the last check."""
        return sum(list(self._follower.behind.values()))  # another thread removes items

    @property
    def stuck(self) -> int:
        """The number of logs whose replication has stopped while others continue."""
        return len(self._follower.stuck)

    def stale(self, log: str | None = None) -> str | None:
        """Why reads of everything, or of that log, are refused; None if they are allowed.

        A copy that is ahead of its home may be the only one that has some events, so it is served: see `marked`.
        """
        if self._follower.ahead:
            return None
        if self.lag_s <= self._stale_s_max:
            return None if log is None else self._stale_log(log)
        heard = "has not caught up with its home yet"
        if self._follower.asked_at is not None:
            heard = f"has not caught up with its home for {self.lag_s:.0f} s"
        why = "" if self._follower.failure is None else f" ({self._follower.failure})"
        return f"this replica {heard}{why}, and serves reads for at most {self._stale_s_max:g} s (replica.stale_ms_max)"

    def _stale_log(self, name: str) -> str | None:
        stuck = self._follower.stuck.get(name)
        if stuck is None or (since_s := self._clock() - stuck.since) <= self._stale_s_max:
            return None
        return f"log {name} has not been followed for {since_s:.0f} s: {stuck.why}; other logs are served"


def marked(application: Application, ahead: Callable[[], str]) -> Application:
    """The application, with its responses marked while the copy is `ahead` of its home."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        async def said(message: Message) -> None:
            if message["type"] == "http.response.start" and ahead():
                message = {**message, "headers": [*message.get("headers", ()), AHEAD]}
            await send(message)

        await application(scope, receive, said if ahead() else send)

    return answered


def lacks_log(store: LogStore, scope: Scope) -> bool:
    """Whether a request is about a log that is not in this copy: it may have been created a moment ago."""
    segments = scope["path"][1:].split("/")
    if len(segments) < 2 or segments[0] not in _LOG_ROOMS or not segments[1]:
        return False
    try:
        store.settings_of(segments[1])
    except LogNotFound:
        return True
    except EventLogError:  # it is in this copy, but stopped
        return False
    return False


def only_reads(scope: Scope) -> bool:
    """Whether a request changes nothing and needs no data that only the primary has."""
    if scope["type"] != "http":
        return False
    segments = scope["path"][1:].split("/")
    if segments[0] not in _ROOMS:
        return False
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return True
    return scope["method"] == "POST" and len(segments) == 3 and segments[0] == "logs" and segments[2] in _QUESTIONS
