"""How many events a second does one client append durably, in batches of 1, 100 and 1000, to a full log?

"one at a time": the client waits for each batch, so the bare disk writes and syncs each batch by itself. "8 in flight":
the client keeps 8 batches unanswered; the bare disk writes 8 with one fdatasync.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import HEADWATER, RAW, SQLITE, Bench
from ..measure import Aim, Case, Sample, expect, stopwatch
from ..stores.raw_file import frame_bytes

TITLE = "Durable appends, one client"
IN_FLIGHT = 8


def cases(bench: Bench) -> Iterator[Case]:
    """Batches of 1, 100, 1000 one at a time; batches of 1000 with 8 in flight."""
    aims = (Aim(SQLITE, 10), Aim(RAW, 0.4))
    yield _case(bench, "batches of 1, one at a time", 1, bench.count(2000), 1)
    yield _case(bench, "batches of 100, one at a time", 100, bench.count(400), 1)
    yield _case(bench, "batches of 1000, one at a time", 1000, bench.count(100), 1, aims)
    yield _case(bench, "batches of 1000, 8 in flight", 1000, bench.count(104, multiple=8, least=8), IN_FLIGHT, aims)


def _case(bench: Bench, title: str, size: int, batches: int, in_flight: int, aims: tuple[Aim, ...] = ()) -> Case:
    runs = {
        HEADWATER: partial(_append, bench, HEADWATER, size, batches, in_flight),
        SQLITE: partial(_append, bench, SQLITE, size, batches, in_flight),
        RAW: partial(_write, bench, size, batches, in_flight),
    }
    return Case(title, "events/s", runs, aims)


def _append(bench: Bench, name: str, size: int, batches: int, in_flight: int) -> Sample:
    store = bench.store(name)
    work = [bench.workload.fresh(size) for _ in range(batches)]
    before = store.head()
    with stopwatch() as watch:
        if in_flight == 1:
            for events in work:
                last = store.append(events)
        else:
            last = store.append_all(work, in_flight)
    expect(f"{name}: last number", before + size * batches, last)
    expect(f"{name}: head", last, store.head())
    return watch.rate(size * batches)


def _write(bench: Bench, size: int, batches: int, in_flight: int) -> Sample:
    frames = [frame_bytes(bench.workload.fresh(size)) for _ in range(batches)]
    with bench.raw_file(sum(map(len, frames))) as raw, stopwatch() as watch:
        for at in range(0, batches, in_flight):
            raw.write(frames[at : at + in_flight])
    return watch.rate(size * batches)
