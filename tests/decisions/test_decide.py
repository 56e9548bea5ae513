"""Decisions over logs of every kind, on threads and on event loops: what is appended, refused, repeated."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest
from tests.night import night
from tests.server.running import RunningServer
from tests.waiting import WAIT_S_MAX

from headwater.client import connect
from headwater.core import AppendCondition, Event, Query, QueryItem, errors
from headwater.decisions import (
    Contended,
    Decision,
    InvalidDefinition,
    MemorySnapshots,
    Projection,
    Retries,
    Several,
    Tag,
    UnreadableEvent,
    decide,
    event,
    project,
    write,
)
from headwater.storage.memory import MemoryLog

from .conftest import Asked
from .courses import CourseDefined, Refused, SeatLeft, SeatTaken, courses_of, define, leave, move, seats_left, take

AT_ONCE = Retries(attempts=3, pause_s=0.0)


def test_a_decision_is_appended_and_answers_its_numbers(asked: Asked) -> None:
    assert asked.decide(define("go", 1)).event == CourseDefined("go", 1)
    decided = asked.decide(take("ann", "go"))
    assert decided.event == SeatTaken("go", "ann")
    assert (decided.first, decided.last, decided.head, decided.attempts, decided.was_stored) == (2, 2, 1, 1, False)
    assert [(each.type, each.data, each.tags) for each in asked.log.read(after=1)] == [
        ("SeatTaken", b'{"course":"go","student":"ann"}', ("course:go", "student:ann"))
    ]


def test_several_events_are_one_append_and_none_is_none(asked: Asked) -> None:
    for course in ("go", "chess"):
        asked.decide(define(course, 1))
    asked.decide(take("ann", "go"))
    moved = asked.decide(move("ann", "go", "chess"))
    assert moved.events == (SeatLeft("go", "ann"), SeatTaken("chess", "ann"))
    assert (moved.first, moved.last) == (4, 5)
    with pytest.raises(ValueError, match="too many values"):
        print(moved.event)
    nothing = asked.decide(leave("ann", "go"))
    assert (nothing.events, nothing.first, nothing.last, nothing.head) == ((), 0, 0, 5)
    assert asked.log.head() == 5
    assert asked.project(courses_of("ann")) == {"chess"}


def test_a_refusal_is_the_domains_own_and_passes_through_unchanged(asked: Asked) -> None:
    asked.decide(define("go", 1))
    asked.decide(take("ann", "go"))
    refusal = Refused("mine")

    def rule(left: int | None) -> SeatTaken:
        raise refusal

    with pytest.raises(Refused) as caught:
        asked.decide(Decision(seats_left("go"), rule))
    assert caught.value is refusal and caught.value.__cause__ is None
    with pytest.raises(Refused, match="go is full"):
        asked.decide(take("bob", "go"))
    assert asked.log.head() == 2


def test_a_command_that_comes_again_with_its_key_stores_nothing(asked: Asked) -> None:
    asked.decide(define("go", 2), key="a")
    first = asked.decide(take("ann", "go"), key="b", source="/desk", attributes={"subject": "seat"})
    again = asked.decide(take("ann", "go"), key="b", source="/desk")
    assert (again.events, again.first, again.last, again.was_stored) == (first.events, 2, 2, True)
    assert asked.log.head() == 2
    _, stored = asked.log.read()
    assert (stored.id, stored.source, dict(stored.attributes)) == ("b#0", "/desk", {"subject": "seat"})
    assert stored.tags == ("course:go", "idempotency-key:b", "student:ann")
    with pytest.raises(Refused, match="ann has a seat in go"):
        asked.decide(take("ann", "go"), key="c")


def test_a_command_is_recognised_although_its_events_are_outside_of_its_boundary(asked: Asked) -> None:
    asked.decide(define("go", 1))
    once = Decision(seats_left("go"), lambda left: SeatLeft("chess", f"{left} left"), emits=[SeatLeft])
    first = asked.decide(once, key="k")
    asked.decide(take("ann", "go"))
    again = asked.decide(once, key="k")
    assert (again.event, again.last, again.was_stored) == (SeatLeft("chess", "1 left"), first.last, True)


def test_a_command_without_projections_happens_once_by_its_key(asked: Asked) -> None:
    order: Decision[SeatTaken] = Decision(lambda: SeatTaken("go", "ann"), emits=[SeatTaken])
    assert [asked.decide(order, key="form-7").was_stored for _ in range(3)] == [False, True, True]
    assert [asked.decide(order).last for _ in range(2)] == [2, 3]


def test_who_cannot_be_read_back_is_refused_before_it_is_stored(asked: Asked) -> None:
    unread = Decision(courses_of("ann"), lambda _: CourseDefined("go", 1))
    with pytest.raises(
        InvalidDefinition, match=r"CourseDefined: it follows .* read back SeatLeft, SeatTaken; name it in"
    ):
        asked.decide(unread, key="k")
    assert asked.decide(unread).last == 1


def test_newest_first_reads_and_keys_go_together(asked: Asked) -> None:
    def number(course: str) -> Decision[CourseDefined]:
        newest = Projection(0, tags={"course": course}, newest_only=True).on(CourseDefined, lambda _, each: each.seats)
        return Decision(newest, lambda last: CourseDefined(course, last + 1))

    assert [asked.decide(number("go")).event.seats for _ in range(3)] == [1, 2, 3]
    assert [asked.decide(number("go"), key="k").event.seats for _ in range(3)] == [4, 4, 4]
    assert asked.decide(number("chess")).event.seats == 1


def test_long_boundaries_are_read_page_by_page(asked: Asked) -> None:
    asked.log.append([write(CourseDefined("go", 5000))])
    asked.log.append([write(SeatTaken("go", f"s{number}")) for number in range(2500)])
    assert asked.project(seats_left("go")) == 2500
    assert asked.decide(take("ann", "go")).last == 2502


def test_an_unreadable_event_is_an_error(asked: Asked) -> None:
    asked.log.append([Event("CourseDefined", b"[]", ("course:go",))])
    with pytest.raises(UnreadableEvent, match="event 1 of type 'CourseDefined'"):
        asked.decide(take("ann", "go"))


def test_reads_that_are_left_off_leave_nothing_behind(asked: Asked) -> None:
    asked.log.append([Event("CourseDefined", b"?", ("course:go",))])
    asked.log.append([write(SeatTaken("go", f"s{number}")) for number in range(3000)])
    for _ in range(70):  # more than a client has connections
        with pytest.raises(UnreadableEvent):
            asked.project(seats_left("go"))
    assert asked.decide(define("chess", 1)).last == 3002


def racing(asked: Asked, rounds: int, faster: Any) -> Decision[SeatTaken]:
    """A decision during which others append, so many times."""
    left_to_do = [faster] * rounds

    def rule(left: int | None, courses: set[str]) -> SeatTaken:
        if left_to_do:
            asked.log.append([write(left_to_do.pop())])
        return SeatTaken("go", f"with {left} left")

    return Decision(seats_left("go"), courses_of("ann"), rule)


def test_who_was_not_the_fastest_decides_again(asked: Asked) -> None:
    asked.log.append([write(CourseDefined("go", 9))])
    decided = asked.decide(racing(asked, 2, SeatTaken("go", "bob")), retries=AT_ONCE)
    assert (decided.event.student, decided.attempts, decided.last) == ("with 7 left", 3, 4)


def test_who_never_is_the_fastest_is_told_so(asked: Asked) -> None:
    asked.log.append([write(CourseDefined("go", 9))])
    with pytest.raises(
        Contended, match=r"3 attempts failed because of conflicting appends; the last error: .*event 4 matches"
    ) as caught:
        asked.decide(racing(asked, 3, SeatTaken("go", "bob")), retries=AT_ONCE)
    assert caught.value.failed.conflict == 4 and caught.value.attempts == 3
    assert asked.log.head() == 4


def test_what_others_do_elsewhere_disturbs_nobody(asked: Asked) -> None:
    asked.log.append([write(CourseDefined("go", 9))])
    assert asked.decide(racing(asked, 2, SeatTaken("chess", "bob")), retries=AT_ONCE).attempts == 1


def test_of_many_who_race_each_seat_goes_to_one(asked: Asked) -> None:
    asked.decide(define("go", 3))
    patient = Retries(attempts=50)

    def wants(student: int) -> bool:
        try:
            asked.decide(take(f"s{student}", "go"), retries=patient)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(wants, range(8)))
    assert sum(got) == 3
    assert asked.project(seats_left("go")) == 0


def test_one_command_sent_by_many_at_once_happens_once(asked: Asked) -> None:
    asked.decide(define("go", 3))
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(asked.decide, take("ann", "go"), key="k") for _ in range(4)]
        decided = [each.result() for each in sent]
    assert {each.last for each in decided} == {2} and asked.log.head() == 2
    assert [each.was_stored for each in decided].count(False) == 1


class Faltering:
    """A log whose answers are lost, or that fails, so many times."""

    def __init__(self, log: MemoryLog, error: Exception, *, is_stored: bool, times: int = 1) -> None:
        self._log, self._error, self._is_stored, self._times = log, error, is_stored, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, events: Any, condition: Any = None) -> Any:
        if not self._times:
            return self._log.append(events, condition)
        self._times -= 1
        if self._is_stored:
            self._log.append(events, condition)
        raise self._error


class Counted(Faltering):
    """A log that counts the events that it is read for, read by read."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log, ValueError(), is_stored=False, times=0)
        self.reads: list[int] = []

    def read(self, *arguments: Any, **more: Any) -> Any:
        found = self._log.read(*arguments, **more)
        events = list(found)
        self.reads.append(len(events))
        return _Read(events, found.head)


