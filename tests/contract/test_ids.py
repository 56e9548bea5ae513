"""Event ids: unique with their source; repeating a whole append is safe, anything less is a duplicate."""

from __future__ import annotations

import re

import pytest

from headwater.core import AppendResult, Event, EventLog, LogSettings
from headwater.core.errors import DuplicateEventId

from ..builders import event, numbers, refusal, unless
from .conftest import LogFactory
from .kinds import Bench

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_an_event_without_id_gets_a_uuid7_of_its_own(log: EventLog) -> None:
    log.append([event(), event(id="mine"), event()])
    ids = [each.id for each in log.read()]
    assert ids[1] == "mine"
    assert UUID7.fullmatch(ids[0]) and UUID7.fullmatch(ids[2]) and ids[0] != ids[2]


def test_a_repeated_append_answers_where_its_events_are(log: EventLog) -> None:
    events = [event("A", "x:1", id="1", data=b"one"), event("B", id="2", data=b"two")]
    log.append([event("first")])
    assert log.append(events) == AppendResult(2, 3, False)
    assert log.append(events) == AppendResult(2, 3, True)
    assert log.head() == 3


def test_a_part_of_an_append_that_is_one_block_is_recognised_too(log: EventLog) -> None:
    events = [event("A", id=str(number)) for number in range(5)]
    log.append(events)
    assert log.append(events[1:4]) == AppendResult(2, 4, True)


def test_a_block_may_span_several_appends(log: EventLog) -> None:
    log.append([event("A", id="1")])
    log.append([event("A", id="2")])
    assert log.append([event("A", id="1"), event("A", id="2")]) == AppendResult(1, 2, True)


def test_the_order_of_tags_does_not_make_a_retry_differ(log: EventLog) -> None:
    log.append([event("A", "x:1", "y:2", id="1")])
    assert log.append([event("A", "y:2", "x:1", "y:2", id="1")]) == AppendResult(1, 1, True)


def test_a_retry_is_recognised_by_id_type_data_and_tags_only(log: EventLog) -> None:
    log.append([event("A", id="1", attributes={"subject": "s"}, group_key="g")])
    assert log.append([event("A", id="1", attributes={"subject": "other"})]) == AppendResult(1, 1, True)
    assert [each.attributes for each in log.read()] == [{"subject": "s"}]


def test_a_retry_does_not_look_at_the_condition_again(log: EventLog) -> None:
    events, condition = [event("A", "seat:1", id="1")], unless(tags=["seat:1"])
    assert log.append(events, condition) == AppendResult(1, 1, False)
    assert log.append(events, condition) == AppendResult(1, 1, True)


def test_a_duplicate_is_told_before_a_failed_condition(log: EventLog) -> None:
    log.append([event("A", "seat:1", id="1")])
    with refusal(DuplicateEventId("1", "", 1, 0)):
        log.append([event("B", "seat:1", id="1")], unless(tags=["seat:1"]))


@pytest.mark.parametrize(
    "other",
    [event("B", "x:1", id="1", data=b"d"), event("A", "x:2", id="1", data=b"d"), event("A", "x:1", id="1", data=b"e")],
    ids=["type", "tags", "data"],
)
def test_the_same_id_with_another_content_is_a_duplicate(log: EventLog, other: Event) -> None:
    log.append([event("A", "x:1", id="1", data=b"d")])
    with refusal(DuplicateEventId("1", "", 1, 0)):
        log.append([other])
    assert log.head() == 1


def test_an_id_is_unique_with_its_source_only(log: EventLog) -> None:
    for source in ("", "urn:a", "urn:b"):
        log.append([event(id="1", source=source)])
    assert log.head() == 3
    with refusal(DuplicateEventId("1", "urn:b", 3, 0)):
        log.append([event("Other", id="1", source="urn:b")])
    assert log.append([event(id="1", source="urn:a")]) == AppendResult(2, 2, True)


