"""Families of metrics with all their samples, as Prometheus takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from .histogram import Histogram

Samples = Iterable[tuple[Sequence[str], float]]
"""Values, each with those of its labels."""


def counter(name: str, summary: str, samples: Samples | float, labels: Sequence[str] = ()) -> Metric:
    """What only grows: `headwater_{name}`. One number is that of a family without labels."""
    return _filled(CounterMetricFamily(f"headwater_{name}", summary, labels=labels), samples)


def gauge(name: str, summary: str, samples: Samples | float, labels: Sequence[str] = ()) -> Metric:
    """What goes up and down: `headwater_{name}`. One number is that of a family without labels."""
    return _filled(GaugeMetricFamily(f"headwater_{name}", summary, labels=labels), samples)


def histogram(
    name: str, summary: str, samples: Iterable[tuple[Sequence[str], Histogram]], labels: Sequence[str] = ()
) -> Metric:
    """How often what took how long: `headwater_{name}`."""
    family = HistogramMetricFamily(f"headwater_{name}", summary, labels=labels)
    for values, found in samples:
        family.add_metric(values, list(found.cumulated()), found.sum_s)
    return family


def _filled(family: CounterMetricFamily | GaugeMetricFamily, samples: Samples | float) -> Metric:
    for labels, value in [((), samples)] if isinstance(samples, int | float) else samples:
        family.add_metric(labels, value)
    return family
