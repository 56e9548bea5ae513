"""Loads: many peers of one kind at once, which do what they can and then hold it.

    python -m tests.load.hostile.loads NAME PLACE

The process stands for other machines, as that of `attacks` does, and says what happened in the same way.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headwater.amqp.protocol.frames import AMQP_HEADER, SASL_HEADER

from ..place import LOG, Place
from . import peers
from .peers import Crowd, Peer

PUSH_S = 60.0
LARGE, HUGE = "large", "huge"
"""The log of 60 events of 1 MB, and the one with an event of 64 MiB."""
_ALL = b'{"query": "all"}'
FORMS = {
    "ndjson": "application/x-ndjson",
    "json": "application/json",
    "messagepack": "application/vnd.msgpack",
    "cloudevents": "application/cloudevents-batch+json",
    "arrow": "application/vnd.apache.arrow.stream",
}


class Load(NamedTuple):
    """Peers that come together."""

    make: Callable[[Place], Iterable[Peer]]
    are_strangers: bool = False


def _hundred(make: Callable[[Place], Peer], *, are_strangers: bool = False) -> Load:
    return Load(lambda place: [make(place) for _ in range(100)], are_strangers)


def _readers(count: int, log: str, form: str) -> Load:
    def make(place: Place) -> Iterable[Peer]:
        if form == "sse":
            path = f"/logs/{log}/subscribe?query=all&after=0"
            return [peers.http(place, path, accept="text/event-stream", method="GET")] * count
        if form == "push":
            return [peers.push(place, log, f"Bad{number}") for number in range(count)]
        if form == "amqp":
            return [peers.receiver(place, log) for _ in range(count)]
        return [peers.http(place, f"/logs/{log}/read", accept=FORMS[form], body=_ALL)] * count

    return Load(make)


_STRANGERS: dict[str, Callable[[Place], Peer]] = {
    "http": lambda place: peers.http(place, f"/logs/{LOG}/append", is_known=False),
    "futoin": lambda place: peers.http(place, f"/futoin/{LOG}", is_known=False),
    "websocket": lambda place: peers.websocket(place, LOG, is_known=False),
    "sasl": lambda place: peers.amqp_stranger(place, SASL_HEADER, 1),
    "amqp": lambda place: peers.amqp_stranger(place, AMQP_HEADER, 0),
    "flight": lambda place: peers.flight(place, is_known=False),
}
LOADS: dict[str, Load] = {
    "nobody": Load(lambda place: []),
    **{f"strangers-{name}": _hundred(make, are_strangers=True) for name, make in _STRANGERS.items()},
    **{f"readers-{form}": _readers(150, LARGE, form) for form in (*FORMS, "sse", "push")},
    "readers-amqp": _readers(20, LARGE, "amqp"),
    **{f"huge-{form}": _readers(50, HUGE, form) for form in (*FORMS, "sse", "push")},
    "huge-amqp": _readers(20, HUGE, "amqp"),
    "half-bodies": _hundred(lambda place: peers.http(place, "/logs/noise/append")),
    "half-calls": _hundred(lambda place: peers.http(place, "/futoin/noise")),
    "half-messages": _hundred(lambda place: peers.websocket(place, "noise")),
    "half-frames": _hundred(peers.half_frames),
    "half-batches": _hundred(lambda place: peers.flight(place, is_known=True)),
}
LOADS["all"] = Load(lambda place: [peer for load in list(LOADS.values())[:-1] for peer in list(load.make(place))[::5]])
DAILY = ("readers-ndjson", "strangers-websocket", "half-batches", "half-messages", "huge-amqp", "half-bodies")
"""One of each protocol, for every day. Strangers of Flight come by night: where no core is free, some more gets in."""


def main(name: str, place: str) -> None:
    os.nice(19)
    with Crowd(list(LOADS[name].make(Place(*json.loads(place))))) as crowd:
        crowd.push(PUSH_S)
        print("attacking", flush=True)
        sys.stdin.read()
        print(json.dumps({"tried": len(crowd.connections), "open": crowd.open, "sent": crowd.sent}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
