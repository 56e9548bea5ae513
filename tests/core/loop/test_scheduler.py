"""Whose turn it is: what is dealt is CPU time, to users and then to their connections, and nobody starves."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable

import pytest

from headwater.core.loop.scheduler import BUDGET_S, STEP_S, BatchSizer, FairScheduler, Flow


class Loop:
    """A loop whose time is counted by hand: `cost` is spent by a step, and only then time goes by."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0
        self.due: list[Callable[[], None]] = []
        self.turns = FairScheduler(self.due.append, cpu=lambda: self.cpu, wall=lambda: self.wall)
        self.had: Counter[str] = Counter()
        self.order: list[str] = []

    def spend(self, seconds: float) -> None:
        self.cpu += seconds
        self.wall += seconds

    def scanner(self, name: str, flow: Flow, cost: float, steps: int | None = None) -> Callable[[], None]:
        """A step that asks for its next one, for ever or so often."""
        left = steps

        def step() -> None:
            nonlocal left
            self.spend(cost)
            self.had[name] += round(cost * 1e6)
            self.order.append(name)
            left = None if left is None else left - 1
            if left is None or left > 0:
                self.turns.soon(flow, step)

        return step

    def scan(self, name: str, user: str, cost: float = STEP_S, steps: int | None = None) -> Flow:
        flow = self.turns.flow(user, "127.0.0.1")
        self.turns.soon(flow, self.scanner(name, flow, cost, steps))
        return flow

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            due, self.due[:] = list(self.due), []
            for callback in due:
                callback()


def test_one_turn_of_the_loop_has_one_budget_whatever_waits() -> None:
    loop = Loop()
    for number in range(100):
        loop.scan("all", f"user-{number}")
    for _ in range(10):
        before = loop.cpu
        loop.turn()
        assert loop.cpu - before <= BUDGET_S + STEP_S
        assert len(loop.due) == 1


def test_users_have_equal_shares_whatever_the_number_of_their_connections() -> None:
    loop = Loop()
    for _ in range(100):
        loop.scan("many", "mallory")
    loop.scan("one", "alice")
    loop.turn(500)
    assert loop.had["one"] == pytest.approx(loop.had["many"], rel=0.05)


def test_connections_of_one_user_have_equal_shares_whatever_the_number_of_their_links() -> None:
    loop = Loop()
    flow = loop.scan("links", "alice")
    for _ in range(61):
        loop.turns.soon(flow, loop.scanner("links", flow, STEP_S))
    loop.scan("single", "alice")
    loop.turn(500)
    assert loop.had["single"] == pytest.approx(loop.had["links"], rel=0.05)


def test_what_is_dealt_is_time_and_not_the_number_of_steps() -> None:
    loop = Loop()
    loop.scan("dear", "mallory", cost=5 * STEP_S)
    loop.scan("cheap", "alice", cost=STEP_S / 10)
    loop.turn(2000)
    assert loop.had["cheap"] == pytest.approx(loop.had["dear"], rel=0.05)
    assert loop.order.count("cheap") == pytest.approx(50 * loop.order.count("dear"), rel=0.05)


def test_somebody_unknown_counts_by_address() -> None:
    loop = Loop()
    for name, peer in (("a", "10.0.0.1"), ("a", "10.0.0.1"), ("b", "10.0.0.2")):
        flow = loop.turns.flow("", peer)
        loop.turns.soon(flow, loop.scanner(name, flow, STEP_S))
    loop.turn(300)
    assert loop.had["a"] == pytest.approx(loop.had["b"], rel=0.05)


def test_somebody_unknown_counts_by_the_network_that_one_customer_has() -> None:
    turns = Loop().turns
    home = turns.flow("", "2001:db8:1:2::1").user
    assert turns.flow("", "2001:db8:1:2:ffff::9").user is home
    assert turns.flow("", "2001:db8:1:3::1").user is not home
    assert turns.flow("2001:db8:1:2::1", "").user is not home


def test_a_user_is_not_an_address_of_the_same_name() -> None:
    turns = Loop().turns
    assert turns.flow("10.0.0.1", "10.0.0.2").user is not turns.flow("", "10.0.0.1").user


def test_a_newcomer_goes_before_all_who_have_had_something() -> None:
    loop = Loop()
    for number in range(50):
        loop.scan("old", f"user-{number}")
    loop.turn(100)
    loop.order.clear()
    loop.scan("new", "newcomer", steps=1)
    loop.turn()
    assert loop.order[0] == "new"


@pytest.mark.parametrize(("user", "peer"), [("alice", "127.0.0.1"), ("", "192.0.2.{}")], ids=["of a user", "users"])
def test_an_endless_row_of_newcomers_keeps_nobody_waiting_for_ever(user: str, peer: str) -> None:
    loop, cost, waiting = Loop(), 0.0003, 8  # as clients that ask again and again, each time on a flow of its own
    old = loop.turns.flow(user, peer)
    loop.turns.soon(old, loop.scanner("old", old, STEP_S))
    number = 0
    while loop.cpu < 1:
        while number < loop.had["new"] / round(cost * 1e6) + waiting:
            number += 1
            flow = loop.turns.flow(user, peer.format(number))
            loop.turns.soon(flow, loop.scanner("new", flow, cost, steps=1))
        loop.turn()
    assert loop.had["old"] > loop.had["new"] / (waiting + 1) / 3


