"""UUIDv7 (RFC 9562, 5.7): the id of an event whose producer set none."""

from __future__ import annotations

import os
import time


def uuid7s(count: int) -> list[str]:
    """`count` new UUIDv7s, as text, ascending in time to the millisecond."""
    prefix = f"{time.time_ns() // 1_000_000:012x}"
    head = f"{prefix[:8]}-{prefix[8:]}-7"
    if count == 1:
        bits = _noise()
        return [f"{head}{bits[:3]}-{VARIANT[bits[3]]}{bits[4:7]}-{bits[7:19]}"]
    noise = os.urandom(10 * count).hex()
    return [
        f"{head}{bits[:3]}-{VARIANT[bits[3]]}{bits[4:7]}-{bits[7:19]}"
        for bits in (noise[start : start + 20] for start in range(0, 20 * count, 20))
    ]


VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_SPARE_MAX = 256
_spare: list[str] = []
"""Random bits fetched ahead: a system call for a few costs as much as one for many."""


def _noise() -> str:
    """80 random bits as 20 digits. Safe to call from any thread."""
    try:
        return _spare.pop()
    except IndexError:
        noise = os.urandom(10 * _SPARE_MAX).hex()
        _spare.extend([noise[start : start + 20] for start in range(20, len(noise), 20)])
        return noise[:20]


os.register_at_fork(after_in_child=_spare.clear)
