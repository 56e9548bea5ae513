"""Trimming: exact, held back by consumers, and conditions stay exact over what was dropped."""

from __future__ import annotations

import pytest

from headwater.core import AppendCondition, AppendResult, ConditionFailure, EventLog, LogSettings, Query
from headwater.core.errors import AppendConditionFailed, ConditionNeedsTrimmedEvents, InvalidPosition, PositionTrimmed

from ..builders import event, fill, numbers, refusal, unless
from .conftest import LogFactory
from .kinds import Bench

NO_MATCH_EXPECTED, NEWER_MATCH, NO_MATCH_FOUND = ConditionFailure


@pytest.fixture
def ten(log_factory: LogFactory) -> EventLog:
    """Ten events, E1 to E10, all tagged `x:1`."""
    log = log_factory()
    fill(log, 10, "x:1")
    return log


def test_a_trim_drops_just_the_events_below(ten: EventLog) -> None:
    assert ten.trim(4) == 4
    assert numbers(ten.read()) == list(range(4, 11))
    assert numbers(ten.read(backwards=True)) == list(range(10, 3, -1))
    assert numbers(ten.read(Query.where(tags=["x:1"]))) == list(range(4, 11))
    assert numbers(ten.read(Query.where(types=["E3"]))) == []
    info = ten.info()
    assert (info.first_retained, info.events, info.head, sum(info.partition_events)) == (4, 7, 10, 7)


@pytest.mark.parametrize("below", [0, 1, 3, 4])
def test_a_trim_never_goes_back(ten: EventLog, below: int) -> None:
    ten.trim(4)
    assert ten.trim(below) == 4
    assert numbers(ten.read(limit=1)) == [4]


def test_everything_can_be_trimmed_and_the_numbers_go_on(ten: EventLog) -> None:
    assert ten.trim(11) == 11
    assert (list(ten.read()), ten.head(), ten.info().events, ten.info().first_retained) == ([], 10, 0, 11)
    assert list(ten.read(backwards=True)) == []
    assert ten.append([event()]) == AppendResult(11, 11)
    assert numbers(ten.read()) == [11]
    assert ten.info().first_retained == 11


def test_trimming_an_empty_log_changes_nothing(log: EventLog) -> None:
    assert (log.trim(0), log.trim(1)) == (1, 1)


@pytest.mark.parametrize("below", [-1, 12, 10**18])
def test_a_trim_beyond_the_head_is_refused(ten: EventLog, below: int) -> None:
    with refusal(InvalidPosition(f"expected 0 to 11 (the head + 1), got {below}", "below")):
        ten.trim(below)
    assert ten.info().first_retained == 1


def test_a_given_position_that_was_trimmed_is_an_error(ten: EventLog) -> None:
    ten.trim(4)
    for position in (1, 2, 3):
        with refusal(PositionTrimmed(position, 4)):
            ten.read(from_=position)
        with refusal(PositionTrimmed(position, 4)):
            ten.read(after=position - 1)
        with refusal(PositionTrimmed(position, 4)):
            ten.subscribe(after=position - 1)
    assert numbers(ten.read(from_=4, limit=1)) == numbers(ten.read(after=3, limit=1)) == [4]


def test_a_position_that_was_trimmed_is_an_error_backwards_too(ten: EventLog) -> None:
    ten.trim(4)
    with refusal(PositionTrimmed(3, 4)):
        ten.read(from_=3, backwards=True)
    with refusal(PositionTrimmed(3, 4)):
        ten.read(after=3, backwards=True)
    assert numbers(ten.read(from_=4, backwards=True)) == [4]
    assert numbers(ten.read(after=4, backwards=True)) == []


def test_a_position_in_a_log_that_was_trimmed_empty(ten: EventLog) -> None:
    ten.trim(11)
    with refusal(PositionTrimmed(10, 11)):
        ten.read(from_=10)
    assert numbers(ten.read(from_=11)) == numbers(ten.read(after=10)) == []


@pytest.mark.parametrize("backwards", [False, True])
def test_without_a_position_reading_begins_with_what_is_there(ten: EventLog, backwards: bool) -> None:
    ten.trim(9)
    assert numbers(ten.read(backwards=backwards)) == ([10, 9] if backwards else [9, 10])


def test_a_partition_read_knows_the_trim_too(log_factory: LogFactory) -> None:
    log = log_factory(partitions=2)
    for number in range(6):
        log.append([event()], partition=number % 2)
    log.trim(4)
    assert (numbers(log.read(partition=0)), numbers(log.read(partition=1))) == ([5], [4, 6])
    assert log.info().partition_events == (1, 2)


def test_consumers_hold_trimming_back(ten: EventLog) -> None:
    ten.register_consumer("spark", "archiver", after=3)
    ten.register_consumer("spark", "mirror", after=6)
    assert ten.trim(11) == 4
    ten.acknowledge("spark", "archiver", 8)
    assert ten.trim(11) == 7
    ten.unregister_consumer("spark", "mirror")
    assert ten.trim(8) == 8
    assert ten.trim(11) == 9
    ten.unregister_consumer("spark", "archiver")
    assert ten.trim(11) == 11


