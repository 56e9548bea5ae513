"""How soon and at what rate do webhooks receive notifications, and do slow or dead webhooks affect the others?

Latency is from sending an event to the server to its arrival at a subscriber. The server stores every event durably
before it answers. Publishers and subscribers share one process, on the same cores as the server. Every event must
arrive at every good subscriber. A slow subscriber takes 1.5 s for each event, a dead one refuses connections.
Published for the Go sidecar, on like hardware: p95 8 ms, 230 ms, 2,585/s; 27 s beside a slow one, and a crash beside
a dead one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

from ..bench import HEADWATER, Bench
from ..measure import Aim, Case, Sample, expect, percentile_ms, stopwatch
from ..stores.headwater_server import HeadwaterServer
from ..webhook_load import Load, Report, run

TITLE = "Notifications to webhooks"
WITH_FAULTS = "headwater, beside one slow and one dead"


def cases(bench: Bench) -> Iterator[Case]:
    """Steady at two rates, a flood, faults, and current states."""
    steady = Load(events=bench.count(300), subscribers=20, rate=10)
    yield _case(bench, "10 events/s to 20 subscribers: 99 % within", steady, 99, 10)
    busy = Load(events=bench.count(2000), subscribers=20, rate=200)
    yield _case(bench, "200 events/s to 20 subscribers: 95 % within", busy, 95, 50)
    flood = Load(events=bench.count(3000), subscribers=1, publishers=8)
    runs = {HEADWATER: partial(_flood, bench, flood)}
    yield Case("a flood to one subscriber, 8 publishers", "events/s", runs, (Aim("", 4000),))
    alone = Load(events=bench.count(100), subscribers=5, rate=10)
    faults = Load(events=bench.count(100), subscribers=5, rate=10, slow=1, dead=1)
    both = {HEADWATER: partial(_latency, bench, alone, 95), WITH_FAULTS: partial(_latency, bench, faults, 95)}
    yield Case("10 events/s to 5 good subscribers: 95 % within", "ms", both, is_lower_better=True)
    asked = Load(events=1, subscribers=1, states=bench.count(500))
    runs = {HEADWATER: partial(_state, bench, asked)}
    yield Case("current state: 95 % within", "ms", runs, (Aim("", 5),), is_lower_better=True)


def _case(bench: Bench, title: str, load: Load, percent: int, aim: float) -> Case:
    runs = {HEADWATER: partial(_latency, bench, load, percent)}
    return Case(title, "ms", runs, (Aim("", aim),), is_lower_better=True)


def _latency(bench: Bench, load: Load, percent: int) -> Sample:
    report, cpu_us = _run(bench, load)
    return _sample(report.latencies, percent, cpu_us)


def _flood(bench: Bench, load: Load) -> Sample:
    report, cpu_us = _run(bench, load)
    latencies = report.latencies
    rate = load.events / report.seconds
    return Sample(rate, cpu_us, percentile_ms(latencies, 50), percentile_ms(latencies, 99))


def _state(bench: Bench, load: Load) -> Sample:
    report, _ = _run(bench, load)
    return _sample(report.states, 95, None)


def _run(bench: Bench, load: Load) -> tuple[Report, float]:
    """The report of a load on a new server, and the server's CPU time per event."""
    with closing(HeadwaterServer(bench.scratch("notifications"))) as server:
        with stopwatch(server.pid) as watch:
            report = run(server.url, load)
        expect("delivered", load.events * load.subscribers, report.delivered)
        return report, watch.cpu_seconds / load.events * 1e6


def _sample(seconds: list[float], percent: int, cpu_us: float | None) -> Sample:
    value = percentile_ms(seconds, percent)
    assert value is not None
    return Sample(value, cpu_us, percentile_ms(seconds, 50), percentile_ms(seconds, 99))
