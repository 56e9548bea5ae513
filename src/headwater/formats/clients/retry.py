"""Retries of any client: which errors are temporary, and how long to wait between attempts."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from ...core.access import IssuerUnavailable, LoginNotChecked, TooManyLogins
from ...core.errors import Closed, EventLogError, Overloaded, StorageUnavailable

PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 2.0
PASSING = (Overloaded, TooManyLogins, IssuerUnavailable, Closed, StorageUnavailable)
"""Statuses of a server whose state may soon change: it is overloaded or stopping."""
WAITING_S = 1.0
"""After this long, a waiting user sees the reason."""
BUSY_S = 600.0
"""How long to wait for a place at a busy server."""


class ServerUnreachable(EventLogError):
    """No answer arrived from the server.

    Over HTTP an append was not sent, or it is OutcomeUnknown. Over Flight it is unknown whether it was stored: repeat
    it with the same ids.
    """

    def __init__(self, url: str, problem: str) -> None:
        self.url, self.problem = url, problem
        super().__init__(f"no answer from {url}: {problem}")


class Attempts:
    """Limits retries. The pauses double, with jitter, and are never shorter than the server requests. A busy server
    works, but serves others first, so waiting for it does not count as a failed attempt, for up to BUSY_S."""

    def __init__(
        self,
        *,
        retries: float = math.inf,
        within_s: float = math.inf,
        sleep: Callable[[float], object] = time.sleep,
        on_waiting: Callable[[EventLogError], object] | None = None,
    ) -> None:
        """At most `retries` in a row, none later than `within_s` after the first failure in a row.

        `on_waiting` is called once per series of failures that lasts for WAITING_S, with the last failure.
        """
        self._retries, self._within_s, self.sleep, self._on_waiting = retries, within_s, sleep, on_waiting
        self.succeeded()

    def succeeded(self) -> None:
        """The next failure starts a new series."""
        self._left, self._pause_s, self._busy_s = self._retries, PAUSE_S_MIN, 0.0
        self.elsewhere = 0
        """How often another address was asked instead, without a pause."""
        self._failed_at: float | None = None
        self._has_told = False

    def turned(self) -> None:
        """Another address is asked at once, which does not count against the limit."""
        self.elsewhere += 1
        if self._failed_at is None:
            self._failed_at = time.monotonic()

    def failed(self, error: EventLogError, *, is_busy: bool = False) -> None:
        """Pause before the next attempt; raises the error if none is left."""
        self.sleep(self.pause_s(error, is_busy=is_busy))

    def pause_s(self, error: EventLogError, *, is_busy: bool = False, wait_s: float | None = None) -> float:
        """Like `failed`, but returns the seconds to pause; `wait_s` overrides the computed pause."""
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
        asked_s = error.retry_after_s if isinstance(error, Overloaded | LoginNotChecked) else 0.0
        pause_s = max(asked_s, self._pause_s * random.uniform(0.5, 1.0)) if wait_s is None else wait_s
        if self._left <= 0 or self._busy_s > BUSY_S or now - self._failed_at + pause_s > self._within_s:
            raise error
        if self._on_waiting is not None and not self._has_told and now - self._failed_at + pause_s >= WAITING_S:
            self._has_told = True
            self._on_waiting(error)
        if is_busy:
            self._busy_s += pause_s
        else:
            self._left -= 1
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return pause_s