def test_a_trim_below_the_consumers_goes_only_as_far_as_asked(ten: EventLog) -> None:
    ten.register_consumer("spark", "archiver", after=9)
    assert ten.trim(5) == 5


def test_a_new_consumer_holds_back_what_comes(ten: EventLog) -> None:
    ten.register_consumer("spark", "archiver")
    fill(ten, 2)
    assert ten.trim(13) == 11


def test_a_consumer_set_back_does_not_bring_trimmed_events_back(ten: EventLog) -> None:
    ten.register_consumer("spark", "archiver", after=8)
    ten.trim(11)
    ten.reset_consumer("spark", "archiver", 2)
    assert ten.trim(11) == 9
    assert numbers(ten.read()) == [9, 10]


def test_conditions_stay_exact_over_trimmed_events(ten: EventLog) -> None:
    ten.append([event("Other", "y:1")])
    ten.trim(11)
    with refusal(AppendConditionFailed(NO_MATCH_EXPECTED, 1, 0)):
        ten.append([event()], unless(tags=["x:1"]))
    with refusal(AppendConditionFailed(NEWER_MATCH, 6, 5)):
        ten.append([event()], unless(tags=["x:1"], after=5))
    with refusal(AppendConditionFailed(NO_MATCH_EXPECTED, 7, 0)):
        ten.append([event()], unless(types=["E7"]))
    with refusal(AppendConditionFailed(NO_MATCH_EXPECTED, 3, 0)):
        ten.append([event()], unless(types=["E3", "E5"], tags=["x"]))
    with refusal(AppendConditionFailed(NO_MATCH_EXPECTED, 1, 0)):
        ten.append([event()], AppendCondition(Query.all()))
    with refusal(AppendConditionFailed(NO_MATCH_FOUND, None, 4)):
        ten.append([event()], unless(types=["E7", "E8"], tags=["x:2"], after=4, requires_match=True))
    assert ten.append([event()], unless(tags=["x:1"], after=10)) == AppendResult(12, 12)
    assert ten.append([event()], unless(types=["E7"], after=7, requires_match=True)) == AppendResult(13, 13)


def test_a_log_without_history_says_that_it_cannot_know(log_factory: LogFactory) -> None:
    log = log_factory(keeps_history=False)
    fill(log, 10, "x:1")
    log.trim(6)
    with refusal(ConditionNeedsTrimmedEvents(0, 6)):
        log.append([event()], unless(tags=["z:1"]))
    with refusal(ConditionNeedsTrimmedEvents(4, 6)):
        log.append([event()], unless(tags=["x:1"], after=4))
    with refusal(AppendConditionFailed(NEWER_MATCH, 6, 5)):
        log.append([event()], unless(tags=["x:1"], after=5))
    assert log.append([event()], unless(tags=["x:1"], after=10)) == AppendResult(11, 11)


def test_a_log_without_history_knows_a_required_match_only_if_it_is_retained(log_factory: LogFactory) -> None:
    log = log_factory(keeps_history=False)
    fill(log, 10, "x:1")
    log.trim(6)
    assert log.append([event()], unless(types=["E8"], after=8, requires_match=True)) == AppendResult(11, 11)
    with refusal(ConditionNeedsTrimmedEvents(9, 6)):
        log.append([event()], unless(types=["E2"], after=9, requires_match=True))


def test_a_log_without_history_that_was_never_trimmed_knows_all(log_factory: LogFactory) -> None:
    log = log_factory(keeps_history=False)
    fill(log, 3)
    assert log.append([event()], unless(types=["E9"])) == AppendResult(4, 4)
    with refusal(AppendConditionFailed(NO_MATCH_FOUND, None, 2)):
        log.append([event()], unless(types=["E9"], after=2, requires_match=True))


def test_history_that_was_dropped_does_not_come_back(bench: Bench) -> None:
    log = bench.create("orders", LogSettings(keeps_history=False))
    fill(log, 10, "x:1")
    log.trim(6)
    bench.store.change("orders", LogSettings(keeps_history=True))
    log.trim(9)
    with refusal(ConditionNeedsTrimmedEvents(4, 6)):
        log.append([event()], unless(tags=["x:1"], after=4))
    with refusal(AppendConditionFailed(NEWER_MATCH, 6, 5)):
        log.append([event()], unless(tags=["x:1"], after=5))


def test_a_log_that_is_told_to_drop_its_history_forgets_what_was_trimmed(bench: Bench) -> None:
    log = bench.create("orders", LogSettings())
    fill(log, 10, "x:1")
    log.trim(6)
    bench.store.change("orders", LogSettings(keeps_history=False), drops_at_most=None)
    with refusal(ConditionNeedsTrimmedEvents(4, 6)):
        log.append([event()], unless(tags=["x:1"], after=4))
