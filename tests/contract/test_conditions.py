"""Append conditions: what must not have happened."""

from __future__ import annotations

import pytest

from headwater.core import AppendCondition, AppendResult, ConditionFailure, EventLog, Query, QueryItem
from headwater.core.errors import AppendConditionFailed, InvalidPosition
from headwater.core.limits import SEQUENCE_NUMBER_MAX

from ..builders import event, fill, refusal, unless
from .conftest import LogFactory

NO_MATCH_EXPECTED, NEWER_MATCH, NO_MATCH_FOUND = ConditionFailure


@pytest.fixture
def hotel(log: EventLog) -> EventLog:
    """1 Booked room:1 guest:a - 2 Booked room:2 guest:b - 3 Left room:1 guest:a - 4 Cleaned room (no value)."""
    log.append([event("Booked", "room:1", "guest:a")])
    log.append([event("Booked", "room:2", "guest:b")])
    log.append([event("Left", "room:1", "guest:a"), event("Cleaned", "room")])
    return log


def holds(log: EventLog, condition: AppendCondition) -> bool:
    """Whether an append under the condition goes in (into a log that the test does not look at afterwards)."""
    try:
        log.append([event("Probe")], condition)
    except AppendConditionFailed:
        return False
    return True


def test_a_condition_holds_where_nothing_matches(hotel: EventLog) -> None:
    assert hotel.append([event("Booked", "room:3")], unless(tags=["room:3"])) == AppendResult(5, 5)


def test_a_match_where_none_is_expected_names_the_first_one(hotel: EventLog) -> None:
    with refusal(AppendConditionFailed(NO_MATCH_EXPECTED, 1, 0)):
        hotel.append([event("Booked", "room:1")], unless(tags=["room:1"]))


def test_a_newer_match_names_the_first_one_after_the_number(hotel: EventLog) -> None:
    with refusal(AppendConditionFailed(NEWER_MATCH, 3, 1)):
        hotel.append([event("Booked", "room:1")], unless(tags=["room:1"], after=1))
    assert hotel.append([event("Booked", "room:1")], unless(tags=["room:1"], after=3)) == AppendResult(5, 5)


@pytest.mark.parametrize(
    ("types", "tags", "after", "conflict"),
    [
        (["Booked"], [], 0, 1),
        (["Booked"], [], 1, 2),
        (["Booked"], [], 2, None),
        (["Left", "Booked"], [], 2, 3),
        (["Nothing"], [], 0, None),
        ([], ["room:2"], 0, 2),
        ([], ["room:1", "guest:a"], 1, 3),
        ([], ["room:1", "guest:b"], 0, None),
        ([], ["room"], 3, 4),
        ([], ["room"], 1, 2),
        ([], ["guest"], 3, None),
        ([], ["guest", "room:2"], 0, 2),
        ([], ["roo"], 0, None),
        ([], ["room:1"], 3, None),
        (["Left"], ["room:1"], 0, 3),
        (["Left"], ["room:2"], 0, None),
        (["Cleaned", "Left"], ["room"], 3, 4),
        (["booked"], [], 0, None),
        ([], ["Room:1"], 0, None),
    ],
)
def test_types_are_any_of_and_tags_all_of(
    hotel: EventLog, types: list[str], tags: list[str], after: int, conflict: int | None
) -> None:
    condition = unless(types=types, tags=tags, after=after)
    if conflict is None:
        assert hotel.append([event("Probe")], condition).first == 5
    else:
        reason = NEWER_MATCH if after else NO_MATCH_EXPECTED
        with refusal(AppendConditionFailed(reason, conflict, after)):
            hotel.append([event("Probe")], condition)


def test_items_are_alternatives_and_the_lowest_conflict_is_told(hotel: EventLog) -> None:
    query = Query.of(QueryItem(("Cleaned",)), QueryItem((), ("room:2",)), QueryItem(("Left",), ("guest:a",)))
    for after, conflict in ((0, 2), (1, 2), (2, 3), (3, 4)):
        reason = NEWER_MATCH if after else NO_MATCH_EXPECTED
        with refusal(AppendConditionFailed(reason, conflict, after)):
            hotel.append([event("Probe")], AppendCondition(query, after))
    assert hotel.append([event("Probe")], AppendCondition(query, 4)).first == 5


