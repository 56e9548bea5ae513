"""What users test with: given, when, then, and decisions that race in every way."""

from __future__ import annotations

import random

import pytest
from hypothesis import given as cases
from hypothesis import strategies as st

from headwater.decisions import Decision, Projection
from headwater.decisions.testing import assert_serializable, given, memory_log, races

from .courses import CourseDefined, Refused, SeatLeft, SeatTaken, define, leave, move, take

log = pytest.fixture(memory_log)


def test_given_when_then() -> None:
    (
        given(CourseDefined("go", 1))
        .when(take("ann", "go"))
        .then(SeatTaken("go", "ann"))
        .when(take("bob", "go"))
        .refused(Refused, "go is full")
        .when(leave("bob", "go"))
        .then_nothing()
        .when(leave("ann", "go"), key="k")
        .then(SeatLeft("go", "ann"))
        .when(leave("ann", "go"), key="k")
        .then(SeatLeft("go", "ann"))
    )


def test_what_is_not_as_expected_is_told() -> None:
    asked = given(CourseDefined("go", 1)).when(take("ann", "go"))
    with pytest.raises(
        AssertionError, match=r"got these events: SeatTaken\(course='go', student='ann'\); expected: none"
    ):
        asked.then_nothing()
    with pytest.raises(Refused, match="ann has a seat in go"):
        asked.then(SeatTaken("go", "ann"))
    with pytest.raises(AssertionError, match="with the message 'ann has a seat in go'; expected: 'full'"):
        asked.refused(Refused, "full")
    with pytest.raises(Refused):
        asked.refused(LookupError)
    with pytest.raises(AssertionError, match="expected a refusal, got these events: SeatLeft"):
        asked._scenario.when(leave("ann", "go")).refused(Refused)


def test_a_fixture_is_a_plain_function(log: object) -> None:
    assert log.head() == 0  # type: ignore[attr-defined]


def test_two_who_race_do_so_in_every_way() -> None:
    orders = [race.order for race in races(take("ann", "go"), take("bob", "go"), given=[CourseDefined("go", 2)])]
    assert sorted(orders) == [
        (0, 0, 1, 1),
        (0, 1, 0, 1, 1, 1),
        (0, 1, 1, 0, 0, 0),
        (1, 0, 0, 1, 1, 1),
        (1, 0, 1, 0, 0, 0),
        (1, 1, 0, 0),
    ]


def test_one_seat_is_taken_once_in_every_race() -> None:
    for race in races(take("ann", "go"), take("bob", "go"), given=[CourseDefined("go", 1)]):
        winners = [each for each in race.outcomes if not isinstance(each, Exception)]
        assert len(winners) == 1 and [(each.type, each.sequence_number) for each in race.stored] == [("SeatTaken", 2)]


students, courses = st.sampled_from(["ann", "bob"]), st.sampled_from(["go", "chess"])
commands = (
    st.builds(take, students, courses)
    | st.builds(leave, students, courses)
    | st.builds(move, students, courses, courses)
    | st.builds(define, courses, st.integers(0, 2))
)
histories = st.lists(
    st.builds(CourseDefined, courses, st.integers(0, 2)) | st.builds(SeatTaken, courses, students), max_size=4
)


@cases(commands, commands, histories)
def test_any_two_decisions_are_as_if_one_came_after_the_other(
    first: Decision[object], second: Decision[object], happened: list[object]
) -> None:
    assert assert_serializable(first, second, given=happened) >= 1


def test_three_decisions_are_as_if_one_came_after_the_other() -> None:
    raced = assert_serializable(*[take(each, "go") for each in ("ann", "bob", "cleo")], given=[CourseDefined("go", 2)])
    assert raced > 100


def test_one_command_that_comes_twice_is_stored_once_in_every_race() -> None:
    assert_serializable(take("ann", "go"), take("ann", "go"), given=[CourseDefined("go", 2)], key="k")
    for race in races(take("ann", "go"), take("ann", "go"), given=[CourseDefined("go", 2)], key="k"):
        assert race.outcomes == ((SeatTaken("go", "ann"),),) * 2 and len(race.stored) == 1


def test_a_rule_that_looks_elsewhere_is_found() -> None:
    elsewhere: list[int] = []

    def rule(count: int) -> CourseDefined:
        elsewhere.append(count)
        return CourseDefined("go", len(elsewhere))

    peeking = Decision(Projection(0, tags={"course": "go"}).on(CourseDefined, lambda n, _: n + 1), rule)
    with pytest.raises(AssertionError, match="lead to a result that no order of the decisions produces"):
        assert_serializable(peeking, peeking)


def test_too_many_ways_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.decisions.testing.INTERLEAVINGS_MAX", 3)
    with pytest.raises(ValueError, match="2 decisions can interleave in more than 3 ways; use fewer decisions"):
        list(races(take("ann", "go"), take("bob", "go"), given=[CourseDefined("go", 1)]))


def test_pauses_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: 1e9)
    assert assert_serializable(take("ann", "go"), take("bob", "go"), given=[CourseDefined("go", 2)]) == 6
