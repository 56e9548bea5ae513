"""A decision that holds although others decide at the same time: the last seat of a course is sold once.

    python examples/decide.py [http://127.0.0.1:8080]

The rule needs what happened to one course and to one student, and nothing else: that is the boundary of the decision.
"""

import sys

from headwater.client import connect
from headwater.core import AppendCondition, Event, EventLog, Query, QueryItem
from headwater.core.errors import AppendConditionFailed

SEATS = 2


class Refused(Exception):
    """A rule of the course does not allow it."""


def subscribe(log: EventLog, student: str, course: str) -> int:
    """Subscribe a student to a course; answers the number of the event. Raises Refused."""
    boundary = Query.of(
        QueryItem(types=("StudentSubscribed",), tags=(f"course:{course}",)),
        QueryItem(types=("StudentSubscribed",), tags=(f"student:{student}",)),
    )
    while True:
        reading = log.read(boundary)
        events = list(reading)
        if any({f"student:{student}", f"course:{course}"} <= set(event.tags) for event in events):
            raise Refused(f"{student} has a seat in {course}")
        if sum(f"course:{course}" in event.tags for event in events) == SEATS:
            raise Refused(f"{course} is full")
        seat = Event("StudentSubscribed", tags=(f"course:{course}", f"student:{student}"))
        try:
            return log.append([seat], AppendCondition(boundary, after=reading.head)).last
        except AppendConditionFailed:
            pass  # somebody was faster: look again, and decide again


def main(url: str) -> None:
    """Three students want one of two seats."""
    with connect(url) as server:
        log = server.create("subscriptions")
        for student in ("ann", "bob", "ann", "cleo"):
            try:
                print(f"{student}: subscribed, event {subscribe(log, student, 'chess')}")
            except Refused as refused:
                print(f"{student}: refused, {refused}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:8080"]))
