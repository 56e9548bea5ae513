"""How many single appends a second do 1, 8 and 64 clients achieve, if each is committed before it is acknowledged?

With no way to the database, and with one that takes 1 and 5 ms to and fro. A home commits together whatever waits; the
recorder of `eventsourcing` commits each append by itself, on a connection of its own. Beside them, with no way at all:
Headwater in a directory of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...measure import Aim, Case, Sample, expect, stopwatch
from ..bench import EVENTSOURCING, HomesBench, labels

TITLE = "One event per append"
CLIENTS = (1, 8, 64)
PER_SECOND_MAX = 15_000
"""So many are prepared for each second; whoever is quicker ends sooner."""


def cases(bench: HomesBench) -> Iterator[Case]:
    """Each number of clients, each length of the way."""
    for round_trip_ms in bench.round_trips_ms:
        for clients in CLIENTS:
            runs = {
                name: partial(_append, bench, name, round_trip_ms, clients) for name in labels(bench, round_trip_ms)
            }
            aims = (Aim("", 8000),) if clients == 64 and not round_trip_ms else ()
            title = f"{clients} client{'s' * (clients > 1)}, {round_trip_ms:g} ms"
            yield Case(title, "appends/s", runs, aims)


def _append(bench: HomesBench, name: str, round_trip_ms: float, clients: int) -> Sample:
    writer = bench.writer(name, round_trip_ms)
    work = bench.singles(max(clients, int(PER_SECOND_MAX * bench.seconds)))
    before = writer.head()
    with stopwatch() as watch:
        latencies = writer.append(clients, bench.seconds, work)
    if name != EVENTSOURCING:  # it gives numbers away where it waits for a lock
        expect(f"{name}: head", before + len(latencies), writer.head())
    return watch.rate(len(latencies), latencies)
