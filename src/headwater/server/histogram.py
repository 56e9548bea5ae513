"""How often what took how long: plain numbers, because every request pays for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """Durations in s: how many fell in each bucket, and their sum."""

    __slots__ = ("_bounds", "buckets", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are the greatest durations of all buckets but the last, ascending."""
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, duration_s: float) -> None:
        """One more."""
        self.buckets[bisect_left(self._bounds, duration_s)] += 1
        self.sum_s += duration_s

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """(upper bound, how many were no longer), as Prometheus writes a histogram."""
        total = 0
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self.buckets, strict=True):
            total += count
            yield bound, total
