"""How long does it take to read the newest 100 events of one type, without any tag, from a full log?

One caller in this process. The rare type has 100 events in the whole log (fewer in a small one), spread evenly: a store
without an index by type reads everything to find them. The common type has one event in 19.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from ..bench import HEADWATER, SQLITE, Bench
from ..measure import Case, Sample, expect, percentile_ms, stopwatch
from ..workload import COMMON_TYPES, RARE_TYPE

TITLE = "Reading by type alone, limit 100"
LIMIT = 100


def cases(bench: Bench) -> Iterator[Case]:
    """A rare and a common type."""
    for title, type in (("rare type", RARE_TYPE), ("common type", COMMON_TYPES[7])):
        runs = {name: partial(_read, bench, name, type) for name in (HEADWATER, SQLITE)}
        yield Case(title, "ms (p50)", runs, is_lower_better=True)


def _read(bench: Bench, name: str, type: str) -> Sample:
    store = bench.store(name)
    reads = bench.count(500, least=20)
    matches = min(LIMIT, bench.workload.rare_count() if type == RARE_TYPE else LIMIT)
    latencies = []
    with stopwatch() as watch:
        for _ in range(reads):
            began = time.perf_counter()
            events = store.read_type(type, LIMIT)
            latencies.append(time.perf_counter() - began)
            expect(f"{name}: events of {type}", matches, sum(event.type == type for event in events))
    sample = watch.rate(reads, latencies)
    return Sample(percentile_ms(latencies, 50) or 0.0, sample.cpu_us, sample.p50_ms, sample.p99_ms)