class _Read(list[Any]):
    """The events of a read, and the head that it began at."""

    def __init__(self, events: list[Any], head: int) -> None:
        super().__init__(events)
        self.head = head


def test_a_next_attempt_reads_only_what_came_since_the_last_one() -> None:
    log = MemoryLog()
    log.append([write(CourseDefined("go", 5000)), *[write(SeatTaken("go", f"s{each}")) for each in range(1000)]])
    counted: Any = Counted(log)
    kept = seats_left("go").with_snapshots(MemorySnapshots(), int | None, version="1")
    newest = Projection("", tags={"course": "go"}, newest_only=True).on(SeatTaken, lambda was, each: was + each.student)
    faster, seen = [SeatTaken("go", "bob"), SeatTaken("go", "eve")], list[Any]()

    def rule(left: int | None, again: int | None, last: str, courses: set[str]) -> SeatTaken:
        seen.append((left, again, last, set(courses)))
        courses.add("changed by the rule")
        if faster:
            log.append([write(faster.pop()), write(SeatTaken("chess", "ann"))])
        return SeatTaken("go", "ann")

    decision = Decision(seats_left("go"), kept, newest, courses_of("ann"), rule)
    assert decide(counted, decision, retries=Retries(attempts=3, pause_s=0.0)).attempts == 3
    assert counted.reads == [1001, 1001, 1, 2, 2]
    none = set[str]()
    assert seen == [(4000, 4000, "s999", none), (3999, 3999, "eve", {"chess"}), (3998, 3998, "bob", {"chess"})]


