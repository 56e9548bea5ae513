"""`/metrics`: the counters of the open logs, the guard and the gate, in the Prometheus text format.

Nothing is kept here: each scrape reads the current counters. docs/reference/metrics.md documents each name. Names
include those of logs and consumers, so if there are users, metrics require a login: any user's, or, with
`http.metrics_need_right`, that of a user with `metrics:*` or `manage:*`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ... import __version__
from ...core.access import Forbidden, Guard, LoginNotChecked, Right, Unauthenticated, User
from ...core.consumer import Consumer
from ...core.errors import Closed, LogNotFound
from ...core.followers import Lag, lag_of
from ...core.local import LocalLog
from ...core.log import LogInfo, LogStatistics
from ...core.store import LogStore
from ...http import Exchange, Host, Receive, Scope, Send
from ...http.problems import problem_of
from ...speedups import BUILD
from ..front.gate import Gate, State
from ..front.health import METRICS, NO_STORE, Page
from ..front.meter import Histogram

Samples = Iterable[tuple[Sequence[str], float]]
"""Values with their label values."""


def counter(name: str, summary: str, samples: Samples | float, labels: Sequence[str] = ()) -> Metric:
    """A metric that only grows: `headwater_{name}`. A single number is a family without labels."""
    return _filled(CounterMetricFamily(f"headwater_{name}", summary, labels=labels), samples)


def gauge(name: str, summary: str, samples: Samples | float, labels: Sequence[str] = ()) -> Metric:
    """A metric that goes up and down: `headwater_{name}`. A single number is a family without labels."""
    return _filled(GaugeMetricFamily(f"headwater_{name}", summary, labels=labels), samples)


def histogram(
    name: str, summary: str, samples: Iterable[tuple[Sequence[str], Histogram]], labels: Sequence[str] = ()
) -> Metric:
    """A distribution of durations: `headwater_{name}`."""
    family = HistogramMetricFamily(f"headwater_{name}", summary, labels=labels)
    for values, found in samples:
        family.add_metric(values, list(found.cumulated()), found.sum_s)
    return family


def _filled(family: CounterMetricFamily | GaugeMetricFamily, samples: Samples | float) -> Metric:
    for labels, value in [((), samples)] if isinstance(samples, int | float) else samples:
        family.add_metric(labels, value)
    return family


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _LogSample:
    """One open log at the moment of the scrape."""

    info: LogInfo
    statistics: LogStatistics
    lags: list[tuple[Consumer, Lag]]


_PROCESS = ProcessCollector(registry=None)
LogValue = Callable[[_LogSample], float]
LOG_COUNTERS: tuple[tuple[str, str, LogValue], ...] = (
    ("appends", "Successful appends.", lambda sample: sample.statistics.appends),
    ("events_appended", "Appended events.", lambda sample: sample.statistics.events_appended),
    ("bytes_appended", "Bytes of appended events.", lambda sample: sample.statistics.bytes_appended),
    ("commits", "Group commits, each with one fsync.", lambda sample: sample.statistics.commits),
    ("fsync_seconds", "Time spent in write and fsync.", lambda sample: sample.statistics.fsync_seconds),
    ("conditions_failed", "Appends with a failed condition.", lambda sample: sample.statistics.conditions_failed),
    ("duplicates", "Appends refused for a duplicate id.", lambda sample: sample.statistics.duplicates),
    ("appends_refused", "Appends refused for overload or a full disk.", lambda sample: sample.statistics.refused),
    ("events_read", "Events read.", lambda sample: sample.statistics.events_read),
    ("clock_steps", "Number of times the wall clock went back.", lambda sample: sample.statistics.clock_steps),
)
LOG_GAUGES: tuple[tuple[str, str, LogValue], ...] = (
    ("head", "Sequence number of the last durable event.", lambda sample: sample.info.head),
    ("first_retained", "Sequence number of the first readable event.", lambda sample: sample.info.first_retained),
    ("events", "Retained events.", lambda sample: sample.info.events),
    ("bytes", "Bytes used by the log's events.", lambda sample: sample.info.bytes),
    (
        "allocated_bytes",
        "Bytes used by the log's files, including preallocated space.",
        lambda sample: sample.info.allocated_bytes,
    ),
    ("segments", "Segments of the log.", lambda sample: sample.statistics.segments),
    ("writers", "Exactly-once writers with an unfinished batch.", lambda sample: sample.statistics.writers),
    (
        "writers_max",
        "Maximum number of exactly-once writers.",
        lambda sample: sample.statistics.writers_max,
    ),
    ("fsync_seconds_max", "Longest write and fsync so far.", lambda sample: sample.statistics.fsync_seconds_max),
    ("queued_requests", "Appends waiting to be written.", lambda sample: sample.statistics.queued_requests),
    (
        "queued_bytes",
        "Memory for waiting appends: twice their bytes.",
        lambda sample: sample.statistics.queued_bytes,
    ),
    (
        "unindexed_bytes",
        "Bytes of index entries not yet in an index file.",
        lambda sample: sample.statistics.unindexed_bytes,
    ),
)


class ServerCollector(Collector):
    """Reads everything at each scrape; may run in its own thread."""

    def __init__(
        self,
        store: LogStore,
        gate: Gate,
        refusals: Callable[[], Mapping[str, int]],
        clock: Callable[[], float] = time.time,
        rooms: Iterable[Callable[[], Iterable[Metric]]] = (),
    ) -> None:
        """`rooms` are functions that return the metrics of single packages."""
        self._store, self._gate, self._refusals, self._rooms = store, gate, refusals, tuple(rooms)
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        yield from self._server()
        samples = [sample for log in self._store.opened() if (sample := self._sample(log)) is not None]
        yield from _logs(samples)
        unavailable = self._store.unavailable()
        standings = {**{sample.info.name: 1 for sample in samples}, **dict.fromkeys(unavailable, 0)}
        summary = "1 for an open log, 0 for one that cannot be used or has known damage."
        yield gauge("log_up", summary, [([name], standing) for name, standing in standings.items()], ["log"])
        yield from _consumers(samples)
        yield from self._requests()
        for metrics_of_room in self._rooms:
            yield from metrics_of_room()

    def _server(self) -> Iterator[Metric]:
        yield gauge("info", "Running version and build.", [([__version__, BUILD], 1)], ["version", "build"])
        yield gauge("stopping", "1 while the server is stopping.", self._gate.state is State.STOPPING)
        refusals = [([reason], count) for reason, count in self._refusals().items()]
        yield counter("refusals", "Refused logins and accesses, by reason.", refusals, ["reason"])

    def _sample(self, log: LocalLog) -> _LogSample | None:
        try:
            info = log.info()
            lags = [
                (consumer, lag_of(log, consumer.acknowledged, round(self._clock() * 1000)))
                for consumer in log.consumers()
            ]
        except (Closed, LogNotFound):  # deleted since
            return None
        return _LogSample(info, log.statistics, lags)

    def _requests(self) -> Iterator[Metric]:
        gate, meter = self._gate, self._gate.meter
        yield gauge("http_requests_running", "Running HTTP requests.", gate.requests)
        yield gauge("http_streams", "Open subscriptions and WebSockets.", gate.streams)
        counts = [
            ([method, route, str(status)], count) for (method, route, status), count in list(meter.counts.items())
        ]
        yield counter("http_requests", "Answered HTTP requests.", counts, ["method", "route", "status"])
        latencies = list(meter.latencies.items())
        summary = "Time from the request to the end of the answer."
        yield histogram("http_request_seconds", summary, latencies, ["method", "route"])


def scrape(collector: ServerCollector) -> bytes:
    """The answer to `GET /metrics`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_PROCESS)
    registry.register(collector)
    return generate_latest(registry)


