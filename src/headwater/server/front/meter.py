"""Counts and latencies of HTTP requests, as plain numbers to keep the cost per request low."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Histogram:
    """Durations in s: the count for each bucket, and their sum."""

    __slots__ = ("_bounds", "buckets", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` contains the upper bounds of all buckets except the last, in ascending order."""
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, duration_s: float) -> None:
        """Add a duration."""
        self.buckets[bisect_left(self._bounds, duration_s)] += 1
        self.sum_s += duration_s

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """(upper bound, cumulative count), as Prometheus writes a histogram."""
        total = 0
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self.buckets, strict=True):
            total += count
            yield bound, total


BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})


class RequestMeter:
    """Requests by (method, route template, status) and latencies by (method, route template)."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}
        self.latencies: dict[tuple[str, str], Histogram] = {}

    def measure(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Record an answered request."""
        latency = self.latencies.get((method, route))
        if latency is None:
            method = method if method in METHODS else "other"
            latency = self.latencies.setdefault((method, route), Histogram(BOUNDS_S))
        self.counts[method, route, status] = self.counts.get((method, route, status), 0) + 1
        latency.add(duration_s)

    def count(self, method: str, route: str, status: int) -> None:
        """Record the end of a stream, whose duration is not a latency."""
        key = (method if method in METHODS else "other", route, status)
        self.counts[key] = self.counts.get(key, 0) + 1
