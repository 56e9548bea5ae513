"""Counts and latencies of HTTP requests: plain numbers, because every request pays for them."""

from __future__ import annotations

from .histogram import Histogram

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})


class RequestMeter:
    """Requests by (method, route template, status) and latencies by (method, route template)."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}
        self.latencies: dict[tuple[str, str], Histogram] = {}

    def measure(self, method: str, route: str, status: int, duration_s: float) -> None:
        """A request was answered."""
        method = method if method in METHODS else "other"
        self._count(method, route, status)
        latency = self.latencies.get((method, route))
        if latency is None:
            latency = self.latencies[method, route] = Histogram(BOUNDS_S)
        latency.add(duration_s)

    def count(self, method: str, route: str, status: int) -> None:
        """A stream ended: how long it was open is no latency."""
        self._count(method if method in METHODS else "other", route, status)

    def _count(self, method: str, route: str, status: int) -> None:
        key = (method, route, status)
        self.counts[key] = self.counts.get(key, 0) + 1
