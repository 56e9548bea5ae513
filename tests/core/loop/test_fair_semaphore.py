"""A few places: payers in turn, bounded, and none lost, whoever goes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from headwater.core.loop.fair_semaphore import FairSemaphore, NoRoom


class Visits:
    """Stays at the places, in the order in which they began; each lasts until it is told to end."""

    def __init__(self, places: int) -> None:
        self.semaphore = FairSemaphore(places)
        self.begun: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def visit(self, payer: str, name: str) -> asyncio.Task[None]:
        self.ends[name] = asyncio.Event()
        return asyncio.create_task(self._visit(payer, name))

    async def _visit(self, payer: str, name: str) -> None:
        async with self.semaphore.place(payer):
            self.begun.append(name)
            await self.ends[name].wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_so_many_at_a_time_and_payers_in_turn() -> None:
    async def scenario() -> None:
        visits = Visits(2)
        tasks = [visits.visit("busy", f"b{number}") for number in range(5)]
        await settled()
        tasks += [visits.visit("other", "o0"), visits.visit("other", "o1")]
        await settled()
        assert visits.begun == ["b0", "b1"]
        for name in ("b0", "b1", "b2", "o0"):
            visits.ends[name].set()
            await settled()
        assert visits.begun == ["b0", "b1", "b2", "o0", "b3", "o1"]
        for end in visits.ends.values():
            end.set()
        await asyncio.gather(*tasks)
        assert sorted(visits.begun) == sorted(visits.ends)

    asyncio.run(scenario())


def test_who_goes_is_passed_over_and_a_place_is_given_back_whatever_happens() -> None:
    async def scenario() -> None:
        visits = Visits(1)
        first, gone, last = (visits.visit("a", name) for name in ("first", "gone", "last"))
        await settled()
        gone.cancel()
        first.cancel()
        await settled()
        assert visits.begun == ["first", "last"]
        last.cancel()
        await settled()
        again = visits.visit("b", "again")
        await settled()
        assert visits.begun[-1] == "again"
        again.cancel()
        await asyncio.gather(first, gone, last, again, return_exceptions=True)

    asyncio.run(scenario())


def test_a_place_that_is_given_to_somebody_who_goes_in_that_moment_is_passed_on() -> None:
    async def scenario() -> None:
        semaphore = FairSemaphore(1)
        await semaphore.enter("a")
        gone, last = (asyncio.create_task(semaphore.enter(payer)) for payer in ("b", "c"))
        await settled()
        semaphore.leave()
        gone.cancel()
        await settled()
        assert gone.cancelled() and last.done()

    asyncio.run(scenario())


# Bounds


class World:
    """Two places, visits that take as long as the test says, and what became of them."""

    def __init__(self, waiting_max: int, of_payer_max: int) -> None:
        self.semaphore = FairSemaphore(2, waiting_max=waiting_max, waiting_of_payer_max=of_payer_max)
        self.begun: list[str] = []
        self.refused: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.running: list[asyncio.Event] = []

    async def ask(self, payer: str, name: str) -> None:
        self.tasks[name] = asyncio.create_task(self._visit(payer, name))
        await asyncio.sleep(0)

    async def _visit(self, payer: str, name: str) -> None:
        try:
            async with self.semaphore.place(payer):
                self.begun.append(name)
                self.running.append(ended := asyncio.Event())
                await ended.wait()
        except NoRoom:
            self.refused.append(name)

    async def end_one(self) -> None:
        self.running.pop(0).set()
        for _ in range(4):
            await asyncio.sleep(0)

    async def end_all(self) -> None:
        while self.running:
            await self.end_one()


def in_a_world(scenario: Callable[[World], Awaitable[None]], *, waiting_max: int = 256, of_payer_max: int = 64) -> None:
    async def run() -> None:
        world = World(waiting_max, of_payer_max)
        await scenario(world)
        await world.end_all()
        assert world.semaphore.waiting == 0 and not world.semaphore._queues
        assert world.semaphore._free == 2

    asyncio.run(run())


def test_payers_take_turns_whatever_one_of_them_asks_for() -> None:
    async def scenario(world: World) -> None:
        for number in range(6):
            await world.ask("crowd", f"crowd {number}")
        await world.ask("one", "one")
        await world.ask("two", "two")
        await world.end_all()
        expected = ["crowd 0", "crowd 1", "crowd 2", "one", "two", "crowd 3", "crowd 4", "crowd 5"]
        assert world.begun == expected

    in_a_world(scenario)


def test_one_payer_has_its_share_of_the_queue_and_no_more() -> None:
    async def scenario(world: World) -> None:
        for number in range(8):
            await world.ask("crowd", f"crowd {number}")
        await world.ask("one", "one")
        assert world.refused == ["crowd 5", "crowd 6", "crowd 7"]

    in_a_world(scenario, of_payer_max=3)


def test_where_all_is_full_the_payer_with_most_waiting_gives_way() -> None:
    async def scenario(world: World) -> None:
        for number in range(6):
            await world.ask("crowd", f"crowd {number}")
        assert world.semaphore.waiting == 4
        for name in ("one", "two", "three"):
            await world.ask(name, name)
        await asyncio.sleep(0)
        assert world.refused == ["crowd 5", "crowd 4", "crowd 3"] and world.semaphore.waiting == 4
        await world.ask("four", "four")
        assert world.refused[3:] == ["four"], "all payers have one, and none gives way"

    in_a_world(scenario, waiting_max=4)


def test_who_leaves_takes_nobodys_turn_along() -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            await world.ask("crowd", f"crowd {number}")
        await world.ask("one", "one")
        world.tasks["crowd 2"].cancel()
        await asyncio.sleep(0)
        assert world.semaphore.waiting == 2
        world.running.pop(0).set()
        await asyncio.sleep(0)
        world.tasks["crowd 3"].cancel()  # in the moment in which it may have its turn
        world.tasks["one"].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await world.ask("two", "two")
        assert "two" in world.begun

    in_a_world(scenario)


def test_who_has_just_gone_gives_way_without_a_fault() -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            await world.ask("crowd", f"crowd {number}")
        world.tasks["one"] = asyncio.create_task(world._visit("one", "one"))
        world.tasks["crowd 3"].cancel()  # which does not know yet when the other one comes
        await asyncio.sleep(0)
        assert not world.tasks["one"].done() and world.semaphore.waiting == 2
        await world.end_all()
        assert world.begun == ["crowd 0", "crowd 1", "crowd 2", "one"] and world.refused == []

    in_a_world(scenario, waiting_max=2)


# Work on a thread


class Works:
    """Pieces of work that say when they were begun, the first of which takes as long as the test likes."""

    def __init__(self) -> None:
        self.semaphore, self.begun = FairSemaphore(1), list[str]()
        self.may_end = threading.Event()
        self.gone = set[str]()

    def do(self, payer: str, name: str) -> asyncio.Task[str | None]:
        return asyncio.create_task(self.semaphore.run(payer, lambda: self._work(name), lambda: name not in self.gone))

    def _work(self, name: str) -> str:
        self.begun.append(name)
        assert self.may_end.wait(10)
        return name


@pytest.fixture
def works() -> Works:
    return Works()


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_everybody_has_a_turn_however_much_somebody_else_has_given(works: Works) -> None:
    async def scenario() -> None:
        given = [works.do("busy", f"busy {number}") for number in range(5)]
        given += [works.do("other", "other 0"), works.do("third", "third 0"), works.do("other", "other 1")]
        await asyncio.sleep(0.01)
        works.may_end.set()
        assert await asyncio.gather(*given) == [f"busy {n}" for n in range(5)] + ["other 0", "third 0", "other 1"]

    play(scenario)
    assert works.begun == ["busy 0", "busy 1", "other 0", "third 0", "busy 2", "other 1", "busy 3", "busy 4"]


def test_work_of_who_is_gone_is_passed_over(works: Works) -> None:
    async def scenario() -> None:
        given = [works.do("a", name) for name in ("first", "cancelled", "detached", "last")]
        await asyncio.sleep(0.01)
        given[1].cancel()
        works.gone.add("detached")
        works.may_end.set()
        assert await asyncio.gather(given[0], *given[2:]) == ["first", None, "last"]

    play(scenario)
    assert works.begun == ["first", "last"]


def test_a_thread_that_nobody_waits_for_any_more_still_is_the_only_one(works: Works) -> None:
    async def scenario() -> None:
        first = works.do("a", "first")
        while not works.begun:
            await asyncio.sleep(0.001)
        first.cancel()
        second = works.do("b", "second")
        await asyncio.wait((first,))
        await asyncio.sleep(0.05)
        assert works.begun == ["first"]
        works.may_end.set()
        assert await second == "second"

    play(scenario)


def test_a_turn_of_the_thread_that_is_given_to_somebody_who_goes_in_that_moment_is_passed_on(works: Works) -> None:
    async def scenario() -> None:
        given = [works.do("a", name) for name in ("first", "gone", "last")]
        await asyncio.sleep(0.01)
        given[0].add_done_callback(lambda _: given[1].cancel())
        works.may_end.set()
        assert await asyncio.gather(given[0], given[2]) == ["first", "last"]

    play(scenario)


def test_what_work_raises_is_raised_and_the_next_goes_on(works: Works) -> None:
    def fail() -> str:
        raise ValueError("wrong")

    async def scenario() -> None:
        with pytest.raises(ValueError, match="wrong"):
            await works.semaphore.run("a", fail, lambda: True)
        works.may_end.set()
        assert await works.do("a", "next") == "next"

    play(scenario)


def test_where_no_thread_can_be_had_the_place_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    async def scenario() -> None:
        semaphore = FairSemaphore(1)
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", no_thread)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="after shutdown"):
                await semaphore.run("a", lambda: None, lambda: True)

    asyncio.run(scenario())
