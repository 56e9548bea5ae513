"""The clock for what must end in time though the machine slept: leases, and how old a copy is."""

from __future__ import annotations

import time


def boot_time_s() -> float:
    """A clock that nobody sets, and that counts sleep, in s."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
