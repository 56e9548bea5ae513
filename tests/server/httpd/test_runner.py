"""Requests that run at once, in tasks that are used again, on all event loops."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
import uvloop

from headwater.core.actor import act_as, acting
from headwater.http import Receive, Scope, Send
from headwater.server.httpd.admission import Admission
from headwater.server.httpd.cycle import HttpCycle
from headwater.server.httpd.runner import IDLE_MAX, Runner
from headwater.server.httpd.server_state import Date, ServerState
from headwater.server.process.event_loop import EventLoop

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop, EventLoop]
NAME = ContextVar("NAME", default="")
Work = Callable[[], Awaitable[None]]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop", "ours"])
def loops(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)


class Connection:
    """A peer that keeps what it is answered."""

    def __init__(self) -> None:
        self.date, self.is_full, self.written = Date(), False, b""

    def answered(self, end: bytes, keeps_alive: bool) -> None:
        self.written += end


class Asked:
    """A server whose requests do what they are made of."""

    def __init__(self) -> None:
        self.state = ServerState(self.work, Admission(1))
        self.loop = asyncio.get_running_loop()

    async def work(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["work"]()
        await send({"type": "http.response.start", "status": 204, "headers": (), "body": b""})

    def ask(self, work: Work, connection: Any = None) -> tuple[Runner, Connection]:
        connection = connection or Connection()
        cycle = HttpCycle(connection, {"work": work, "method": "GET", "path": "/"}, True, False, b"", False, True)
        runner = self.state.idle.pop() if self.state.idle else Runner(self.state, self.loop)
        runner.begin(cycle, self.work)
        return runner, connection

    async def ended(self) -> None:
        while self.state.tasks:
            await asyncio.sleep(0)


def in_callback(loops: asyncio.Runner, scenario: Callable[[Asked], object]) -> None:
    """Call it where no task runs, and wait until what it asks is answered."""

    async def run() -> None:
        loop, asked = asyncio.get_running_loop(), Asked()
        made: asyncio.Future[object] = loop.create_future()

        def call() -> None:
            try:
                made.set_result(scenario(asked))
            except BaseException as error:
                made.set_exception(error)

        loop.call_soon(call)
        await made
        await asked.ended()
        assert await asked.state.emptied(1)

    with loops:
        loops.run(run())


async def nothing() -> None:
    """A request that waits for nothing."""


def test_what_waits_for_nothing_is_answered_at_once_and_its_task_answers_the_next(loops: asyncio.Runner) -> None:
    seen: list[object] = []

    async def work() -> None:
        seen.append(asyncio.current_task())

    def scenario(asked: Asked) -> None:
        for count in (1, 2, 3):
            runner, connection = asked.ask(work)
            assert connection.written.startswith(b"HTTP/1.1 204 ") and seen == [runner.task] * count
            assert asyncio.current_task() is None and not asked.state.tasks and asked.state.idle == [runner]

    in_callback(loops, scenario)


def test_what_waits_goes_on_as_any_task(loops: asyncio.Runner) -> None:
    steps: list[str] = []

    async def work() -> None:
        steps.append("begun")
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        steps.append("ended")

    def scenario(asked: Asked) -> None:
        asked.ask(nothing)
        runner, connection = asked.ask(work)
        assert not connection.written and steps == ["begun"]
        assert asked.state.tasks == {runner.task} and not asked.state.idle
        asked.loop.call_soon(steps.append, "the loop goes on")

    in_callback(loops, scenario)
    assert steps == ["begun", "ended", "the loop goes on"]


def test_what_waits_can_be_cancelled_and_its_task_ends(loops: asyncio.Runner) -> None:
    told: list[type[BaseException]] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            told.append(type(error))
            raise

    async def run() -> None:
        asked = Asked()
        runner, connection = asked.ask(work)
        await asyncio.sleep(0)
        assert asked.state.cancel() == 1
        await asked.ended()
        assert runner.task.done() and not asked.state.idle
        assert connection.written.startswith(b"HTTP/1.1 500 ")

    with loops:
        loops.run(run())
    assert told == [asyncio.CancelledError]


def test_what_is_raised_is_answered_and_the_task_goes_on(
    loops: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        raise ValueError("work")

    def scenario(asked: Asked) -> None:
        runner, connection = asked.ask(work)
        assert connection.written.startswith(b"HTTP/1.1 500 ")
        assert asked.ask(nothing)[0] is runner

    in_callback(loops, scenario)
    assert "the application failed" in caplog.text


def test_what_one_request_sets_no_other_sees(loops: asyncio.Runner) -> None:
    seen: list[object] = []

    async def named() -> None:
        act_as("eve")

    async def marked() -> None:
        NAME.set("its own")

    async def look() -> None:
        seen.append((NAME.get(), acting()))

    def scenario(asked: Asked) -> None:
        NAME.set("of the loop")
        act_as("the loop")
        first, _ = asked.ask(named)
        assert asked.ask(look)[0] is first
        assert asked.ask(marked)[0] is first
        assert asked.ask(look)[0] is not first and not asked.state.tasks
        assert NAME.get() == "of the loop"

    in_callback(loops, scenario)
    assert seen == [("", None)] * 2


def test_within_a_task_it_begins_in_the_next_turn(loops: asyncio.Runner) -> None:
    async def run() -> None:
        asked = Asked()
        for _ in range(2):
            runner, connection = asked.ask(nothing)
            assert not connection.written and asked.state.tasks == {runner.task}
            await asked.ended()
            assert connection.written and asked.state.idle == [runner]
        assert await asked.state.emptied(1)

    with loops:
        loops.run(run())


def test_few_tasks_wait_and_none_after_the_end(loops: asyncio.Runner) -> None:
    async def run() -> None:
        asked, go = Asked(), asyncio.Event()

        async def work() -> None:
            await go.wait()

        tasks = [asked.ask(work)[0].task for _ in range(IDLE_MAX + 2)]
        go.set()
        await asked.ended()
        assert len(asked.state.idle) == IDLE_MAX and sum(task.done() for task in tasks) == 2
        assert await asked.state.emptied(1) and not asked.state.idle
        await asyncio.sleep(0)
        assert all(task.done() for task in tasks)

    with loops:
        loops.run(run())


def test_a_request_that_waits_when_the_server_ends_leaves_no_task(loops: asyncio.Runner) -> None:
    async def run() -> None:
        asked, go = Asked(), asyncio.Event()

        async def work() -> None:
            await go.wait()

        runner, connection = asked.ask(work)
        await asyncio.sleep(0)
        ending = asyncio.create_task(asked.state.emptied(60))
        await asyncio.sleep(0)
        go.set()
        assert await ending and connection.written
        assert runner.task.done() and not asked.state.idle

    with loops:
        loops.run(run())


def test_every_answer_says_the_time_to_the_second(loops: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario(asked: Asked) -> None:
        connection = Connection()
        for seconds in (1_700_000_000.2, 1_700_000_000.9, 1_700_000_001.0, 1_700_000_000.5, 1_699_000_000.0):
            with monkeypatch.context() as patch:
                patch.setattr(time, "time", lambda now=seconds: now)
                asked.ask(nothing, connection)
            (date,) = re.findall(rb"\r\ndate: (.* GMT)\r\n", connection.written)
            assert parsedate_to_datetime(date.decode()).timestamp() == int(seconds)
            connection.written = b""

    in_callback(loops, scenario)


def test_a_request_cancelled_before_its_first_step_leaves_no_task(loops: asyncio.Runner) -> None:
    async def run() -> None:
        asked = Asked()
        runner, connection = asked.ask(nothing)  # within a task, so it begins in the next turn
        assert asked.state.cancel() == 1
        assert await asked.state.emptied(10)
        assert runner.task.cancelled() and not connection.written

    with loops:
        loops.run(run())


def test_a_task_that_keeps_a_cancellation_is_not_used_again(loops: asyncio.Runner) -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)

    async def run() -> None:
        asked = Asked()
        runner, connection = asked.ask(work)
        while not runner.task.done():
            await asyncio.sleep(0)
        assert connection.written.startswith(b"HTTP/1.1 204 ") and not asked.state.idle and not asked.state.tasks

    with loops:
        loops.run(run())


def test_a_call_that_something_else_makes_meanwhile_goes_to_the_loop(loops: asyncio.Runner) -> None:
    """For example a finaliser."""
    called: list[str] = []

    def scenario(asked: Asked) -> None:
        asked.ask(nothing)
        runner = asked.state.idle[0]
        assert runner._next is not None
        set_result = runner._next.set_result

        class Next:
            def set_result(self, result: None) -> None:
                set_result(result)
                asked.loop.call_soon(called.append, "another")

        runner._next = Next()
        _, connection = asked.ask(nothing)
        assert connection.written.startswith(b"HTTP/1.1 204 ") and not called

    in_callback(loops, scenario)
    assert called == ["another"]
