"""Events in and out by protocol, collected from the counters of all packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...amqp.connections.shared import AmqpStatistics
from ...core.loop.traffic import Traffic
from ..bulk.plane import BulkPlane

IN, OUT = "in", "out"


class Counted(NamedTuple):
    """The traffic of one protocol since the server started."""

    events_in: int
    events_out: int


TrafficNow = Callable[[], Mapping[str, Counted]]
"""Returns the traffic so far, by served protocol. Any thread may call it."""


def protocol_traffic(
    amqp: AmqpStatistics, http: Traffic, cne: Traffic, futoin: Traffic, bulk: BulkPlane | None
) -> TrafficNow:
    """The traffic from these counters."""

    def now() -> dict[str, Counted]:
        counted = {"amqp": Counted(amqp.messages_appended, amqp.messages_sent)}
        of_rooms = {"cne": cne, "futoin": futoin, "http": http}
        if bulk is not None:
            of_rooms["flight"] = bulk.traffic
        return counted | {name: Counted(each.events_in, each.events_out) for name, each in of_rooms.items()}

    return now
