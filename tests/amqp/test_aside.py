"""Long work on a thread: one at a time, everybody in turn, and nothing for those who are gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater.amqp.aside import Aside


class Works:
    """Pieces of work that say when they were begun, the first of which takes as long as the test likes."""

    def __init__(self) -> None:
        self.aside, self.begun = Aside(), list[str]()
        self.may_end = threading.Event()
        self.gone = set[str]()

    def do(self, payer: str, name: str) -> asyncio.Task[str | None]:
        return asyncio.create_task(self.aside.do(payer, lambda: self._work(name), lambda: name not in self.gone))

    def _work(self, name: str) -> str:
        self.begun.append(name)
        assert self.may_end.wait(10)
        return name


@pytest.fixture
def works() -> Works:
    return Works()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_everybody_has_a_turn_however_much_somebody_else_has_given(works: Works) -> None:
    async def scenario() -> None:
        given = [works.do("busy", f"busy {number}") for number in range(5)]
        given += [works.do("other", "other 0"), works.do("third", "third 0"), works.do("other", "other 1")]
        await asyncio.sleep(0.01)
        works.may_end.set()
        assert await asyncio.gather(*given) == [f"busy {n}" for n in range(5)] + ["other 0", "third 0", "other 1"]

    run(scenario)
    assert works.begun == ["busy 0", "busy 1", "other 0", "third 0", "busy 2", "other 1", "busy 3", "busy 4"]


def test_who_is_gone_is_passed_over(works: Works) -> None:
    async def scenario() -> None:
        given = [works.do("a", name) for name in ("first", "cancelled", "detached", "last")]
        await asyncio.sleep(0.01)
        given[1].cancel()
        works.gone.add("detached")
        works.may_end.set()
        assert await asyncio.gather(given[0], *given[2:]) == ["first", None, "last"]

    run(scenario)
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

    run(scenario)


def test_a_turn_that_is_given_to_somebody_who_goes_in_that_moment_is_passed_on(works: Works) -> None:
    async def scenario() -> None:
        given = [works.do("a", name) for name in ("first", "gone", "last")]
        await asyncio.sleep(0.01)
        given[0].add_done_callback(lambda _: given[1].cancel())
        works.may_end.set()
        assert await asyncio.gather(given[0], given[2]) == ["first", "last"]

    run(scenario)


def test_what_work_raises_is_raised_and_the_next_goes_on(works: Works) -> None:
    def fail() -> str:
        raise ValueError("wrong")

    async def scenario() -> None:
        with pytest.raises(ValueError, match="wrong"):
            await works.aside.do("a", fail, lambda: True)
        works.may_end.set()
        assert await works.do("a", "next") == "next"

    run(scenario)