class Metrics(Page):
    """The ASGI application behind METRICS."""

    def __init__(self, guard: Guard, collector: ServerCollector, *, needs_right: bool = False) -> None:
        """`needs_right`: refuse a user without the right to see metrics, or to manage the server."""
        self._host, self._collector, self._needs_right = Host(guard), collector, needs_right

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, and count it."""
        scope["route"] = METRICS
        await super().__call__(scope, receive, send)

    async def answer(self, exchange: Exchange) -> None:
        """Send the metrics to authorized users."""
        try:
            self._check(await self._host.user(exchange))
        except (Unauthenticated, LoginNotChecked, Forbidden) as error:
            problem = problem_of(error)
            assert problem is not None, error
            await exchange.answer_problem(problem)
            return
        body = await asyncio.to_thread(scrape, self._collector)
        await exchange.answer(200, body, CONTENT_TYPE.encode(), (NO_STORE,))

    def _check(self, user: User) -> None:
        """Raises Forbidden."""
        if self._needs_right and not user.may(Right.MANAGE, "*"):
            self._host.guard.authorize(user, Right.METRICS, "*")


def _logs(samples: list[_LogSample]) -> Iterator[Metric]:
    for family, values in ((counter, LOG_COUNTERS), (gauge, LOG_GAUGES)):
        for name, summary, value in values:
            yield family(f"log_{name}", summary, [([each.info.name], value(each)) for each in samples], ["log"])


def _consumers(samples: list[_LogSample]) -> Iterator[Metric]:
    labels = ["log", "owner", "component"]
    lags = [
        ([sample.info.name, consumer.owner, consumer.component], lag)
        for sample in samples
        for consumer, lag in sample.lags
    ]
    summary = "Events not acknowledged by the consumer."
    yield gauge("consumer_lag_events", summary, [(values, lag.events) for values, lag in lags], labels)
    summary = "Age of the first event not acknowledged by the consumer; 0 if none."
    yield gauge("consumer_lag_seconds", summary, [(values, lag.age_ms / 1000) for values, lag in lags], labels)
