"""What does `headwater.decisions` cost beside the same decision by hand? `python -m benchmarks.decisions`

A seat of a course is taken: two tags are read, folded, decided, and one event appended under a condition, on a log on
disk in this process. By hand that is a query, a loop with the same event classes and decoders, and a condition. Both do
it in turn, in short slices, on courses of their own that have as many events; the CPU time is that of the whole
process, the log's threads included. Ratios are taken within a round; shown is their median, and the middle half.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import click
import msgspec

from headwater.core import AppendCondition, Event, EventLog, Query, QueryItem
from headwater.core.errors import AppendConditionFailed
from headwater.decisions import Decision, Projection, Tag, decide, event, write
from headwater.storage import Engine

from . import machine
from .measure import expect, quiet_collector

BY_HAND, TOOLKIT = "by hand", "headwater.decisions"
SEATS = 10**6


class Refused(Exception):
    """A rule of the course does not allow it."""


@event
class CourseDefined:
    course: Annotated[str, Tag]
    seats: int


@event
class SeatTaken:
    course: Annotated[str, Tag]
    student: Annotated[str, Tag]


_defined = msgspec.json.Decoder(CourseDefined)
_taken = msgspec.json.Decoder(SeatTaken)


def take_by_hand(log: EventLog, student: str, course: str) -> int:
    """As an application does it that has no library."""
    of_course, of_student = f"course:{course}", f"student:{student}"
    boundary = Query.of(
        QueryItem(("CourseDefined", "SeatTaken"), (of_course,)), QueryItem(("SeatTaken",), (of_student,))
    )
    while True:
        left: int | None = None
        courses: frozenset[str] = frozenset()
        reading = log.read(boundary)
        for stored in reading:
            if stored.type == "CourseDefined":
                left = _defined.decode(stored.data).seats
                continue
            taken = _taken.decode(stored.data)
            if of_course in stored.tags and left is not None:
                left -= 1
            if of_student in stored.tags:
                courses |= {taken.course}
        if not left or course in courses:
            raise Refused(course)
        data = msgspec.json.encode(SeatTaken(course, student))
        try:
            condition = AppendCondition(boundary, reading.head)
            return log.append([Event("SeatTaken", data, (of_course, of_student))], condition).last
        except AppendConditionFailed:
            continue


def seats_left(course: str) -> Projection[int | None]:
    return (
        Projection[int | None](None, tags={"course": course})
        .on(CourseDefined, lambda _, defined: defined.seats)
        .on(SeatTaken, lambda left, _: None if left is None else left - 1)
    )


def courses_of(student: str) -> Projection[frozenset[str]]:
    none = Projection(frozenset[str](), tags={"student": student})
    return none.on(SeatTaken, lambda courses, taken: courses | {taken.course})


def take_by_toolkit(log: EventLog, student: str, course: str) -> int:
    """The same, derived."""

    def rule(left: int | None, courses: frozenset[str]) -> SeatTaken:
        if not left or course in courses:
            raise Refused(course)
        return SeatTaken(course, student)

    return decide(log, Decision(seats_left(course), courses_of(student), rule)).last


CONTENDERS: dict[str, Callable[[EventLog, str, str], int]] = {BY_HAND: take_by_hand, TOOLKIT: take_by_toolkit}


@click.command()
@click.option("--rounds", default=40, show_default=True)
@click.option("--decisions", default=100, show_default=True, help="In a slice.")
@click.option("--events", "lengths", default=(3, 30, 300), show_default=True, multiple=True, help="Of a course.")
def main(rounds: int, decisions: int, lengths: tuple[int, ...]) -> None:
    """Print what a decision costs, by hand and by the toolkit."""
    parent = Path("build")
    parent.mkdir(exist_ok=True)
    for name, value in machine.describe(parent).items():
        click.echo(f"{name}: {value}")
    for length in lengths:
        with tempfile.TemporaryDirectory(prefix="decisions-", dir=parent) as path, Engine(path) as engine:
            _compare(engine.create("courses"), length, rounds, decisions)


def _compare(log: EventLog, length: int, rounds: int, decisions: int) -> None:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    with quiet_collector():
        for number in range(rounds + 1):
            for name in sorted(CONTENDERS, reverse=bool(number % 2)):
                cost = _slice(log, CONTENDERS[name], f"{name}-{number}", length, decisions)
                if number:  # the first round is for getting warm
                    taken[name].append(cost)
    for index, what in enumerate(("CPU", "elapsed")):
        by_hand, toolkit = ([each[index] for each in taken[name]] for name in (BY_HAND, TOOLKIT))
        low, median, high = _quartiles([one / other for one, other in zip(toolkit, by_hand, strict=True)])
        click.echo(
            f"{length:,} events, {what}: by hand {statistics.median(by_hand):,.1f} us, by the toolkit "
            f"{statistics.median(toolkit):,.1f} us, ratio {median:.2f} ({low:.2f} to {high:.2f})"
        )


def _slice(
    log: EventLog, take: Callable[[EventLog, str, str], int], name: str, length: int, decisions: int
) -> tuple[float, float]:
    """CPU and elapsed time of one decision, in us, on courses that have so many events each."""
    courses = [f"{name}-{number}" for number in range(decisions)]
    for course in courses:
        before = [SeatTaken(course, f"{course}-{number}") for number in range(length - 1)]
        log.append([write(each) for each in (CourseDefined(course, SEATS), *before)])
    head = log.head()
    cpu, elapsed = time.process_time(), time.perf_counter()
    for course in courses:
        take(log, f"student-{course}", course)
    spent = time.process_time() - cpu, time.perf_counter() - elapsed
    expect("events", head + decisions, log.head())
    return spent[0] / decisions * 1e6, spent[1] / decisions * 1e6


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    told = sorted(values)
    return told[len(told) // 4], statistics.median(told), told[len(told) * 3 // 4]


if __name__ == "__main__":
    main()
