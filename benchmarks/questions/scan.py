"""How many events a second does a full scan read, with each complete event as a Python object?

One caller in this process, from the first to the last event of a full log; number and payload bytes are checked. The
page cache is warm.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import HEADWATER, SQLITE, Bench
from ..measure import Aim, Case, Sample, expect, stopwatch
from ..stores.store import Extent
from ..workload import DATA_BYTES

TITLE = "Full scan"


def cases(bench: Bench) -> Iterator[Case]:
    """One case."""
    runs = {name: partial(_scan, bench, name) for name in (HEADWATER, SQLITE)}
    yield Case("all events", "events/s", runs, (Aim("", 1_000_000),))


def _scan(bench: Bench, name: str) -> Sample:
    store = bench.store(name)
    head = store.head()
    with stopwatch() as watch:
        extent = store.scan()
    expect(f"{name}: scan", Extent(head, head * DATA_BYTES, head), extent)
    return watch.rate(extent.events)
