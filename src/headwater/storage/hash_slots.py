"""Where a hash is among hashes in order: they are spread evenly, so it is near where its value says."""

from __future__ import annotations

from bisect import bisect_left

_NEAR = 32
"""So far from there it is looked for first."""


def slot_of(hashes: memoryview, wanted: int) -> int:
    """The index of the first of these 64-bit hashes that is not below `wanted`; their count if all are."""
    count = len(hashes)
    guess = wanted * count >> 64
    if guess < count:  # a guess from there is nearer still
        guess += (wanted - hashes[guess]) * count >> 64
    low, high = max(guess - _NEAR, 0), min(guess + _NEAR, count)
    slot = bisect_left(hashes, wanted, low, high) if low < high else high
    if (slot == low and low) or (slot == high and high < count):  # it is not so near
        slot = bisect_left(hashes, wanted)
    return slot