def test_a_next_attempt_begins_again_where_what_came_since_was_trimmed() -> None:
    log = MemoryLog()
    log.append([write(CourseDefined("go", 9)), write(SeatTaken("go", "bob"))])
    faster = [SeatTaken("go", "bob"), SeatTaken("go", "eve")]

    def rule(left: int | None) -> SeatLeft:
        if faster:
            log.append([write(each) for each in faster] + [write(CourseDefined("go", 3))])
            faster.clear()
            log.trim(5)
        return SeatLeft("go", f"{left} left")

    assert decide(log, Decision(seats_left("go"), rule), retries=AT_ONCE).event.student == "3 left"


PATIENT = Retries(patience_s=WAIT_S_MAX)


@pytest.mark.parametrize(
    ("before", "each", "retries"),
    [
        (10, 3, PATIENT),
        pytest.param(20_000, 10, PATIENT, marks=night),
        pytest.param(10, 10, Retries(), marks=night),
        pytest.param(20_000, 2, Retries(), marks=night),
    ],
)
def test_many_who_decide_about_the_same_are_all_served(
    tmp_path: Path, before: int, each: int, retries: Retries
) -> None:
    hits: Projection[int] = Projection(0, tags={"course": "go"}).on(SeatTaken, lambda count, _: count + 1)
    decision = Decision(hits, lambda count: SeatTaken("go", str(count)))
    writers = 24
    with RunningServer("--log", "courses", cwd=tmp_path) as served, connect(served.url) as server:
        for begin in range(0, before, 10_000):
            taken = [write(SeatTaken("go", str(number))) for number in range(begin, min(begin + 10_000, before))]
            server.log("courses").append(taken)
        together = threading.Barrier(writers)

        def work(_: int) -> None:
            with connect(served.url) as mine:
                together.wait(60)
                for _ in range(each):
                    decide(mine.log("courses"), decision, retries=retries)

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(work, range(writers)))
        students = [int(json.loads(event.data)["student"]) for event in server.log("courses").read()]
    assert students == list(range(before + writers * each))


