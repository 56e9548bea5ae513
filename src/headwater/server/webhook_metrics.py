"""What `/metrics` shows of webhooks: how many stand how, what waits for them, and what became of the calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..cne.server import Application

STANDINGS = ("delivering", "retrying", "suspended")


class WebhookCollector(Collector):
    """Reads the deliveries of the notification API at each scrape; may run in a thread of its own."""

    def __init__(self, application: Application) -> None:
        self._service = application.service

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        endpoints = self._service.endpoints()
        standings = Counter(endpoint.standing.value for endpoint in endpoints)
        webhooks = GaugeMetricFamily("headwater_webhooks", "Webhooks, by standing.", labels=["standing"])
        for standing in STANDINGS:
            webhooks.add_metric([standing], standings[standing])
        yield webhooks
        waiting = sum(endpoint.waiting for endpoint in endpoints)
        yield GaugeMetricFamily("headwater_webhook_events_waiting", "Events in memory, not delivered.", value=waiting)
        letters = sum(len(endpoint.kept.dead_letters) for endpoint in endpoints)
        yield GaugeMetricFamily("headwater_webhook_dead_letters", "Events that were refused.", value=letters)
        calls = CounterMetricFamily("headwater_webhook_calls", "Calls of webhooks, by outcome.", labels=["outcome"])
        for outcome, count in self._service.webhooks.calls.items():
            calls.add_metric([outcome], count)
        yield calls
