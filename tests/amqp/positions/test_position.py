"""How far a receiver has come, whatever the order in which it settles."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headwater.amqp.positions import position as module
from headwater.amqp.positions.position import Position

LATER = 1000.0
"""When nothing pauses any more."""


def sent(*numbers: int, after: int = 0) -> Position:
    position = Position(after)
    position.sent(numbers)
    return position


def test_it_is_below_the_lowest_delivery_without_a_final_outcome():
    position = sent(3, 5, 9)
    assert position.after == 2
    position.finish([5])
    assert position.after == 2
    position.finish([3])
    assert (position.after, position.open) == (8, 1)
    position.finish([9])
    assert (position.after, position.open) == (9, 0)


def test_what_is_sent_settled_or_does_not_match_moves_it_at_once():
    position = Position(4)
    position.passed(7)
    assert (position.after, position.cursor) == (7, 7)
    position.sent([8])
    position.passed(20)
    assert (position.after, position.cursor) == (7, 20)
    position.finish([8])
    assert position.after == 20
    position.passed(3)
    assert position.after == 20


def test_returned_deliveries_are_sent_again_lowest_first_with_their_failures():
    position = sent(1, 2, 3, 4)
    position.give_back([3], has_failed=False, now=0.0)
    position.give_back([2, 1], has_failed=True, now=0.0)
    assert [position.next_again(LATER) for _ in range(4)] == [(1, 1), (2, 1), (3, 0), None]
    position.give_back([2], has_failed=True, now=0.0)
    assert position.next_again(LATER) == (2, 2)
    assert position.after == 0


def test_what_is_given_back_a_third_time_pauses_and_twice_as_long_each_time():
    position, now, pauses = sent(1, 2), 0.0, []
    for _ in range(15):
        position.give_back([1], has_failed=False, now=now)
        at = position.next_at
        pauses.append(at - now if at is not None else 0.0)
        if at is not None:
            assert position.next_again(at - 0.001) is None
            now = at
        assert position.next_again(now) == (1, 0)
    assert pauses[:6] == pytest.approx([0, 0, 0.01, 0.02, 0.04, 0.08])
    assert pauses[11:] == pytest.approx([5.12, 10, 10, 10])
    position.give_back([2], has_failed=False, now=now)
    assert (position.next_again(now), position.next_at) == ((2, 0), None), "others do not pause for it"


def test_who_comes_next_is_sent_at_once_what_pauses():
    position = sent(1)
    for _ in range(3):
        position.give_back([1], has_failed=True, now=0.0)
        position.next_again(0.0)
    assert position.next_at is not None
    position.detached()
    assert (position.next_at, position.next_again(0.0)) == (None, (1, 3))
    position.give_back([1], has_failed=True, now=0.0)
    assert position.next_at == pytest.approx(0.02), "it was given back often all the same"


def test_outcome_that_comes_twice_counts_once():
    position = sent(1, 2)
    position.give_back([1], has_failed=True, now=0.0)
    position.give_back([1], has_failed=True, now=0.0)
    assert [position.next_again(LATER), position.next_again(LATER)] == [(1, 1), None]
    position.finish([1])
    position.finish([1])
    position.give_back([1], has_failed=True, now=0.0)
    assert (position.next_again(LATER), position.after) == (None, 1)


def test_delivery_that_is_settled_while_it_waits_to_be_sent_again_is_not():
    position = sent(1, 2)
    position.give_back([1, 2], has_failed=False, now=0.0)
    position.finish([1])
    assert [position.next_again(LATER), position.next_again(LATER)] == [(2, 0), None]


def test_after_a_detach_everything_open_is_sent_again():
    position = sent(1, 2, 3)
    position.give_back([2], has_failed=True, now=0.0)
    position.finish([3])
    position.detached()
    position.detached()
    assert [position.next_again(LATER) for _ in range(3)] == [(1, 0), (2, 1), None]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "OPEN_MAX", 3)
    position = sent(1, 2, 3)
    position.finish([2, 3])
    assert position.is_full, "the first one holds the others back"
    position.finish([1])
    assert not position.is_full


class PositionMachine(RuleBasedStateMachine):
    """Against a list of what every event has come to."""

    def __init__(self):
        super().__init__()
        self.position = Position(0)
        self.head = 0
        self.final: set[int] = set()
        self.in_flight: dict[int, int] = {}
        self.to_send_again: dict[int, int] = {}

    @rule(gap=st.integers(0, 2), count=st.integers(1, 3))
    def send(self, gap, count):
        self.final |= set(range(self.head + 1, self.head + gap + 1))
        numbers = range(self.head + gap + 1, self.head + gap + count + 1)
        self.head = numbers[-1]
        self.position.sent(numbers)
        self.in_flight |= dict.fromkeys(numbers, 0)

    @rule(count=st.integers(1, 3))
    def pass_over(self, count):
        self.final |= set(range(self.head + 1, self.head + count + 1))
        self.head += count
        self.position.passed(self.head)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), how=st.sampled_from(["final", "released", "failed"]))
    def settle(self, data, how):
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.in_flight)), min_size=1, unique=True))
        if how == "final":
            self.position.finish(chosen)
            self.final |= set(chosen)
        else:
            self.position.give_back(chosen, has_failed=how == "failed", now=0.0)
            self.to_send_again |= {number: self.in_flight[number] + (how == "failed") for number in chosen}
        for number in chosen:
            del self.in_flight[number]

    @rule()
    def send_again(self):
        expected = min(self.to_send_again.items(), default=None)
        assert self.position.has_returned or expected is None
        assert self.position.next_again(LATER) == expected
        if expected:
            self.in_flight[expected[0]] = self.to_send_again.pop(expected[0])

    @rule()
    def detach(self):
        self.position.detached()
        self.to_send_again |= self.in_flight
        self.in_flight = {}

    @invariant()
    def position_is_right(self):
        open_ = self.in_flight.keys() | self.to_send_again.keys()
        assert self.position.open == len(open_)
        assert self.position.after == (min(open_) - 1 if open_ else self.head)
        assert set(range(1, self.position.after + 1)) <= self.final


def test_position_is_right_in_whatever_order_outcomes_come():
    run_state_machine_as_test(PositionMachine)