def test_nobody_saves_time_up_by_being_idle() -> None:
    loop = Loop()
    loop.scan("old", "alice")
    loop.turn(1000)
    loop.scan("late", "bob")
    loop.had.clear()
    loop.turn(100)
    assert loop.had["old"] == pytest.approx(loop.had["late"], rel=0.05)


def test_who_worked_alone_does_not_pay_for_it_when_others_come() -> None:
    loop = Loop()
    flow = loop.turns.flow("alice", "")
    for _ in range(1000):  # at once, as nobody waits
        loop.turns.now(flow, lambda: loop.spend(STEP_S))
        loop.wall += 1
    loop.turns.soon(flow, loop.scanner("old", flow, STEP_S))
    loop.scan("late", "bob")
    loop.turn(100)
    assert loop.had["old"] == pytest.approx(loop.had["late"], rel=0.05)


def test_who_comes_again_is_still_who_it_was() -> None:
    loop = Loop()
    loop.scan("steady", "alice")
    for _ in range(300):  # a new connection for each step
        loop.scan("again", "mallory", cost=5 * STEP_S, steps=1)
        gc.collect(0)  # what is gone is young; all of the heap, 300 times, takes minutes in a whole run
        loop.turn()
    assert loop.had["steady"] >= 0.9 * loop.had["again"]


def test_steps_of_one_connection_are_done_in_the_order_in_which_they_asked() -> None:
    loop = Loop()
    flow = loop.turns.flow("alice", "")
    for number in range(10):
        loop.turns.soon(flow, lambda number=number: loop.order.append(str(number)))  # type: ignore[misc]
    loop.turn()
    assert loop.order == [str(number) for number in range(10)]


def test_where_nobody_waits_a_step_is_done_at_once() -> None:
    loop = Loop()
    done: list[int] = []
    loop.turns.now(loop.turns.flow("alice", ""), lambda: done.append(1))
    assert (done, loop.due) == ([1], [])


def test_where_somebody_waits_nobody_is_served_at_once() -> None:
    loop = Loop()
    loop.scan("old", "mallory")
    done: list[int] = []
    loop.turns.now(loop.turns.flow("alice", ""), lambda: done.append(1))
    assert done == []
    loop.turn()
    assert done == [1]


def test_what_is_done_at_once_has_a_budget_too() -> None:
    loop = Loop()
    done: list[int] = []

    def step() -> None:
        loop.spend(STEP_S)
        done.append(1)

    flows = [loop.turns.flow(f"user-{number}", "") for number in range(100)]
    for flow in flows:
        loop.turns.now(flow, step)
    assert len(done) * STEP_S <= BUDGET_S + STEP_S
    loop.turn(100)
    assert len(done) == 100


def test_a_step_within_a_step_waits_so_that_each_pays_for_itself() -> None:
    loop = Loop()
    outer, inner = loop.turns.flow("alice", ""), loop.turns.flow("bob", "")
    loop.turns.now(outer, lambda: loop.turns.now(inner, lambda: loop.order.append("inner")))
    assert loop.order == []
    loop.turn()
    assert loop.order == ["inner"]


def test_a_step_that_fails_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    flow = loop.turns.flow("alice", "")
    loop.turns.soon(flow, lambda: 1 // 0)
    loop.turns.soon(flow, lambda: loop.order.append("next"))
    loop.turn()
    assert loop.order == ["next"]
    assert [record.message for record in caplog.records] == ["a step failed"]


def test_awaited_work_gives_its_answer_or_raises_what_it_raises() -> None:
    async def scenario() -> None:
        turns = FairScheduler()
        flow = turns.flow("alice", "")
        assert await turns.do(flow, lambda: 5) == 5
        with pytest.raises(ZeroDivisionError):
            await turns.do(flow, lambda: 1 // 0)
        turns.soon(flow, lambda: None)  # somebody waits: so does this
        waiting = asyncio.ensure_future(turns.do(flow, lambda: 6))
        assert await waiting == 6
        turns.soon(flow, lambda: None)
        with pytest.raises(ZeroDivisionError):
            await turns.do(flow, lambda: 1 // 0)

    asyncio.run(scenario())


def test_work_that_nobody_waits_for_any_more_is_not_done() -> None:
    async def scenario() -> None:
        loop, done = Loop(), list[int]()
        flow = loop.turns.flow("alice", "")
        loop.turns.soon(flow, lambda: None)
        waiting = asyncio.ensure_future(loop.turns.do(flow, lambda: done.append(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        loop.turn()
        assert (done, loop.turns.steps) == ([], 2)

    asyncio.run(scenario())


def test_a_step_is_as_much_as_takes_about_its_time() -> None:
    sizer = BatchSizer(most=256, first=16)
    assert sizer.size == 16
    for expected in (32, 64, 128, 256, 256):
        sizer.took(sizer.size, STEP_S / 10)
        assert sizer.size == expected
    sizer.took(256, 64 * STEP_S)
    assert sizer.size == 4
    sizer.took(4, 100 * STEP_S)
    assert sizer.size == 1
    sizer.took(0, STEP_S / 10)  # nothing was there: nothing is known
    sizer.took(1, STEP_S * 0.7)  # neither long nor short
    assert sizer.size <= 2
