"""How many commands a second (read two tags, append with a condition) do 1 and 8 clients achieve?

A command reads the 20 events of two accounts drawn at random, and appends one event of both unless something was
appended to either meanwhile; then it begins again. A home's server reads in its own copy, so that only the append goes
to the database; the recorder of `eventsourcing` reads there as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...measure import Aim, Case, Sample, stopwatch
from ..bench import EVENTSOURCING, HomesBench, labels

TITLE = "Read two tags, append under a condition"
CLIENTS = (1, 8)
PER_SECOND_MAX = 8000


def cases(bench: HomesBench) -> Iterator[Case]:
    """Each number of clients, each length of the way."""
    for round_trip_ms in bench.round_trips_ms:
        for clients in CLIENTS:
            names = labels(bench, round_trip_ms)
            runs = {name: partial(_command, bench, name, round_trip_ms, clients) for name in names}
            aims = (Aim(EVENTSOURCING, 5),) if EVENTSOURCING in names and not round_trip_ms else ()
            yield Case(f"{clients} client{'s' * (clients > 1)}, {round_trip_ms:g} ms", "commands/s", runs, aims)


def _command(bench: HomesBench, name: str, round_trip_ms: float, clients: int) -> Sample:
    writer = bench.writer(name, round_trip_ms)
    work = bench.commands(max(clients, int(PER_SECOND_MAX * bench.seconds)))
    with stopwatch() as watch:
        latencies = writer.command(clients, bench.seconds, work)
    return watch.rate(len(latencies), latencies)
