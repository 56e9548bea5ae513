"""What `/metrics` shows of the bulk process: whether it serves, and how often it had to be replaced."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .bulk.serving import BulkPlane


class BulkCollector(Collector):
    """Reads the bulk plane at each scrape; nothing is shown where there is none."""

    def __init__(self, bulk: BulkPlane | None) -> None:
        self._bulk = bulk

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        if self._bulk is not None:
            is_serving = float(self._bulk.is_serving)
            yield GaugeMetricFamily("headwater_bulk_up", "Whether Arrow Flight is served.", value=is_serving)
            deaths = self._bulk.deaths
            yield CounterMetricFamily("headwater_bulk_deaths", "Bulk processes that ended by themselves.", value=deaths)
