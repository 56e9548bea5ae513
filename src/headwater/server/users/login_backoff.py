"""Delays after failed logins, separately for each place and name.

A place is an address, or a whole network of one customer (`core/client_subnet.py`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

PAUSE_S, PAUSE_S_MAX = 0.25, 8.0
WAIT_S_MAX = 15.0
"""An attempt that would have to wait longer is refused unchecked."""
FAILURES_FORGOTTEN_S = 600.0
FAILURES_MAX = 10_000

Attempt = tuple[str, str]
"""The place of origin of an attempt, and the user name given (empty for a token)."""


class LoginBackoff:
    """Delays attempts after failures, longer each time, per place and name; the table is bounded.

    An attempt counts as a failure until it is released, so that opening many connections at once gains nothing.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: OrderedDict[Attempt, tuple[int, float]] = OrderedDict()
        """The number of failures, and when the next attempt may be checked; least recently used first."""

    def begin(self, attempt: Attempt) -> float:
        """How long this attempt must wait, in seconds; its turn is reserved unless that is over WAIT_S_MAX."""
        now = self._clock()
        count, next_at = self._failures.get(attempt, (0, now))
        if now - next_at > FAILURES_FORGOTTEN_S:
            count, next_at = 0, now
        wait_s = max(0.0, next_at - now)
        if wait_s <= WAIT_S_MAX:
            self._failures[attempt] = (count + 1, now + wait_s + _pause_s(count))
        self._failures.move_to_end(attempt)
        if len(self._failures) > FAILURES_MAX:
            self._failures.popitem(last=False)
        return wait_s

    def take_back(self, attempt: Attempt) -> None:
        """The attempt was not checked: do not count it as a failure."""
        count, next_at = self._failures.get(attempt, (0, 0.0))
        if count > 1:
            self._failures[attempt] = (count - 1, next_at - _pause_s(count - 1))
        else:
            self._failures.pop(attempt, None)

    def release(self, attempt: Attempt) -> None:
        """The attempt succeeded: forget the failures."""
        self._failures.pop(attempt, None)


class WaitSlots:
    """How many attempts may wait at the same time, per place and in total."""

    def __init__(self, each_max: int, all_max: int) -> None:
        self._each_max, self._all_max = each_max, all_max
        self._taken: Counter[str] = Counter()
        self._all = 0

    def take(self, place: str) -> bool:
        """Whether a slot was free."""
        if self._all >= self._all_max or self._taken[place] >= self._each_max:
            return False
        self._taken[place] += 1
        self._all += 1
        return True

    def leave(self, place: str) -> None:
        """Release a slot."""
        self._all -= 1
        self._taken[place] -= 1
        if not self._taken[place]:
            del self._taken[place]


def _pause_s(failures: int) -> float:
    """The delay of an attempt after that many failures and one more."""
    return min(PAUSE_S * 2.0 ** min(failures, 32), PAUSE_S_MAX)
