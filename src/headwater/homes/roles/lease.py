"""How long a lease lasts, for the home that gives it and for the server that holds it. No clock is read here.

The lease says who tries to append and who runs coordinators; it makes nothing safe. The home
counts it by its own clock. Its holder counts from the moment at which the renewal was *sent*, which is before the
home's counting began, and by a clock that counts sleep as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PATIENCE_S_MIN = 1.0
CONNECT_S_MIN = 3
_STEP_MS = 500
"""Lengths of leases are proposed in steps of that."""
Term = tuple[int, int]
"""A number that counts up, and the nonce of whoever holds it: what `Term` of a frame log is."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """What is agreed on about leases: the same on all servers of a home."""

    length_s: float = 5.0
    """For how long the home gives it, by the home's clock."""
    clock_off_max_s: float = 2.0
    """How far a server's clock may be off the home's: times of events never go back, so one clock that is ahead would
    stop those of all later primaries."""
    jitter_s: float = 0.5
    """Servers that wait for the same lease try at different moments within so long."""

    @property
    def held_s(self) -> float:
        """For how long its holder counts on it, from when the renewal was sent: two thirds.

        A clock that runs at two thirds of the home's speed, or faster, ends it before the home does.
        """
        return self.length_s * 2 / 3

    @property
    def renewal_s(self) -> float:
        """Time between two renewals: two of them may be lost before the lease is."""
        return self.held_s / 3

    @property
    def patience_s(self) -> float:
        """A request without an answer is repeated after that: the time between two renewals, and at least 1 s."""
        return max(PATIENCE_S_MIN, self.renewal_s)

    @property
    def silence_s(self) -> float:
        """A connection is given up on which a round trip takes longer: half of `held_s`, and at least 1 s."""
        return max(PATIENCE_S_MIN, self.held_s / 2)

    @property
    def connect_s(self) -> int:
        """How long each host may take to connect, which takes several round trips."""
        return max(CONNECT_S_MIN, int(self.held_s))

    def needed(self) -> str:
        """How soon the home must answer, and what to do where it does later."""
        return (
            f"a lease of {self.length_s:g} s needs an answer within {self.renewal_s:.1f} s: where the network is "
            "slower, give home_lease_ms six times as long on all servers"
        )

    def too_slow(self, round_trip_s: float) -> str | None:
        """Why no lease of this length is kept at a home that answers after so long, and the remedy; None: it is."""
        if round_trip_s > self.clock_off_max_s:
            return (
                f"the home takes {round_trip_s:.1f} s to answer, more than the {self.clock_off_max_s:g} s for which "
                "clocks can be compared, so no server takes the lease: have the database nearer to its servers"
            )
        if round_trip_s <= self.renewal_s:
            return None
        least_ms = math.ceil(round_trip_s * 6 * 1000 / _STEP_MS) * _STEP_MS
        return (
            f"the home takes {round_trip_s:.1f} s to answer, and a lease of {self.length_s:g} s is kept up to "
            f"{self.renewal_s:.1f} s: set home_lease_ms to {least_ms} or more on all servers"
        )

    def is_free(self, until: float, home_now: float) -> bool:
        """Whether the home may give a lease that another had until then, both by the home's clock.

        One that would last longer than any lease was given by a clock that has been set back since: it is over too, or
        nobody could append for as long as the clock was wrong.
        """
        return until <= home_now or until > home_now + self.length_s


@dataclass(slots=True)
class Lease:
    """What the holder knows of its lease."""

    term: Term
    timeline: int
    """That of the home which gave it: what is written under this lease is written on that timeline only."""
    sent_at: float
    """When the newest request was sent which the home granted, by the holder's clock that counts sleep."""
    renew_at: float
    """When to send the next."""

    def renewed(self, sent_at: float) -> None:
        """The home granted what was sent then. Answers may come in any order."""
        self.sent_at = max(self.sent_at, sent_at)

    def held_until(self, times: LeaseTimes) -> float:
        """From then on the holder does nothing that only a holder may do."""
        return self.sent_at + times.held_s
