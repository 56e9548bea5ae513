"""Registered reliable consumers: positions, epochs, fencing."""

from __future__ import annotations

import pytest

from headwater.core import Consumer, EventLog
from headwater.core.errors import ConsumerFenced, ConsumerNotFound, InvalidInput, InvalidPosition

from ..builders import fill, refusal
from .conftest import LogFactory, ManualClock


@pytest.fixture
def five(log: EventLog) -> EventLog:
    fill(log, 5)
    return log


def test_a_new_consumer_starts_at_the_head(five: EventLog, clock: ManualClock) -> None:
    expected = Consumer("spark", "archiver", 5, 1, clock.now, clock.now)
    assert five.register_consumer("spark", "archiver") == expected
    assert five.consumers() == [expected]


@pytest.mark.parametrize("after", [0, 3, 5])
def test_a_new_consumer_starts_where_it_asks(five: EventLog, after: int) -> None:
    assert five.register_consumer("spark", "archiver", after=after).acknowledged == after


@pytest.mark.parametrize("after", [-1, 6])
def test_a_consumer_cannot_start_outside_the_log(five: EventLog, after: int) -> None:
    with refusal(InvalidPosition(f"expected 0 to the head 5, got {after}", "after")):
        five.register_consumer("spark", "archiver", after=after)
    assert five.consumers() == []


def test_registering_again_takes_over_and_keeps_the_position(five: EventLog, clock: ManualClock) -> None:
    first = five.register_consumer("spark", "archiver", after=2)
    clock.now += 7
    second = five.register_consumer("spark", "archiver", after=4)
    assert second == Consumer("spark", "archiver", 2, 2, first.registered_at, clock.now)


def test_acknowledging_moves_forward_only(five: EventLog, clock: ManualClock) -> None:
    five.register_consumer("spark", "archiver", after=0)
    clock.now += 9
    assert five.acknowledge("spark", "archiver", 3).acknowledged == 3
    assert five.acknowledge("spark", "archiver", 1).acknowledged == 3
    assert five.acknowledge("spark", "archiver", 3).seen_at == clock.now
    assert five.acknowledge("spark", "archiver", 5).acknowledged == 5
    assert [each.acknowledged for each in five.consumers()] == [5]


@pytest.mark.parametrize("number", [-1, 6, 10**18])
def test_what_is_not_there_cannot_be_acknowledged(five: EventLog, number: int) -> None:
    five.register_consumer("spark", "archiver", after=2)
    with refusal(InvalidPosition(f"expected 0 to the head 5, got {number}", "sequence_number")):
        five.acknowledge("spark", "archiver", number)
    assert [each.acknowledged for each in five.consumers()] == [2]


def test_an_older_epoch_is_fenced_off(five: EventLog) -> None:
    old = five.register_consumer("spark", "archiver", after=0)
    new = five.register_consumer("spark", "archiver")
    with refusal(ConsumerFenced("spark", "archiver", old.epoch, new.epoch)):
        five.acknowledge("spark", "archiver", 2, epoch=old.epoch)
    assert five.acknowledge("spark", "archiver", 1, epoch=new.epoch).acknowledged == 1
    assert five.acknowledge("spark", "archiver", 2).acknowledged == 2


def test_a_reset_moves_both_ways_and_keeps_the_epoch(five: EventLog) -> None:
    registered = five.register_consumer("spark", "archiver", after=3)
    assert five.reset_consumer("spark", "archiver", 1).acknowledged == 1
    assert five.reset_consumer("spark", "archiver", 5).acknowledged == 5
    assert five.reset_consumer("spark", "archiver", 0).epoch == registered.epoch


@pytest.mark.parametrize("after", [-1, 6])
def test_a_reset_stays_inside_the_log(five: EventLog, after: int) -> None:
    five.register_consumer("spark", "archiver", after=3)
    with refusal(InvalidPosition(f"expected 0 to the head 5, got {after}", "after")):
        five.reset_consumer("spark", "archiver", after)


def test_an_unregistered_consumer_is_forgotten(five: EventLog) -> None:
    five.register_consumer("spark", "archiver", after=2)
    five.unregister_consumer("spark", "archiver")
    assert five.consumers() == []
    assert five.register_consumer("spark", "archiver").acknowledged == 5


def test_an_unknown_consumer_is_not_found(five: EventLog) -> None:
    five.register_consumer("spark", "archiver")
    for owner, component in (("spark", "other"), ("other", "archiver"), ("archiver", "spark")):
        expected = ConsumerNotFound(owner, component)
        with refusal(expected):
            five.acknowledge(owner, component, 1)
        with refusal(expected):
            five.reset_consumer(owner, component, 1)
        with refusal(expected):
            five.unregister_consumer(owner, component)


def test_consumers_are_listed_by_owner_and_component(five: EventLog) -> None:
    for owner, component in (("b", "1"), ("a", "2"), ("a b", "0"), ("a", "10"), ("Ž", "馬/x?y=z&%#")):
        five.register_consumer(owner, component)
    listed = [(each.owner, each.component) for each in five.consumers()]
    assert listed == [("a", "10"), ("a", "2"), ("a b", "0"), ("b", "1"), ("Ž", "馬/x?y=z&%#")]
    assert five.acknowledge("Ž", "馬/x?y=z&%#", 5).acknowledged == 5
    five.unregister_consumer("Ž", "馬/x?y=z&%#")


@pytest.mark.parametrize(("owner", "component"), [("", "c"), ("o", ""), ("o" * 257, "c"), ("o", "c\n")])
def test_a_key_out_of_form_is_refused(five: EventLog, owner: str, component: str) -> None:
    with pytest.raises(InvalidInput, match="expected 1 to 256 characters") as caught:
        five.register_consumer(owner, component)
    assert caught.value.where == ("component" if owner == "o" else "owner")


def test_logs_do_not_share_consumers(log_factory: LogFactory) -> None:
    one, two = log_factory("one"), log_factory("two")
    one.register_consumer("spark", "archiver")
    assert two.consumers() == []
    with refusal(ConsumerNotFound("spark", "archiver")):
        two.acknowledge("spark", "archiver", 0)


def test_in_an_empty_log_a_consumer_stands_at_zero(log: EventLog) -> None:
    assert log.register_consumer("spark", "archiver").acknowledged == 0
    with refusal(InvalidPosition("expected 0 to the head 0, got 1", "sequence_number")):
        log.acknowledge("spark", "archiver", 1)
