"""The killed server begins again; all three are read, and must have every event once, in one order."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence

from headwater.core import SequencedEvent

from ..couriers import Courier
from ..machine import Machine
from ..stage import ReplicaStage

TITLE = "Every event once, in one order, at all three"
LOOK_S = 0.02
CAUGHT_UP_WITHIN_S = 60.0


def play(stage: ReplicaStage) -> None:
    """Start it, let it catch up, read all of them, and compare."""
    assert stage.dead is not None, "nobody was killed"
    started = time.perf_counter()
    stage.dead.start()
    stage.dead.await_role("replica")
    sent = [event.id for courier in stage.couriers for event in courier.events]
    for machine in stage.machines:
        _await_head(stage, machine, len(sent))
    stage.say(
        f"[bold]{stage.dead.name}[/] begins again, as a replica, with the copy that the kill left; it has what it "
        f"missed after {time.perf_counter() - started:.1f} s"
    )
    digests = {}
    for machine in stage.machines:
        events = list(stage.log_at(machine).read())
        check(sent, stage.couriers, events)
        digests[machine.name] = digest(events)
        role = "primary" if machine.is_ready("primary") else "replica"
        stage.say(f"  {machine.name} ({role}): {len(events):,} events, SHA-256 {digests[machine.name][:16]}")
    assert len(set(digests.values())) == 1, f"the servers have not the same: {digests}"
    stage.say(
        f"all [bold green]{len(sent):,}[/] are there once, at the numbers that were told, each client's in the order "
        f"in which it sent them; and the three servers have them in one order"
    )
    stage.note("events of clients of four protocols, at three servers", f"{len(sent):,}, each once, in one order")


def check(sent: Sequence[str], couriers: Iterable[Courier], events: Sequence[SequencedEvent]) -> None:
    """Raises AssertionError unless exactly these are there, at the numbers that were told, in each client's order."""
    place = {event.id: event.sequence_number for event in events}
    assert len(place) == len(events), f"{len(events) - len(place)} events are there twice"
    assert place.keys() == set(sent), f"{len(set(sent) ^ place.keys())} events are missing, or were never sent"
    for courier in couriers:
        _check_told(courier.told, place)
        order = [place[event.id] for event in courier.events]
        assert order == sorted(order), f"the events by {courier.protocol} are out of order"


def digest(events: Iterable[SequencedEvent]) -> str:
    """Of all that an event is, its number included, in the order of the log."""
    found = hashlib.sha256()
    for event in events:
        found.update(repr((event.sequence_number, event.id, event.source, event.type, event.tags)).encode())
        found.update(event.data)
    return found.hexdigest()


def _check_told(told: Mapping[str, int | None], place: Mapping[str, int]) -> None:
    for id, number in told.items():
        assert number in (None, place[id]), f"{id} was acknowledged as event {number}, and is {place[id]}"


def _await_head(stage: ReplicaStage, machine: Machine, head: int) -> None:
    log = stage.log_at(machine)
    deadline = time.monotonic() + CAUGHT_UP_WITHIN_S
    while (found := log.head()) < head:
        assert time.monotonic() < deadline, f"server {machine.name} has {found:,} of {head:,} events"
        time.sleep(LOOK_S)
