"""The errors of metrics tables.

MetricsError (an EventLogError)
└── NotAMetricsTable   the path contains something else, or the table of another run or other options
"""

from __future__ import annotations

from ....core.errors import EventLogError


class MetricsError(EventLogError):
    """Metrics cannot be written."""


class NotAMetricsTable(MetricsError):
    """The path does not contain the requested table; nothing was changed there."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")
