"""When a client tries again, whatever it speaks: which errors may pass, and how long to wait between attempts."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from ...core.access import IssuerUnavailable, LoginNotChecked, TooManyLogins
from ...core.errors import Closed, EventLogError, Overloaded, StorageUnavailable

PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 2.0
PASSING = (Overloaded, TooManyLogins, IssuerUnavailable, Closed, StorageUnavailable)
"""Answers of a server that may be better in a moment: it has too much to do, or it stops."""
WAITING_S = 1.0
"""After so long, whoever waits is told what for."""
BUSY_S = 600.0
"""How long to wait for a place at a server that is busy."""


class ServerUnreachable(EventLogError):
    """No answer came from the server. Over HTTP an append was not sent, or it is OutcomeUnknown. Over Flight it is
    unknown whether it went in: repeat it with the same ids.
    """

    def __init__(self, url: str, problem: str) -> None:
        self.url, self.problem = url, problem
        super().__init__(f"no answer from {url}: {problem}")


class Attempts:
    """How often to try. The pauses in between double, with jitter, and are never shorter than the server asks for.

    A busy server is well, and has others before us: waiting for it is no failed attempt, for BUSY_S.
    """

    def __init__(
        self,
        *,
        retries: float = math.inf,
        within_s: float = math.inf,
        sleep: Callable[[float], object] = time.sleep,
        on_waiting: Callable[[EventLogError], object] | None = None,
    ) -> None:
        """At most so many retries in a row, none of them later than `within_s` after the first failure in a row.

        `on_waiting` is called once for failures in a row that go on for WAITING_S, with the last of them.
        """
        self._retries, self._within_s, self.sleep, self._on_waiting = retries, within_s, sleep, on_waiting
        self.succeeded()

    def succeeded(self) -> None:
        """The next failure is a first one again."""
        self._left, self._pause_s, self._busy_s = self._retries, PAUSE_S_MIN, 0.0
        self.elsewhere = 0
        """How often something else was asked instead, without a pause."""
        self._failed_at: float | None = None
        self._has_told = False

    def turned(self) -> None:
        """Something else is asked at once, which is no matter of patience."""
        self.elsewhere += 1
        if self._failed_at is None:
            self._failed_at = time.monotonic()

    def failed(self, error: EventLogError, *, is_busy: bool = False) -> None:
        """Pause before the next attempt; where there is none left, raises the error."""
        self.sleep(self.pause_s(error, is_busy=is_busy))

    def pause_s(self, error: EventLogError, *, is_busy: bool = False, wait_s: float | None = None) -> float:
        """The same for whoever pauses in its own way: so many seconds; `wait_s` where something else says how many."""
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
