"""UUIDv7 (RFC 9562, 5.7): the id of an event whose producer gave none."""

from __future__ import annotations

import os
import time


def uuid7s(count: int) -> list[str]:
    """So many new UUIDv7, as text, ascending in time to the millisecond."""
    prefix = f"{time.time_ns() // 1_000_000:012x}"
    head = f"{prefix[:8]}-{prefix[8:]}-7"
    noise = os.urandom(10 * count).hex()
    return [
        f"{head}{bits[:3]}-{_VARIANT[bits[3]]}{bits[4:7]}-{bits[7:19]}"
        for bits in (noise[start : start + 20] for start in range(0, 20 * count, 20))
    ]


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
