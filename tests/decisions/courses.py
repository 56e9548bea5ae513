"""A domain for the tests: courses, whose seats are sold once."""

from typing import Annotated

from headwater.decisions import Decision, Projection, Tag, event


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


@event
class SeatLeft:
    course: Annotated[str, Tag]
    student: Annotated[str, Tag]


def seats_left(course: str) -> Projection[int | None]:
    return (
        Projection[int | None](None, tags={"course": course})
        .on(CourseDefined, lambda _, defined: defined.seats)
        .on(SeatTaken, lambda left, _: None if left is None else left - 1)
        .on(SeatLeft, lambda left, _: None if left is None else left + 1)
    )


def courses_of(student: str) -> Projection[set[str]]:
    return (
        Projection.made_by(set[str], tags={"student": student})
        .on(SeatTaken, lambda courses, taken: courses | {taken.course})
        .on(SeatLeft, lambda courses, left: courses - {left.course})
    )


def define(course: str, seats: int) -> Decision[CourseDefined]:
    def rule(left: int | None) -> CourseDefined | None:
        return CourseDefined(course, seats) if left is None else None

    return Decision(seats_left(course), rule)


def take(student: str, course: str) -> Decision[SeatTaken]:
    def rule(left: int | None, courses: set[str]) -> SeatTaken:
        if left is None:
            raise Refused(f"there is no course {course}")
        if course in courses:
            raise Refused(f"{student} has a seat in {course}")
        if left < 1:
            raise Refused(f"{course} is full")
        return SeatTaken(course, student)

    return Decision(seats_left(course), courses_of(student), rule)


def leave(student: str, course: str) -> Decision[SeatLeft]:
    return Decision(courses_of(student), lambda courses: SeatLeft(course, student) if course in courses else None)


def move(student: str, course: str, to: str) -> Decision[SeatLeft | SeatTaken]:
    def rule(courses: set[str], left: int | None) -> list[SeatLeft | SeatTaken]:
        if course not in courses or not left:
            raise Refused(f"{student} cannot move from {course} to {to}")
        return [SeatLeft(course, student), SeatTaken(to, student)]

    return Decision(courses_of(student), seats_left(to), rule)
