"""How long does it take to drop a quarter of a full log?

Rounds drop one quarter after the other; what is left must begin exactly there and be read whole. Headwater moves a
mark, durably, and unlinks whole segments soon after. SQLite deletes events and postings in one transaction; its file
keeps its size. This question comes last: it leaves a smaller log behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import HEADWATER, SQLITE, Bench
from ..measure import Case, Sample, expect, stopwatch
from ..stores.store import Extent
from ..workload import DATA_BYTES

TITLE = "Trimming a quarter of a full log"


def cases(bench: Bench) -> Iterator[Case]:
    """One case of three rounds."""
    runs = {name: partial(_trim, bench, name, iter((1, 2, 3))) for name in (HEADWATER, SQLITE)}
    yield Case("a quarter", "s", runs, is_lower_better=True, rounds=3)


def _trim(bench: Bench, name: str, quarters: Iterator[int]) -> Sample:
    store = bench.store(name)
    head = store.head()
    below = bench.workload.total * next(quarters) // 4
    with stopwatch() as watch:
        first = store.trim(below)
    expect(f"{name}: first retained", below, first)
    left = head - below + 1
    expect(f"{name}: scan after the trim", Extent(left, left * DATA_BYTES, head), store.scan())
    return Sample(watch.seconds)
