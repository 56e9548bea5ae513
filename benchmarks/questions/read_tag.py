"""How long does it take to read the 10 events of one tag from a full log?

One caller in this process; accounts drawn at random; all events are read whole and checked. The page cache is warm.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from ..bench import HEADWATER, SQLITE, Bench
from ..measure import Aim, Case, Sample, expect, percentile_ms, stopwatch
from ..workload import MATCHES_PER_ACCOUNT

TITLE = "Reading a tag with 10 matches"


def cases(bench: Bench) -> Iterator[Case]:
    """One case."""
    runs = {name: partial(_read, bench, name) for name in (HEADWATER, SQLITE)}
    yield Case("10 of all events", "ms (p50)", runs, (Aim("", 0.2),), is_lower_better=True)


def _read(bench: Bench, name: str) -> Sample:
    store = bench.store(name)
    tags = [f"account:{number}" for number in bench.workload.account_numbers(bench.count(5000, least=200))]
    latencies = []
    with stopwatch() as watch:
        for tag in tags:
            began = time.perf_counter()
            events = store.read_tag(tag)
            latencies.append(time.perf_counter() - began)
            expect(f"{name}: events of {tag}", MATCHES_PER_ACCOUNT, sum(tag in event.tags for event in events))
    sample = watch.rate(len(tags), latencies)
    return Sample(percentile_ms(latencies, 50) or 0.0, sample.cpu_us, sample.p50_ms, sample.p99_ms)
