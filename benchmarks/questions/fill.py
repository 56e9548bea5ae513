"""How fast does an empty log grow to the full number of events, in batches of 1000?

One client with 8 batches in flight. Each store commits whatever is queued together; the bare disk writes 8 batches
with one fdatasync. The samples are the slices of the fill, contenders in turn, so minimum and maximum show how a store
slows down as it grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..bench import HEADWATER, RAW, SQLITE, Bench
from ..measure import Aim, Case, Sample

TITLE = "Filling an empty log"


def cases(bench: Bench) -> Iterator[Case]:
    """One case: the fill that the other questions need anyway."""
    bench.fill()
    slices = {name: iter(samples) for name, samples in bench.fills.items()}

    def next_slice(name: str) -> Sample:
        return next(slices[name])

    yield Case(
        "batches of 1000, 8 in flight",
        "events/s",
        {name: partial(next_slice, name) for name in (HEADWATER, SQLITE, RAW)},
        aims=(Aim(SQLITE, 10), Aim(RAW, 0.4)),
        rounds=len(bench.fills[HEADWATER]),
    )
