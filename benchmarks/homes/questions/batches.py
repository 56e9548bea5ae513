"""How many events a second are appended in batches of 1000, with eight unanswered batches at a time?

An event has 256 bytes that do not compress, an id of 36 characters (which `eventsourcing` does not have) and two tags.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...measure import Aim, Case, Sample, expect, stopwatch
from ..bench import BATCH, EVENTSOURCING, HomesBench, labels

TITLE = "Batches of 1000"
BATCHES_PER_SECOND = {EVENTSOURCING: 10}
BATCHES_PER_SECOND_OF_HEADWATER = 60


def cases(bench: HomesBench) -> Iterator[Case]:
    """Each length of the way."""
    for round_trip_ms in bench.round_trips_ms:
        runs = {name: partial(_append, bench, name, round_trip_ms) for name in labels(bench, round_trip_ms)}
        yield Case(f"{round_trip_ms:g} ms", "events/s", runs, () if round_trip_ms else (Aim("", 100_000),))


def _append(bench: HomesBench, name: str, round_trip_ms: float) -> Sample:
    writer = bench.writer(name, round_trip_ms)
    count = max(8, int(bench.seconds * BATCHES_PER_SECOND.get(name, BATCHES_PER_SECOND_OF_HEADWATER)))
    batches = [bench.workload.fresh(BATCH) for _ in range(count)]
    before = writer.head()
    with stopwatch() as watch:
        writer.append_all(batches)
    expect(f"{name}: head", before + count * BATCH, writer.head())
    return watch.rate(count * BATCH)
