"""Decisions that hold although others decide at the same time: dynamic consistency boundaries at work."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from headwater.core import EventLog, Query, SequencedEvent
from headwater.decisions import Decision, Projection, Tag, decide, event

from ..flights import ARRIVED, DEPARTED
from ..stage import Stage

TITLE = "Decisions"
TAIL = "N725MQ"
"""The aircraft that left New York most often in 2013."""
GATE = "JFK-B22"
ROUNDS = 200
PATIENCE_S = 60.0


@event(type=DEPARTED)
class Departed:
    """The tables have these as tags alone: an event of theirs is read without them."""

    tail: Annotated[str, Tag] = ""
    origin: Annotated[str, Tag] = ""
    dest: Annotated[str, Tag] = ""


@event(type=ARRIVED)
class Arrived:
    """See Departed."""

    tail: Annotated[str, Tag] = ""
    origin: Annotated[str, Tag] = ""
    dest: Annotated[str, Tag] = ""


@event
class GateAssigned:
    """An airline has the gate."""

    gate: Annotated[str, Tag]
    airline: str


@event
class GateReleased:
    """It is free again."""

    gate: Annotated[str, Tag]
    airline: str


class InTheAir(Exception):
    """An aircraft cannot depart: its last departure has no arrival yet."""

    def __init__(self, departure: SequencedEvent) -> None:
        self.departure = departure
        super().__init__(f"it is in the air since event {departure.sequence_number}")


def play(stage: Stage) -> None:
    """Ask, depart, race."""
    log = stage.log()
    _look_back(stage, log)
    _depart_twice(stage, log)
    _race_for_the_gate(stage)


def movements(tail: str) -> Query:
    """What this aircraft did, and nothing else in the log."""
    return Query.where(types=[DEPARTED, ARRIVED], tags=[f"tail:{tail}"])


def in_the_air(tail: str) -> Projection[SequencedEvent | None]:
    """Its departure, if it has not arrived since: the boundary of the next one."""
    newest = Projection[SequencedEvent | None](None, tags={"tail": tail}, newest_only=True)
    return newest.on_stored(Departed, lambda _, departed, stored: stored).on(Arrived, lambda _, arrived: None)


def nothing() -> None:
    """Nobody comes in between."""


def departure(tail: str, meanwhile: Callable[[], object] = nothing) -> Decision[Departed]:
    """Let an aircraft depart, unless it is in the air: InTheAir. `meanwhile` is what others do after the look."""

    def rule(last: SequencedEvent | None) -> Departed:
        if last is not None:
            raise InTheAir(last)
        meanwhile()
        return Departed(tail, origin="JFK", dest="BOS")

    return Decision(in_the_air(tail), rule)


def arrival(tail: str) -> Decision[Arrived]:
    """It arrives, wherever it was."""
    return Decision(lambda: Arrived(tail, origin="JFK", dest="BOS"))


def _look_back(stage: Stage, log: EventLog) -> None:
    started = time.perf_counter()
    history = list(log.read(movements(TAIL)))
    milliseconds = 1000 * (time.perf_counter() - started)
    stage.say(
        f"[bold]{TAIL}[/] moved {len(history):,} times in 2013; its whole history took {milliseconds:.0f} ms to read"
    )
    in_the_air: set[str] = set()
    twice = count = 0
    started = time.perf_counter()
    with stage.console.status("asking the whole year: which aircraft left twice without having arrived?"):
        for event in log.read(Query.where(types=[DEPARTED, ARRIVED])):
            count += 1
            tail = event.tags[-1]
            if event.type == ARRIVED:
                in_the_air.discard(tail)
            elif tail in in_the_air:
                twice += 1
            else:
                in_the_air.add(tail)
    seconds = time.perf_counter() - started
    stage.say(
        f"the records of the whole year ({count:,} movements, read and folded in {seconds:.1f} s) hold "
        f"[bold]{twice}[/] departures of aircraft that had not arrived"
    )
    stage.say("(diverted flights without arrival, and slips of the pen): nobody checked. From here on it is checked.")
    stage.note("events read over HTTP, and folded", f"{count:,} in {seconds:.1f} s ({count / seconds:,.0f}/s)")


def _depart_twice(stage: Stage, log: EventLog) -> None:
    stage.say(f"two dispatchers see {TAIL} on the ground, at the same moment, and let it depart")
    first: list[int] = []
    try:
        decide(log, departure(TAIL, meanwhile=lambda: first.append(decide(log, departure(TAIL)).last)))
        raise AssertionError("the second departure went in")
    except InTheAir as refused:
        (number,) = first
        assert refused.departure.sequence_number == number, f"{refused}, and not since {number}"
        stage.say(f"  the first: [green]departed[/], event {number:,}")
        stage.say(
            f"  the second: [red]refused[/] by the log; it looks again, and is refused by its own rule: {refused}"
        )
    decide(log, arrival(TAIL))
    stage.say(f"  after the arrival: [green]departed[/], event {decide(log, departure(TAIL)).last:,}")
    stage.note("second departures of one aircraft", "refused by a condition")


def _race_for_the_gate(stage: Stage) -> None:
    barrier = threading.Barrier(2)
    names = ("red", "blue")
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        racers = [pool.submit(_race, stage.log(), name, barrier) for name in names]
        won = Counter({name: racer.result() for name, racer in zip(names, racers, strict=True)})
    seconds = time.perf_counter() - started
    assigned = sum(1 for _ in stage.log().read(Query.where(types=["GateAssigned"], tags=[f"gate:{GATE}"])))
    assert won.total() == assigned == ROUNDS, f"{won.total()} wins and {assigned} assignments in {ROUNDS} rounds"
    stage.say(
        f"two airlines race for one gate, {ROUNDS} times: red won {won['red']}, blue won {won['blue']}, "
        f"[bold]never both, never none[/] ({seconds:.1f} s)"
    )
    stage.note("races of two clients for one gate", f"{ROUNDS}, each with one winner")


class GateTaken(Exception):
    """Another airline has it."""


def gate_holder() -> Projection[str]:
    """The airline that has the gate; nobody at first."""
    newest = Projection("", tags={"gate": GATE}, newest_only=True)
    return newest.on(GateAssigned, lambda _, its: its.airline).on(GateReleased, lambda _, its: "")


def _race(log: EventLog, name: str, barrier: threading.Barrier) -> int:
    """Race for the gate in every round; answers how often it was won."""
    won = 0
    for _ in range(ROUNDS):
        barrier.wait(PATIENCE_S)  # the gate is free
        has_seen = False

        def assign(holder: str) -> GateAssigned:
            nonlocal has_seen
            if not has_seen:
                has_seen = True
                barrier.wait(PATIENCE_S)  # both see it so
            if holder:
                raise GateTaken(holder)
            return GateAssigned(GATE, name)

        try:
            decide(log, Decision(gate_holder(), assign))
            is_mine = True
            won += 1
        except GateTaken:
            is_mine = False
        barrier.wait(PATIENCE_S)
        if is_mine:
            decide(log, Decision(lambda: GateReleased(GATE, name)))
    return won
