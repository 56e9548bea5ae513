"""The duration of a lease, for the home that grants it and for the server that holds it. This module reads no clock.

The lease selects the server that tries to append and that runs coordinators; it does not make appends safe. The home
measures it by its own clock. The holder counts from when it *sent* the renewal, which is before the home starts to
count, and uses a clock that counts time asleep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PATIENCE_S_MIN = 1.0
CONNECT_S_MIN = 3
_STEP_MS = 500
"""Proposed lengths of leases are multiples of this."""
Term = tuple[int, int]
"""An increasing number and the nonce of its holder, like `Term` of a frame log."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations that must be the same on all servers of a home."""

    length_s: float = 5.0
    """The length of a lease, by the home's clock."""
    clock_off_max_s: float = 2.0
    """The most that a server's clock may differ from the home's. Times of events never decrease, so a primary whose
    clock is ahead would hold up the times of all later primaries.
    """
    jitter_s: float = 0.5
    """Servers that wait for the same lease spread their attempts over this time."""

    @property
    def held_s(self) -> float:
        """How long the holder counts on a lease after it sent the renewal: two thirds of `length_s`.

        So the holder's lease ends before the home's, even if its clock runs at only two thirds of the home's speed.
        """
        return self.length_s * 2 / 3

    @property
    def renewal_s(self) -> float:
        """Time between two renewals. Two renewals in a row may be lost without losing the lease."""
        return self.held_s / 3

    @property
    def patience_s(self) -> float:
        """Time after which an unanswered request is repeated: the renewal interval, and at least 1 s."""
        return max(PATIENCE_S_MIN, self.renewal_s)

    @property
    def silence_s(self) -> float:
        """The longest round trip before a connection is dropped: half of `held_s`, and at least 1 s."""
        return max(PATIENCE_S_MIN, self.held_s / 2)

    @property
    def connect_s(self) -> int:
        """Connect timeout of each host, which must allow for several round trips."""
        return max(CONNECT_S_MIN, int(self.held_s))

    def needed(self) -> str:
        """How soon the home must answer, and the remedy if it is slower."""
        return (
            f"a lease of {self.length_s:g} s requires an answer within {self.renewal_s:.1f} s; on a slower "
            "network, set home_lease_ms to six times the round trip on all servers"
        )

    def too_slow(self, round_trip_s: float) -> str | None:
        """Why a lease of this length cannot be kept with such a round trip, and the remedy; None if it can."""
        if round_trip_s > self.clock_off_max_s:
            return (
                f"the home takes {round_trip_s:.1f} s to answer, but clocks can be compared only within "
                f"{self.clock_off_max_s:g} s, so no server takes the lease; move the database closer to its servers"
            )
        if round_trip_s <= self.renewal_s:
            return None
        least_ms = math.ceil(round_trip_s * 6 * 1000 / _STEP_MS) * _STEP_MS
        return (
            f"the home takes {round_trip_s:.1f} s to answer, but a lease of {self.length_s:g} s requires an answer "
            f"within {self.renewal_s:.1f} s; set home_lease_ms to {least_ms} or more on all servers"
        )

    def is_free(self, until: float, home_now: float) -> bool:
        """Whether the home may grant a lease that another server had until `until`; both times are by the home's clock.

        A lease that would last longer than `length_s` was granted before the clock was set back. It counts as free,
        since otherwise no server could append until the clock catches up.
        """
        return until <= home_now or until > home_now + self.length_s


@dataclass(slots=True)
class Lease:
    """A lease as its holder sees it."""

    term: Term
    timeline: int
    """The home's timeline when it granted the lease. All writes of this lease are on this timeline only."""
    sent_at: float
    """When the newest granted request was sent, by the holder's clock, which counts time asleep."""
    renew_at: float
    """When to send the next renewal."""

    def renewed(self, sent_at: float) -> None:
        """Note that the home granted the request sent at `sent_at`. Answers may come in any order."""
        self.sent_at = max(self.sent_at, sent_at)

    def held_until(self, times: LeaseTimes) -> float:
        """The time from which the holder no longer acts as one."""
        return self.sent_at + times.held_s
