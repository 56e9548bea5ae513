"""Recent measurements: rings in memory, of five seconds for an hour and of a minute for a day.

Counters become rates per second. Missing measurements are NaN and are not interpolated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..core.followers import Lag
from .lag_series import LAG_SERIES, LagSeries
from .rings import Rings

SERIES_MAX = 500
"""The maximum number of log series, of 8.6 kB each. If logs have more, those of the longest idle logs are dropped."""
LOG_SERIES = (
    "events_appended", "bytes_appended", "events_read", "commits", "fsync_seconds", "conditions_failed", "refused",
)  # fmt: skip
"""For each log, per second."""
LOG_PEAKS = ("commit_seconds_max",)
"""For each log: the maximum within the step."""
PROTOCOLS = ("amqp", "cne", "flight", "futoin", "http")
PROTOCOL_SERIES = tuple(f"{protocol}_events_{way}" for protocol in PROTOCOLS for way in ("in", "out"))
SERVER_SERIES = (
    "events_appended",
    "events_read",
    "requests",
    "refusals",
    "amqp_messages_received",
    "amqp_messages_sent",
    *PROTOCOL_SERIES,
)
"""For the server, per second."""
SERVER_GAUGES = (
    "streams", "amqp_connections", "disk_free_bytes", "disk_bytes", "disk_reserve_bytes", "queued_bytes",
    "memory_held_bytes", "memory_budget_bytes",
)  # fmt: skip
"""For the server, current values."""
SERVER_PEAKS = LOG_PEAKS
"""For all logs together."""
SCRUB_FACTS = ("scrub_running", "scrub_ended_at", "scrub_bytes", "scrub_damaged", "scrub_mended")
"""For the scrub: whether a pass is running, when the last one ended (ms since 1970 UTC, 0: none has), its bytes, and
the damaged places that are known, or were repaired from the home.
"""


_OF_LOG = (*LOG_SERIES, *LOG_PEAKS)


class LogSample(NamedTuple):
    """The counters of a log at one moment."""

    head: int
    counts: tuple[float, ...]
    """The values of LOG_SERIES."""
    peaks: tuple[float, ...] = (0.0,)
    """The values of LOG_PEAKS: the largest values within the last few seconds."""


class Sample(NamedTuple):
    """The counters of the server at one moment."""

    at: float
    """In s since 1970."""
    counts: Mapping[str, float]
    """The values of SERVER_SERIES, without protocols that are not served."""
    gauges: Mapping[str, float]
    """The values of SERVER_GAUGES, without unknown ones."""
    logs: Mapping[str, LogSample]
    facts: Mapping[str, float] = MappingProxyType({})
    """Current values of the server that are not kept: see SCRUB_FACTS."""


def grown_by(before: LogSample | None, now: LogSample) -> list[float]:
    """How much each counter of a log grew; a new log counts from zero."""
    earlier = (0.0,) * len(now.counts) if before is None else before.counts
    return [b - a for a, b in zip(earlier, now.counts, strict=True)]


class Series:
    """All series of one server. `add` a sample every FINE_S seconds; everything on one event loop."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        names = (*SERVER_SERIES, *SERVER_GAUGES, *SERVER_PEAKS)
        self._logs_max = (series_max - len(names)) // len(_OF_LOG)
        self._server = {name: Rings(is_peak=name in SERVER_PEAKS) for name in names}
        self._logs: dict[str, tuple[Rings, ...]] = {}
        """By log; the most recently active is last."""
        self._before: Sample | None = None
        self._lags = LagSeries()

    @property
    def consumers(self) -> Iterable[str]:
        """The consumers that have series, by name; see LagSeries."""
        return self._lags.names

    @property
    def logs(self) -> Iterable[str]:
        """The logs that have series."""
        return self._logs

    def add(self, sample: Sample, lags: Mapping[str, Lag] | None = None) -> None:
        """Add a sample, and how far behind consumers are, by name."""
        self._lags.add(sample.at, lags or {})
        before, self._before = self._before, sample
        for name, value in sample.gauges.items():
            self._server[name].put(sample.at, value)
        for index, name in enumerate(SERVER_PEAKS):
            self._server[name].put(sample.at, max([log.peaks[index] for log in sample.logs.values()], default=0.0))
        if before is None or sample.at <= before.at:
            return
        passed = sample.at - before.at
        for name, value in sample.counts.items():
            self._server[name].put(sample.at, max(0.0, value - before.counts.get(name, value)) / passed)
        for log in self._logs.keys() - sample.logs.keys():
            del self._logs[log]
        for log, measured in sample.logs.items():
            rates = [max(0.0, grown) / passed for grown in grown_by(before.logs.get(log), measured)]
            self._add_log(log, sample.at, [*rates, *measured.peaks])

    def values(self, name: str, log: str | None, step_s: int, now: float) -> list[float | None] | None:
        """The values of a series of a log, or of the server, oldest first; None if there is no such series.

        Those of LAG_SERIES belong to a consumer, whose name replaces the log's.
        """
        if log is not None and name in LAG_SERIES:
            return self._lags.values(name, log, step_s, now)
        if log is None:
            found = self._server.get(name)
        else:
            of_log = self._logs.get(log)
            found = None if of_log is None or name not in _OF_LOG else of_log[_OF_LOG.index(name)]
        if found is None:
            return None
        return found.values(step_s, now)

    def _add_log(self, log: str, at: float, rates: list[float]) -> None:
        series = self._logs.get(log)
        if series is None:
            if len(self._logs) >= self._logs_max:
                if not any(rates):
                    return
                del self._logs[next(iter(self._logs))]
            series = self._logs[log] = tuple(Rings(is_peak=name in LOG_PEAKS) for name in _OF_LOG)
        elif any(rates):
            self._logs[log] = self._logs.pop(log)
        for each, rate in zip(series, rates, strict=True):
            each.put(at, rate)
