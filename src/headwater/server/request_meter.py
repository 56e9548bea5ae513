"""Counts and latencies of HTTP requests: plain numbers, because every request pays for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})


class RouteLatency:
    """How long the requests of one route took: how many fell in each bucket, and the sum in seconds."""

    __slots__ = ("buckets", "sum_s")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """(upper bound, how many were no slower), as Prometheus writes a histogram."""
        total = 0
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], self.buckets, strict=True):
            total += count
            yield bound, total


class RequestMeter:
    """Requests by (method, route template, status) and latencies by (method, route template)."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}
        self.latencies: dict[tuple[str, str], RouteLatency] = {}

    def measure(self, method: str, route: str, status: int, duration_s: float) -> None:
        """A request was answered."""
        method = method if method in METHODS else "other"
        self._count(method, route, status)
        latency = self.latencies.get((method, route))
        if latency is None:
            latency = self.latencies[method, route] = RouteLatency()
        latency.buckets[bisect_left(BOUNDS_S, duration_s)] += 1
        latency.sum_s += duration_s

    def count(self, method: str, route: str, status: int) -> None:
        """A stream ended: how long it was open is no latency."""
        self._count(method if method in METHODS else "other", route, status)

    def _count(self, method: str, route: str, status: int) -> None:
        key = (method, route, status)
        self.counts[key] = self.counts.get(key, 0) + 1
