"""Decisions that hold although others decide at the same time: dynamic consistency boundaries at work."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from headwater.core import AppendCondition, Event, EventLog, Query, SequencedEvent
from headwater.core.errors import AppendConditionFailed

from ..flights import ARRIVED, DEPARTED
from ..stage import Stage

TITLE = "Decisions"
TAIL = "N725MQ"
"""The aircraft that left New York most often in 2013."""
GATE = "gate:JFK-B22"
ASSIGNED, RELEASED = "GateAssigned", "GateReleased"
ROUNDS = 200
PATIENCE_S = 60.0


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
    """The boundary of a departure: what this aircraft did, and nothing else in the log."""
    return Query.where(types=[DEPARTED, ARRIVED], tags=[f"tail:{tail}"])


def depart(log: EventLog, tail: str, *, known: tuple[SequencedEvent | None, int] | None = None) -> int:
    """Let an aircraft depart, unless it is in the air; answers the number of the departure.

    `known` is what the caller read before: the last movement, and the head that came with it. Raises InTheAir, and
    AppendConditionFailed where the aircraft moved since that was read.
    """
    last, head = known or last_movement(log, tail)
    if last is not None and last.type == DEPARTED:
        raise InTheAir(last)
    departure = Event(DEPARTED, b"{}", (f"tail:{tail}", "origin:JFK", "dest:BOS"))
    return log.append([departure], AppendCondition(movements(tail), after=head)).last


def last_movement(log: EventLog, tail: str) -> tuple[SequencedEvent | None, int]:
    """What the aircraft did last, and the head of the log: one request."""
    reading = log.read(movements(tail), backwards=True, limit=1)
    return next(reading, None), reading.head


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
    seen_by_one = last_movement(log, TAIL)
    seen_by_other = last_movement(log, TAIL)
    stage.say(f"two dispatchers see {TAIL} on the ground, at the same moment, and let it depart")
    number = depart(log, TAIL, known=seen_by_one)
    stage.say(f"  the first: [green]departed[/], event {number:,}")
    try:
        depart(log, TAIL, known=seen_by_other)
        raise AssertionError("the second departure went in")
    except AppendConditionFailed as refused:
        assert refused.conflict == number, f"the conflict is {refused.conflict}, not {number}"
        stage.say(f"  the second: [red]refused[/] by the log: {refused}")
    try:
        depart(log, TAIL)
        raise AssertionError("the third departure went in")
    except InTheAir as refused:
        stage.say(f"  the second, looking again: [red]refused[/] by its own rule: {refused}")
    log.append([Event(ARRIVED, b"{}", (f"tail:{TAIL}", "dest:BOS", "origin:JFK"))])
    stage.say(f"  after the arrival: [green]departed[/], event {depart(log, TAIL):,}")
    stage.note("second departures of one aircraft", "refused by a condition")


def _race_for_the_gate(stage: Stage) -> None:
    barrier = threading.Barrier(2)
    names = ("red", "blue")
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        racers = [pool.submit(_race, stage.log(), name, barrier) for name in names]
        won = Counter({name: racer.result() for name, racer in zip(names, racers, strict=True)})
    seconds = time.perf_counter() - started
    assigned = sum(1 for _ in stage.log().read(Query.where(types=[ASSIGNED], tags=[GATE])))
    assert won.total() == assigned == ROUNDS, f"{won.total()} wins and {assigned} assignments in {ROUNDS} rounds"
    stage.say(
        f"two airlines race for one gate, {ROUNDS} times: red won {won['red']}, blue won {won['blue']}, "
        f"[bold]never both, never none[/] ({seconds:.1f} s)"
    )
    stage.note("races of two clients for one gate", f"{ROUNDS}, each with one winner")


def _race(log: EventLog, name: str, barrier: threading.Barrier) -> int:
    """Race for the gate in every round; answers how often it was won."""
    gate = Query.where(types=[ASSIGNED, RELEASED], tags=[GATE])
    won = 0
    for _ in range(ROUNDS):
        barrier.wait(PATIENCE_S)  # the gate is free, and both see it
        head = log.read(gate, backwards=True, limit=1).head
        barrier.wait(PATIENCE_S)
        try:
            log.append([Event(ASSIGNED, name.encode(), (GATE,))], AppendCondition(gate, after=head))
            is_mine = True
            won += 1
        except AppendConditionFailed:
            is_mine = False
        barrier.wait(PATIENCE_S)
        if is_mine:
            log.append([Event(RELEASED, name.encode(), (GATE,))])
    return won
