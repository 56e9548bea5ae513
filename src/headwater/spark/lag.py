"""How far a stream is behind each log, in events and in seconds: what its progress shows beside the heads.

A source in Python has no metrics of its own in Spark's progress, but what it reports as its latest offset stands there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..core.errors import LogNotFound, PositionOfOtherIncarnation, PositionTrimmed
from ..core.extent import Extent
from ..flight.client import BulkClient
from ..flight.wire import Ticket
from .positions import Offset
from .steps import events_left

NUMBERS_MAX = 1024
"""So many numbers are looked at for the first event that is left."""


def lag(client: BulkClient, reached: Offset, there: Mapping[str, Extent]) -> dict[str, float]:
    """What is left of the logs after the batches that were planned: how many events, and how old the oldest of them is.

    Events are counted before `query` and `partitions` leave any out. Trimmed events do not count.
    """
    left = {
        log: extent
        for log, extent in there.items()
        if log in reached and reached[log].incarnation == extent.incarnation and reached[log].position < extent.head
    }
    recorded = [
        found for log, extent in left.items() if (found := _recorded(client, log, reached[log].position, extent))
    ]
    seconds = max(0.0, time.time() - min(recorded) / 1000) if recorded else 0.0
    return {
        "events": sum(events_left(client, log, reached[log].position, extent) for log, extent in left.items()),
        "seconds": round(seconds, 3),
    }


def _recorded(client: BulkClient, log: str, after: int, extent: Extent) -> int | None:
    """When the first event after that number was recorded, in ms since 1970; None if it is not among the next ones."""
    upto = min(extent.head, after + NUMBERS_MAX)
    ticket = Ticket(log, after, upto, columns=("recorded_at",), incarnation=extent.incarnation)
    try:
        batch = next(client.read(ticket), None)
    except (PositionTrimmed, PositionOfOtherIncarnation, LogNotFound):  # since `there`: the next batch tells
        return None
    return None if batch is None or not batch.num_rows else batch.column(0)[0].cast("int64").as_py()
