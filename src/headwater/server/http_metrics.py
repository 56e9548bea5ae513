"""What the connections of HTTP add to `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .http_server import HttpServer


class HttpCollector(Collector):
    """Reads the counters of one HTTP server at each scrape."""

    def __init__(self, http: HttpServer) -> None:
        self._http = http

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        admission = self._http.admission
        yield GaugeMetricFamily(
            "headwater_http_connections_open", "HTTP connections, WebSockets included.", self._http.connections
        )
        for name, summary, value in (
            ("connections", "HTTP connections that were taken.", admission.served),
            ("connections_refused", "HTTP connections refused: too many.", admission.refused),
        ):
            counter = CounterMetricFamily(f"headwater_http_{name}", summary)
            counter.add_metric([], value)
            yield counter
