"""How fast does an empty log behind a server grow to the full number of events, in batches of 1000 from one client?

Headwater over HTTP with its own client, UmaDB over gRPC with its own; one connection each, one batch after the other.
The samples are the slices of the fill, contenders in turn, so minimum and maximum show how a server slows down.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import Bench
from ..measure import Aim, Case, Sample
from ..served_bench import HEADWATER_SERVER, UMADB

TITLE = "Over HTTP: filling an empty log"


def cases(bench: Bench) -> Iterator[Case]:
    """One case: the fill that the other questions need anyway."""
    bench.served.fill()
    slices = {name: iter(samples) for name, samples in bench.served.fills.items()}

    def next_slice(name: str) -> Sample:
        return next(slices[name])

    runs = {name: partial(next_slice, name) for name in (HEADWATER_SERVER, UMADB)}
    rounds = len(bench.served.fills[UMADB])
    yield Case("batches of 1000, one client", "events/s", runs, (Aim(UMADB, 6),), rounds=rounds)
