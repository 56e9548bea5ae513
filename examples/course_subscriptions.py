"""Courses have a number of seats, and students a number of courses: a rule over two things at once.

    python examples/course_subscriptions.py [http://127.0.0.1:8080]

The classic of dynamic consistency boundaries (dcb.events): neither the course nor the student could decide alone.
"""

import sys
from typing import Annotated

from headwater.client import connect
from headwater.decisions import Decision, Projection, Tag, decide, event

COURSES_MAX = 2


class Refused(Exception):
    """A rule of the courses does not allow it."""


@event
class CourseDefined:
    course: Annotated[str, Tag]
    seats: int


@event
class SeatTaken:
    course: Annotated[str, Tag]
    student: Annotated[str, Tag]


def seats_left(course: str) -> Projection[int | None]:
    left = Projection[int | None](None, tags={"course": course})
    left = left.on(CourseDefined, lambda _, defined: defined.seats)
    return left.on(SeatTaken, lambda seats, _: None if seats is None else seats - 1)


def courses_of(student: str) -> Projection[frozenset[str]]:
    none = Projection(frozenset[str](), tags={"student": student})
    return none.on(SeatTaken, lambda courses, taken: courses | {taken.course})


def define(course: str, seats: int) -> Decision[CourseDefined]:
    return Decision(seats_left(course), lambda left: CourseDefined(course, seats) if left is None else None)


def take_seat(student: str, course: str) -> Decision[SeatTaken]:
    def rule(left: int | None, courses: frozenset[str]) -> SeatTaken:
        if not left:
            raise Refused(f"{course} has no seat")
        if course in courses:
            raise Refused(f"{student} has a seat in {course}")
        if len(courses) == COURSES_MAX:
            raise Refused(f"{student} has {COURSES_MAX} courses")
        return SeatTaken(course, student)

    return Decision(seats_left(course), courses_of(student), rule)


def main(url: str) -> None:
    """Students want seats."""
    with connect(url) as server:
        log = server.create("course-subscriptions")
        for course, seats in (("chess", 2), ("go", 3), ("whist", 4)):
            decide(log, define(course, seats))
        for wish in ("ann chess", "ann chess", "bob chess", "cleo chess", "ann go", "ann whist"):
            try:
                print(f"{wish}: event {decide(log, take_seat(*wish.split())).last}")
            except Refused as refused:
                print(f"{wish}: refused, {refused}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
