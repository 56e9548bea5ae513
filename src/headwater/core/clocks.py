"""The clocks of the system: the one that people read, and the monotonic one for leases and ages."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """ms since 1970 UTC, as the system's clock shows them."""
    return time.time_ns() // 1_000_000


def boot_time_s() -> float:
    """The time of a clock that cannot be set and that counts the time while the machine slept, in s."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
