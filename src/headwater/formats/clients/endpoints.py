"""Several addresses of one server, for any client: the current one, and the ones that are not used for a while after a
failure. No I/O.

One address is current until it fails; then the next one that does not rest becomes and stays current. After a failure
an address rests, twice as long after each further failure, with jitter, so that no address is hammered.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Container, Sequence
from typing import Generic, TypeVar

from ...core.errors import EventLogError
from .retry import PAUSE_S_MAX, PAUSE_S_MIN, Attempts


class Endpoint:
    """One address and its record."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.has_answered = False
        self.problem: str | None = None
        """Why it does not answer; None if it answered most recently, or was not asked yet."""
        self.failures = 0
        """The total so far. A caller that counted fewer has not seen the current `problem`."""
        self.rests_until = 0.0
        self.rest_s = PAUSE_S_MIN

    def succeeded(self) -> None:
        """The address has answered."""
        self.has_answered = True
        if self.problem is not None:
            self.problem, self.rests_until, self.rest_s = None, 0.0, PAUSE_S_MIN

    def failed(self, problem: str, now: float) -> None:
        """The address has failed. Failures while it rests belong to requests already in progress, and count as one."""
        self.failures += 1
        self.problem = problem
        if now >= self.rests_until:
            self.rests_until = now + self.rest_s * random.uniform(0.5, 1.0)
            self.rest_s = min(2 * self.rest_s, PAUSE_S_MAX)


E = TypeVar("E", bound=Endpoint)


class Endpoints(Generic[E]):
    """All addresses of one server. Safe to use from any thread."""

    def __init__(self, endpoints: Sequence[E]) -> None:
        """At least one address is given. The first one is asked first."""
        self._all = list(endpoints)
        self._changing = threading.Lock()
        self.current = self._all[0]
        self.is_single = len(self._all) == 1
        """Whether there was only ever one address: then only its clients' patience counts."""

    def __len__(self) -> int:
        return len(self._all)

    def best(self, without: Container[E] = ()) -> E:
        """The address to ask: the current one; if it is resting after a failure, one that is not; if all are resting,
        the one that has rested longest. Avoids addresses in `without` as long as there is another one."""
        current = self.current
        if self.is_single or (current.problem is None and current not in without):
            return current
        return self._rested(time.monotonic(), without)

    def failed(self, endpoint: E, error: OSError | EventLogError) -> None:
        """An address has not answered. If it was current, the next one becomes current."""
        now = time.monotonic()
        with self._changing:
            endpoint.failed(str(error) or type(error).__name__, now)
            if endpoint is self.current:
                self.current = self._rested(now)

    def turn_s(
        self, attempts: Attempts, error: EventLogError, without: Container[E] = (), *, is_busy: bool = False
    ) -> float:
        """How long to wait before another one is asked, in seconds; raises the error if no attempt is left.

        `is_busy`: see Attempts.
        """
        now = time.monotonic()
        rest_s = min(each.rests_until for each in self._left(self._all, without)) - now
        if rest_s <= 0 and attempts.elsewhere < len(self._all) - 1:
            attempts.turned()
            return 0.0
        wait_s = rest_s * random.uniform(1.0, 1.5) if rest_s > 0 else 0.0
        return attempts.pause_s(error, is_busy=is_busy, wait_s=wait_s)

    @property
    def urls(self) -> str:
        """All URLs, for messages."""
        return ",".join(each.url for each in self._all)

    def problems(self) -> str:
        """The problem of each address that does not answer; empty if all do."""
        return "; ".join(f"{each.url}: {each.problem}" for each in self._all if each.problem is not None)

    def _rested(self, now: float, without: Container[E] = ()) -> E:
        start = self._all.index(self.current) if self.current in self._all else 0
        in_turn = self._left(self._all[start:] + self._all[:start], without)
        return next((each for each in in_turn if each.rests_until <= now), min(in_turn, key=_rests_until))

    def _left(self, endpoints: list[E], without: Container[E]) -> list[E]:
        return [each for each in endpoints if each not in without] or endpoints


def _rests_until(endpoint: Endpoint) -> float:
    return endpoint.rests_until
