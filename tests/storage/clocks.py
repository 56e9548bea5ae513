"""Clocks that tests set."""

from __future__ import annotations

NOW_MS = 1_800_000_000_000
"""Some day in 2027."""
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
IN_2200_MS = 7_258_118_400_000


class Machine:
    """A system whose clock can be set: `shown` is what it shows, `elapsed` what passes whatever it shows."""

    def __init__(self, shown_ms: int = NOW_MS) -> None:
        self.now, self.up = shown_ms, 5_000

    def shown(self) -> int:
        return self.now

    def elapsed(self) -> int:
        return self.up

    def passes(self, ms: int) -> None:
        """Time passes; a suspended system, too, counts it."""
        self.now += ms
        self.up += ms

    def reboots(self, off_ms: int = 0) -> None:
        """It is off for a while; its clock goes on by its battery."""
        self.now += off_ms
        self.up = 5_000
