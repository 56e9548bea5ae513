"""The clock for leases and for the age of a copy: it counts the time while the machine slept."""

from __future__ import annotations

import time


def boot_time_s() -> float:
    """The time of a clock that cannot be set and that counts sleep, in s."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
