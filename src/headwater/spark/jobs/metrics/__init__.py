"""Metrics over Cloud Native Events: their values in windows of event time, and how long resources were in which state.

The pipeline `metrics` computes them with Spark.
"""

from .errors import MetricsError, NotAMetricsTable

__all__ = ["MetricsError", "NotAMetricsTable"]