def test_id_and_source_are_not_confused_with_each_other(log: EventLog) -> None:
    log.append([event(id="ab", source="c")])
    log.append([event(id="a", source="bc")])
    log.append([event(id="c", source="ab")])
    assert log.head() == 3


def test_an_id_twice_in_one_call_is_a_duplicate_of_itself(log: EventLog) -> None:
    with refusal(DuplicateEventId("1", "", None, 2)):
        log.append([event("A", id="1"), event("B", id="2"), event("A", id="1")])
    assert log.head() == 0


def test_an_id_twice_in_one_call_is_told_before_what_is_stored(log: EventLog) -> None:
    log.append([event("A", id="1")])
    with refusal(DuplicateEventId("1", "", None, 1)):
        log.append([event("A", id="1"), event("A", id="1")])


def test_an_append_that_overlaps_what_is_stored_is_refused_whole(log: EventLog) -> None:
    one, two, three = (event("A", id=id) for id in "123")
    log.append([one, two])
    with refusal(DuplicateEventId("2", "", 2, 0)):
        log.append([two, three])
    with refusal(DuplicateEventId("2", "", 2, 1)):
        log.append([three, two])
    assert log.head() == 2


def test_stored_events_in_another_order_are_no_retry(log: EventLog) -> None:
    one, two = event("A", id="1"), event("A", id="2")
    log.append([one, two])
    with refusal(DuplicateEventId("2", "", 2, 0)):
        log.append([two, one])


def test_stored_events_that_are_not_contiguous_are_no_retry(log: EventLog) -> None:
    one, two = event("A", id="1"), event("A", id="2")
    for each in (one, event(), two):
        log.append([each])
    with refusal(DuplicateEventId("1", "", 1, 0)):
        log.append([one, two])


def test_an_append_with_one_generated_id_is_never_a_retry(log: EventLog) -> None:
    log.append([event("A", id="1")])
    with refusal(DuplicateEventId("1", "", 1, 1)):
        log.append([event("A"), event("A", id="1")])


def test_a_refused_append_leaves_its_ids_free(log: EventLog) -> None:
    log.append([event("A", "x:1", id="1")])
    with pytest.raises(Exception, match="append condition failed"):
        log.append([event("B", id="2")], unless(tags=["x:1"]))
    with pytest.raises(DuplicateEventId):
        log.append([event("B", id="2"), event("B", id="1")])
    assert log.append([event("B", id="2")]) == AppendResult(2, 2, False)


def test_the_id_of_a_trimmed_event_is_free_again(log: EventLog) -> None:
    log.append([event("A", id="1")])
    log.append([event("A", id="2")])
    log.trim(2)
    assert log.append([event("A", id="1")]) == AppendResult(3, 3, False)
    assert log.append([event("A", id="2")]) == AppendResult(2, 2, True)


def test_a_horizon_bounds_how_far_ids_are_unique(log_factory: LogFactory) -> None:
    log = log_factory(id_horizon=3)
    for id in "1234":
        log.append([event("A", id=id)])
    assert log.append([event("A", id="2")]) == AppendResult(2, 2, True)
    assert log.append([event("A", id="1")]) == AppendResult(5, 5, False)
    with refusal(DuplicateEventId("1", "", 5, 0)):
        log.append([event("B", id="1")])
    assert numbers(log.read()) == [1, 2, 3, 4, 5]


def test_of_two_events_with_one_id_the_newest_counts_when_the_horizon_widens(bench: Bench) -> None:
    log = bench.create("orders", LogSettings(id_horizon=4))
    log.append([event("A", id="1")])
    log.append([event("A") for _ in range(4)])
    assert log.append([event("A", id="1")]) == AppendResult(6, 6, False)
    bench.store.change("orders", LogSettings(), drops_at_most=None)
    assert log.append([event("A", id="1")]) == AppendResult(6, 6, True)
    with refusal(DuplicateEventId("1", "", 6, 0)):
        log.append([event("B", id="1")])
