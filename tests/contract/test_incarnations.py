"""Logs that are deleted and made again: numbers never repeat, and cursors of the old one are told."""

from __future__ import annotations

import pytest

from headwater.core import AppendCondition, AppendResult, ConditionFailure, EventLog, LogSettings, Query
from headwater.core.errors import (
    AppendConditionFailed,
    ConsumerNotFound,
    PositionOfOtherIncarnation,
    PositionTrimmed,
)
from headwater.core.followers import NO_LAG, lag_of
from headwater.core.local import LocalLog

from ..builders import event, fill, numbers, refusal, unless
from .kinds import Bench


@pytest.fixture
def again(bench: Bench) -> EventLog:
    """A log made again under the name of one that had five events and a consumer."""
    log = bench.create("orders")
    for number in range(1, 6):
        log.append([event("Old", "x:1", id=str(number))])
    log.register_consumer("spark", "archiver")
    bench.store.delete("orders")
    return bench.create("orders")


def test_it_is_empty_and_goes_on_above(again: EventLog) -> None:
    info = again.info()
    assert (info.head, info.first_retained, info.events) == (5, 6, 0)
    assert (again.head(), list(again.read()), list(again.read(backwards=True))) == (5, [], [])
    assert again.append([event(), event()]) == AppendResult(6, 7)
    assert numbers(again.read()) == [6, 7]


def test_it_has_another_identity(bench: Bench) -> None:
    first = bench.create("orders").info().incarnation
    bench.store.delete("orders")
    assert bench.create("orders").info().incarnation != first


def test_its_old_positions_are_told(again: EventLog) -> None:
    fill(again, 2)
    incarnation = again.info().incarnation
    for position in (2, 3, 5):
        expected = PositionOfOtherIncarnation(position, incarnation, 6)
        with refusal(expected):
            again.read(from_=position)
        with refusal(expected):
            again.read(after=position - 1)
        with refusal(expected):
            again.subscribe(after=position - 1)
        with refusal(expected):
            again.read(from_=position, backwards=True)
        with refusal(expected):
            again.read(after=position, backwards=True)


def test_from_the_very_beginning_is_no_old_position(again: EventLog) -> None:
    fill(again, 2)
    assert numbers(again.read(from_=1)) == numbers(again.read(after=0)) == [6, 7]
    assert numbers(again.read(from_=6)) == numbers(again.read(after=5)) == [6, 7]
    with again.subscribe(after=0) as subscription:
        assert numbers(subscription.poll(20)) == [6, 7]


def test_once_trimmed_the_very_beginning_is_trimmed(again: EventLog) -> None:
    fill(again, 3)
    assert again.trim(8) == 8
    with refusal(PositionTrimmed(1, 8)):
        again.read(from_=1)
    with refusal(PositionTrimmed(7, 8)):
        again.read(from_=7)
    with refusal(PositionOfOtherIncarnation(5, again.info().incarnation, 6)):
        again.read(from_=5)


def test_a_trim_below_it_changes_nothing(again: EventLog) -> None:
    fill(again, 2)
    assert again.trim(3) == 6
    assert numbers(again.read()) == [6, 7]


def test_its_ids_conditions_and_consumers_begin_anew(again: EventLog) -> None:
    assert again.consumers() == []
    with refusal(ConsumerNotFound("spark", "archiver")):
        again.acknowledge("spark", "archiver", 5)
    assert again.append([event("New", "x:1", id="1")], unless(tags=["x:1"])) == AppendResult(6, 6, False)
    with refusal(AppendConditionFailed(ConditionFailure.NO_MATCH_EXPECTED, 6, 0)):
        again.append([event()], AppendCondition(Query.all()))
    assert again.append([event()], AppendCondition(Query.all(), 6)) == AppendResult(7, 7)


def test_a_log_without_history_knows_all_that_its_own_incarnation_had(bench: Bench) -> None:
    fill(bench.create("orders"), 3)
    bench.store.delete("orders")
    log = bench.create("orders", LogSettings(keeps_history=False))
    assert log.append([event()], unless(types=["Other"])) == AppendResult(4, 4)


def test_numbers_never_repeat_over_many_incarnations(bench: Bench) -> None:
    issued: list[int] = []
    for round in range(4):
        log = bench.create("orders")
        for _ in range(round):
            result = log.append([event(), event()])
            issued += range(result.first, result.last + 1)
        bench.store.delete("orders")
    assert issued == list(range(1, 13))


def test_a_log_that_was_trimmed_empty_before_it_was_deleted_goes_on_above_too(bench: Bench) -> None:
    log = bench.create("orders")
    fill(log, 4)
    log.trim(5)
    bench.store.delete("orders")
    assert bench.create("orders").append([event()]) == AppendResult(5, 5)


def test_a_decision_taken_on_an_earlier_incarnation_does_not_pass(again: EventLog) -> None:
    condition = AppendCondition(Query.where(types=["Nothing"]), after=2)
    with pytest.raises(PositionOfOtherIncarnation):
        again.append([event()], condition)
    head = again.head()  # of a log without events: the last number of the one before
    assert again.append([event()], AppendCondition(Query.all(), after=head)).first == head + 1


@pytest.mark.on(local=True)
def test_the_numbers_of_an_earlier_incarnation_are_no_events_that_wait(again: LocalLog) -> None:
    assert lag_of(again, 0, 0) == NO_LAG, "its head is above"
    again.append([event(), event()])
    assert [lag_of(again, after, 0).events for after in (0, 3, 5, 6, 7)] == [2, 2, 2, 1, 0]
    again.trim(7)
    assert lag_of(again, 0, 0).events == 1