def test_a_condition_on_all_events_is_a_condition_on_the_head(hotel: EventLog) -> None:
    with refusal(AppendConditionFailed(NEWER_MATCH, 4, 3)):
        hotel.append([event("Probe")], AppendCondition(Query.all(), 3))
    assert hotel.append([event("Probe")], AppendCondition(Query.all(), 4)).first == 5


def test_an_empty_log_can_be_claimed_once(log: EventLog) -> None:
    assert holds(log, AppendCondition(Query.all()))
    with refusal(AppendConditionFailed(NO_MATCH_EXPECTED, 1, 0)):
        log.append([event("Probe")], AppendCondition(Query.all()))


def test_a_number_above_the_head_is_allowed_and_nothing_is_newer(hotel: EventLog) -> None:
    assert hotel.append([event("Probe")], AppendCondition(Query.all(), 1000)).first == 5
    assert hotel.append([event("Probe")], AppendCondition(Query.all(), SEQUENCE_NUMBER_MAX)).first == 6


@pytest.mark.parametrize("after", [-1, SEQUENCE_NUMBER_MAX + 1])
def test_a_number_out_of_range_is_refused(log: EventLog, after: int) -> None:
    problem = f"expected 0 to {SEQUENCE_NUMBER_MAX}, got {after}"
    with refusal(InvalidPosition(problem, "condition.after")):
        log.append([event()], AppendCondition(Query.all(), after))


def test_a_required_match_needs_a_number(log: EventLog) -> None:
    """Up to number 0 there is never anything: such a condition could not hold."""
    with refusal(InvalidPosition(f"expected 1 to {SEQUENCE_NUMBER_MAX}, got 0", "condition.after")):
        log.append([event()], unless(tags=["x:1"], requires_match=True))


def test_a_required_match_that_is_not_there_fails(hotel: EventLog) -> None:
    with refusal(AppendConditionFailed(NO_MATCH_FOUND, None, 4)):
        hotel.append([event("Probe")], unless(tags=["room:9"], after=4, requires_match=True))


def test_a_required_match_may_be_anywhere_up_to_the_number(hotel: EventLog) -> None:
    assert holds(hotel, unless(tags=["room:2"], after=2, requires_match=True))
    assert holds(hotel, unless(tags=["room:2"], after=4, requires_match=True))
    assert holds(hotel, unless(tags=["room:2"], after=900, requires_match=True))


def test_a_newer_match_comes_before_a_missing_one(hotel: EventLog) -> None:
    with refusal(AppendConditionFailed(NEWER_MATCH, 2, 1)):
        hotel.append([event("Probe")], unless(tags=["room:2"], after=1, requires_match=True))


def test_a_condition_does_not_look_at_the_events_of_its_own_append(log: EventLog) -> None:
    condition = unless(types=["Booked"])
    assert log.append([event("Booked", "room:1"), event("Booked", "room:2")], condition) == AppendResult(1, 2)


def test_a_condition_sees_every_partition(log_factory: LogFactory) -> None:
    log = log_factory(partitions=4)
    log.append([event("A", "x:1")], partition=3)
    with refusal(AppendConditionFailed(NO_MATCH_EXPECTED, 1, 0)):
        log.append([event("A", "x:1")], unless(tags=["x:1"]), partition=0)


def test_a_condition_may_ask_for_many_things(log: EventLog) -> None:
    fill(log, 3)
    items = [QueryItem((f"T{number}",), (f"k{number}:v",)) for number in range(255)]
    assert holds(log, AppendCondition(Query.of(*items, QueryItem(("Nothing",)))))
    assert not holds(log, AppendCondition(Query.of(*items, QueryItem(("E2",)))))


def test_a_tag_value_with_a_colon_is_one_value(log: EventLog) -> None:
    log.append([event("A", "time:10:15")])
    assert not holds(log, unless(tags=["time:10:15"]))
    assert not holds(log, unless(tags=["time"]))
    assert holds(log, unless(tags=["time:10"]))
