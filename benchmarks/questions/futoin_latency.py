"""How long after the start of its addition is an event pushed, at 25 events a second?

Adder and consumer are two WebSockets of one process, so that one clock measures both ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from ..bench import Bench
from ..futoin.servers import HEADWATER, REFERENCE, Server, Servers
from ..measure import Aim, Case, Sample, expect

TITLE = "FutoIn: push latency"
EVENTS_PER_S = 25
SECONDS = 20

_numbers = itertools.count(1)


def cases(bench: Bench) -> Iterator[Case]:
    """Reliable and live pushes, their median and their 95th percentile, of the same runs."""
    seconds = bench.count(SECONDS, least=4)
    with Servers(bench.scratch("futoin")) as servers:
        for title in ("reliable", "live"):
            p95: dict[str, list[float]] = {HEADWATER: [], REFERENCE: []}
            runs = {name: partial(_push, servers[name], title, seconds, p95[name]) for name in p95}
            yield Case(f"{title}, p50", "ms", runs, (Aim("", 5),), is_lower_better=True)
            again = {name: partial(_taken, iter(tuple(p95[name]))) for name in p95}
            yield Case(f"{title}, p95", "ms", again, is_lower_better=True, rounds=len(p95[HEADWATER]))


def _push(server: Server, title: str, seconds: int, p95: list[float]) -> Sample:
    component = "LIVE" if title == "live" else f"C{next(_numbers)}"
    numbers = server.ask("latency", component, EVENTS_PER_S, seconds)
    expect(f"{title}: events pushed", numbers["added"], numbers["received"])
    p95.append(numbers["p95_ms"])
    return Sample(numbers["p50_ms"], None, numbers["p50_ms"], numbers["p99_ms"])


def _taken(values: Iterator[float]) -> Sample:
    return Sample(next(values))
