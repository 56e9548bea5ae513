"""Metrics over Cloud Native Events: values in windows of event time, and the time resources spent in each state.

The pipeline `metrics` computes them with Spark.
"""

from .errors import MetricsError, NotAMetricsTable

__all__ = ["MetricsError", "NotAMetricsTable"]