def test_a_decision_is_not_given_up_while_its_patience_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("headwater.decisions.deciding.time.monotonic", lambda: now[0])
    log = MemoryLog()
    log.append([write(CourseDefined("go", 99))])
    left_to_do = list(range(30))

    def rule(left: int | None) -> SeatTaken:
        if left_to_do:
            log.append([write(SeatTaken("go", f"s{left_to_do.pop()}"))])
        return SeatTaken("go", "ann")

    decision = Decision(seats_left("go"), rule)
    no_pause = Retries(pause_s=0.0)
    assert decide(log, decision, retries=no_pause).attempts == 31
    left_to_do += [1, 2]
    now[0] = 100.0

    def slow(left: int | None) -> SeatTaken:
        now[0] += 5.0
        return rule(left)

    with pytest.raises(Contended, match="2 attempts failed because of conflicting appends"):
        decide(log, Decision(seats_left("go"), slow), retries=no_pause)


def test_who_says_how_often_or_how_long_is_not_given_more() -> None:
    assert not Retries().are_over(1000, 4.9) and Retries().are_over(2, 5.0)
    assert Retries(attempts=3).are_over(3, 0.0) and not Retries(attempts=3).are_over(2, 60.0)
    assert Retries(patience_s=1.0).are_over(1, 1.0) and not Retries(patience_s=9.0).are_over(99, 8.0)


def test_a_lost_answer_is_repaired_by_deciding_again_with_the_key() -> None:
    log = MemoryLog()
    faltering: Any = Faltering(log, ConnectionError("lost"), is_stored=True)
    with pytest.raises(ConnectionError, match="lost"):
        decide(faltering, define("go", 1), key="k")
    again = decide(faltering, define("go", 1), key="k")
    assert (again.events, again.last, again.was_stored, log.head()) == ((CourseDefined("go", 1),), 1, True, 1)


def test_an_id_of_somebody_else_is_an_error_and_no_loop() -> None:
    log = MemoryLog()
    log.append([Event("Foreign", id="k#0")])
    with pytest.raises(errors.DuplicateEventId, match="k#0"):
        decide(log, define("go", 1), key="k", retries=AT_ONCE)
    assert decide(log, define("go", 1), key="k", source="/desk").last == 2


