"""What AMQP adds to `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..amqp.container import Container
from ..amqp.statistics import AmqpStatistics

Value = Callable[[AmqpStatistics], int]
COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("connections", "Connections that were taken.", lambda statistics: statistics.connections),
    ("connections_refused", "Connections refused: too many.", lambda statistics: statistics.connections_refused),
    ("faults", "Connections that ended because the peer broke the protocol.", lambda statistics: statistics.faults),
    ("links", "Links that were attached.", lambda statistics: statistics.links),
    ("links_refused", "Attaches that were refused.", lambda statistics: statistics.links_refused),
    ("messages_received", "Messages received.", lambda statistics: statistics.messages_received),
    ("messages_rejected", "Messages rejected, each with a reason.", lambda statistics: statistics.messages_rejected),
    ("messages_sent", "Messages sent.", lambda statistics: statistics.messages_sent),
    (
        "messages_sent_again",
        "Messages sent again because their receiver gave them back.",
        lambda statistics: statistics.messages_sent_again,
    ),
)


class AmqpCollector(Collector):
    """Reads the counters of one container at each scrape."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def collect(self) -> Iterator[Metric]:
        """See Collector."""
        yield GaugeMetricFamily(
            "headwater_amqp_connections_open", "AMQP connections.", len(self._container.connections)
        )
        for name, summary, value in COUNTERS:
            counter = CounterMetricFamily(f"headwater_amqp_{name}", summary)
            counter.add_metric([], value(self._container.statistics))
            yield counter
