"""How many events came in and went out by which protocol: each room counts its own, here they are put side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ...amqp.connections.shared import AmqpStatistics
from ...core.loop.traffic import Traffic
from ..bulk.plane import BulkPlane

IN, OUT = "in", "out"


class Counted(NamedTuple):
    """What one protocol did since the server started."""

    events_in: int
    events_out: int


TrafficNow = Callable[[], Mapping[str, Counted]]
"""Answers what was counted until now, by protocol: of those that are served. Any thread may call it."""


def protocol_traffic(
    amqp: AmqpStatistics, http: Traffic, cne: Traffic, futoin: Traffic, bulk: BulkPlane | None
) -> TrafficNow:
    """What counts, from those who do."""

    def now() -> dict[str, Counted]:
        counted = {"amqp": Counted(amqp.messages_appended, amqp.messages_sent)}
        of_rooms = {"cne": cne, "futoin": futoin, "http": http}
        if bulk is not None:
            of_rooms["flight"] = bulk.traffic
        return counted | {name: Counted(each.events_in, each.events_out) for name, each in of_rooms.items()}

    return now