def test_a_command_decided_differently_at_the_same_time_is_answered_with_what_was_first() -> None:
    log = MemoryLog()

    def rule(left: int | None) -> CourseDefined:
        if not log.head():
            log.append([write(CourseDefined("go", 1))._replace(id="k#0", tags=("course:go", "idempotency-key:k"))])
        return CourseDefined("go", 2)

    decided = decide(log, Decision(seats_left("go"), rule), key="k", retries=AT_ONCE)
    assert (decided.event.seats, decided.was_stored, decided.attempts) == (1, True, 2)


def test_the_condition_is_what_was_read_and_nothing_more() -> None:
    conditions: list[AppendCondition | None] = []
    log = MemoryLog()

    class Noting(Faltering):
        def append(self, events: Any, condition: Any = None) -> Any:
            conditions.append(condition)
            return log.append(events, condition)

    noting: Any = Noting(log, ValueError(), is_stored=False)
    decide(noting, define("go", 1))
    decide(noting, take("ann", "go"), key="k")
    types = ("CourseDefined", "SeatLeft", "SeatTaken")
    of_course, of_student = QueryItem(types, ("course:go",)), QueryItem(("SeatTaken", "SeatLeft"), ("student:ann",))
    keyed = QueryItem(tags=("idempotency-key:k",))
    assert conditions == [
        AppendCondition(Query.of(of_course), 0),
        AppendCondition(Query.of(of_course, of_student, keyed), 1),
    ]


def test_pauses_grow_and_are_bounded() -> None:
    retries = Retries(pause_s=0.01, pause_s_max=0.03)
    longest = [max(retries.pause_after(attempt) for _ in range(300)) for attempt in (1, 2, 3, 9)]
    assert retries.pause_after(5000) <= retries.pause_s_max
    assert all(
        low < each <= high
        for each, low, high in zip(longest, (0, 0.01, 0.02, 0.02), (0.01, 0.02, 0.03, 0.03), strict=True)
    )


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(errors.InvalidInput, match="503 characters; at most 502 are allowed"):
        decide(MemoryLog(), define("go", 1), key="k" * 503)


@pytest.mark.parametrize("given", [(), (3,), (3, lambda: None), (seats_left("go"),)])
def test_what_is_no_decision_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidDefinition, match="a decision needs projections and a rule"):
        Decision(*given)


@event
class Priced:
    product: Annotated[str, Tag]
    price: int


def bought(count: int) -> Decision[Priced]:
    prices = [
        Projection(0, tags={"product": str(each)}).on(Priced, lambda _, priced: priced.price) for each in range(count)
    ]
    return Decision(Several(prices), lambda known: Priced("0", sum(known)))


def test_a_boundary_that_no_query_can_ask_for_is_refused_when_the_decision_is_made() -> None:
    with pytest.raises(
        InvalidDefinition, match=r"the 257 projections need more than one query .* 257 items given, at most"
    ):
        bought(257)
    decision, log = bought(256), MemoryLog()
    with pytest.raises(
        errors.InvalidInput, match=r"key: the boundary of this decision leaves no room .* 257 items given"
    ):
        decide(log, decision, key="k")
    assert decide(log, decision).last == 1 and decide(log, bought(255), key="k").last == 2


def test_a_decision_is_used_by_many_threads() -> None:
    log = MemoryLog()
    decide(log, define("go", 9))
    taking, barrier = take("ann", "go"), threading.Barrier(4)

    def wants(_: int) -> str:
        barrier.wait(20)
        try:
            return str(decide(log, taking).event.student)
        except Refused as refused:
            return str(refused)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(wants, range(4))) == ["ann", *["ann has a seat in go"] * 3]
    assert project(log, seats_left("go")) == 8


def test_a_key_is_known_until_its_events_are_trimmed() -> None:
    log = MemoryLog()
    decide(log, define("go", 1), key="k")
    log.append([Event("Other")])
    assert decide(log, define("go", 1), key="k").was_stored
    log.trim(2)
    again = decide(log, define("go", 1), key="k")
    assert (again.last, again.was_stored) == (3, False)
