"""What lasts as long as the server: it fails, is told, and goes on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headwater.core import Bus, NotificationType
from headwater.core.watch.threads import TROUBLE_S, Threads
from tests.management.told import Told

SOON = (0.001, 0.002)


def test_a_thread_that_raises_is_told_and_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    bus, rounds, now = Bus(), [], [0.0]
    told, threads = Told(bus), Threads(bus, pause_s=SOON, clock=lambda: now[0])

    def run() -> None:
        rounds.append(len(rounds))
        if len(rounds) < 4:
            raise OSError(24, "Too many open files")

    threads.start("maintenance", run, threading.Event()).join(30)
    assert rounds == [0, 1, 2, 3]
    assert threads.restarts == {"maintenance": 3}
    failures = told.of(NotificationType.THREAD_FAILED)
    assert [(each["name"], each["restarts"]) for each in failures] == [("maintenance", n) for n in (1, 2, 3)]
    assert "Too many open files" in failures[0]["reason"]
    assert "maintenance failed" in caplog.text
    assert threads.troubles() == ["maintenance failed, and was restarted (3 times so far)"]
    now[0] = TROUBLE_S
    assert threads.troubles() == []


def test_a_thread_that_is_to_stop_is_not_begun_again() -> None:
    stopping, threads = threading.Event(), Threads(pause_s=(60.0, 60.0))

    def run() -> None:
        raise RuntimeError

    thread = threads.start("history", run, stopping)
    stopping.set()
    thread.join(30)
    assert not thread.is_alive()


def test_a_task_that_raises_is_told_and_begun_again_and_can_be_cancelled() -> None:
    bus = Bus()
    told, threads = Told(bus), Threads(bus, pause_s=SOON)

    async def scenario() -> None:
        rounds, is_there = 0, asyncio.Event()

        async def run() -> None:
            nonlocal rounds
            rounds += 1
            if rounds < 3:
                raise ValueError("a fault")
            is_there.set()
            await asyncio.Event().wait()

        task = threads.task("ticks", run)
        await is_there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert threads.restarts == {"ticks": 2}
    assert len(told.of(NotificationType.THREAD_FAILED)) == 2


def test_the_pause_grows_up_to_its_limit_and_is_short_again_after_a_good_while() -> None:
    now = [0.0]
    threads = Threads(pause_s=(1.0, 8.0), clock=lambda: now[0])
    pauses, pause = [], 1.0
    for _ in range(5):
        pauses.append(pause := threads._next_pause(pause, began=now[0]))
    assert pauses == [2.0, 4.0, 8.0, 8.0, 8.0]
    now[0] = 100.0
    assert threads._next_pause(pause, began=0.0) == 1.0
