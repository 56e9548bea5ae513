"""Coroutines that run at once, on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar

import pytest
import uvloop

from headwater.server.httpd.immediate_start import run_at_once
from headwater.server.process.event_loop import EventLoop

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop, EventLoop]
NAME = ContextVar("NAME", default="")


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop", "ours"])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)


def in_callback(runner: asyncio.Runner, scenario: Callable[[asyncio.AbstractEventLoop], asyncio.Task[None]]) -> None:
    """Call it where no task runs, and await the task that it answers."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[asyncio.Task[None]] = loop.create_future()
        loop.call_soon(lambda: made.set_result(scenario(loop)))
        await (await made)

    with runner:
        runner.run(run())


def test_what_waits_for_nothing_is_done_at_once(runner: asyncio.Runner) -> None:
    seen: list[object] = []

    async def work() -> None:
        seen.append(asyncio.current_task())

    def scenario(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        task = run_at_once(loop, work())
        assert task.done() and seen == [task]
        assert asyncio.current_task() is None
        return task

    in_callback(runner, scenario)


def test_what_waits_goes_on_as_any_task(runner: asyncio.Runner) -> None:
    steps: list[str] = []

    async def work() -> None:
        steps.append("begun")
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        steps.append("ended")

    def scenario(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        task = run_at_once(loop, work())
        assert not task.done() and steps == ["begun"]
        loop.call_soon(steps.append, "the loop goes on")
        return task

    in_callback(runner, scenario)
    assert steps == ["begun", "ended", "the loop goes on"]


def test_what_waits_can_be_cancelled(runner: asyncio.Runner) -> None:
    told: list[type[BaseException]] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            told.append(type(error))

    def scenario(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        task = run_at_once(loop, work())
        task.cancel()
        return task

    in_callback(runner, scenario)
    assert told == [asyncio.CancelledError]


def test_what_is_raised_is_the_tasks(runner: asyncio.Runner) -> None:
    async def work() -> None:
        raise ValueError("work")

    with pytest.raises(ValueError, match="work"):
        in_callback(runner, lambda loop: run_at_once(loop, work()))


def test_it_has_a_context_of_its_own(runner: asyncio.Runner) -> None:
    async def work() -> None:
        NAME.set("its own")

    def scenario(loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        task = run_at_once(loop, work())
        assert NAME.get() == ""
        return task

    in_callback(runner, scenario)


def test_within_a_task_it_is_an_ordinary_one(runner: asyncio.Runner) -> None:
    async def work() -> None:
        pass

    async def run() -> None:
        task = run_at_once(asyncio.get_running_loop(), work())
        assert not task.done()
        await task

    with runner:
        runner.run(run())
