"""A loop that is never idle lets other threads have the interpreter."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from headwater.core.loop.gil_yield import BUSY_S, IDLE_S, PAUSE_S, GilYield

TURN_S = 0.0004
"""The length of a turn where a thread waited longest: it never gets the lock, and is never waited for too long."""
ROUNDS = 50
"""How often the thread waits for the interpreter. Without pauses each took thousands of turns."""


class Clocks:
    """Time that passes by itself, and by sleeping."""

    def __init__(self) -> None:
        self.worked = self.others = self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def passed(self, seconds: float, *, worked: float, others: float = 0.00001) -> None:
        self.now += seconds
        self.worked += worked
        self.others += others


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def gives_way(clocks: Clocks) -> GilYield:
    return GilYield(
        cpu=lambda: clocks.worked,
        process=lambda: clocks.worked + clocks.others,
        wall=lambda: clocks.now,
        sleep=clocks.sleep,
    )


def test_a_busy_loop_pauses_and_is_looked_at_again_soon(clocks: Clocks, gives_way: GilYield) -> None:
    clocks.passed(0.02, worked=0.01)
    assert gives_way.tick() == BUSY_S
    clocks.passed(0.002, worked=0.002)
    assert gives_way.tick() == BUSY_S
    assert clocks.slept == [PAUSE_S] * 2
    assert gives_way.pauses == 2


def test_an_idle_loop_does_not(clocks: Clocks, gives_way: GilYield) -> None:
    clocks.passed(0.02, worked=0.001)
    assert gives_way.tick() == IDLE_S
    assert clocks.slept == []


def test_a_busy_loop_without_a_thread_that_woke_up_is_only_looked_at(clocks: Clocks, gives_way: GilYield) -> None:
    gives_way.tick()
    for _ in range(3):
        clocks.passed(0.002, worked=0.002, others=0.000001)
        assert gives_way.tick() == BUSY_S
    assert clocks.slept == []
    clocks.passed(0.002, worked=0.002)
    assert gives_way.tick() == BUSY_S
    assert clocks.slept == [PAUSE_S]


def test_the_pause_itself_is_not_held_against_the_loop(clocks: Clocks, gives_way: GilYield) -> None:
    clocks.passed(1.0, worked=1.0)
    gives_way.tick()
    clocks.passed(0.002, worked=0.0004)
    assert gives_way.tick() == IDLE_S


def test_a_thread_gets_the_interpreter_though_the_loop_is_never_idle() -> None:
    turns, done = 0, threading.Event()

    def wait_often() -> None:
        for _ in range(ROUNDS):
            time.sleep(0.0001)
        done.set()

    async def scenario() -> None:
        nonlocal turns
        gives_way = GilYield()
        gives_way.start()
        thread = threading.Thread(target=wait_often)
        thread.start()
        while not done.is_set():
            turns += 1
            until = time.perf_counter() + TURN_S
            while time.perf_counter() < until:
                pass
            await asyncio.sleep(0)
        gives_way.stop()
        pauses = gives_way.pauses
        await asyncio.sleep(2 * IDLE_S)
        assert gives_way.pauses == pauses  # stopped
        thread.join()

    asyncio.run(scenario())
    assert turns < 100 * ROUNDS
