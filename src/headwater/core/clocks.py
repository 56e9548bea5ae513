"""The system's clocks: the wall clock, and a monotonic clock for leases and ages."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """ms since 1970 UTC, by the system's wall clock."""
    return time.time_ns() // 1_000_000


def boot_time_s() -> float:
    """The time in s of a clock that cannot be set and that keeps counting while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
