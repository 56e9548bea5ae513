"""What a request costs: CPU of the whole and of the longest step of the event loop, and the memory it takes at most."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

STEP_S_MAX = 0.1
"""CPU of one step: five times what is aimed at, because machines differ."""
GROWTH_MAX = 3.5
"""Twice as much may cost so many times as much: what is quadratic costs four times."""
NOTICED_S = 0.05
"""What costs less than that is not compared: it is noise."""


class Cost(NamedTuple):
    """In seconds of CPU, on the loop's thread."""

    whole: float
    longest: float


@contextmanager
def counted() -> Iterator[list[float]]:
    """The CPU of each step of the event loop meanwhile."""
    steps: list[float] = []
    run = asyncio.Handle._run  # type: ignore[attr-defined]

    def measured(handle: asyncio.Handle) -> None:
        started = time.thread_time()
        run(handle)
        steps.append(time.thread_time() - started)

    asyncio.Handle._run = measured  # type: ignore[attr-defined]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[attr-defined]


def cost_of(act: Callable[[], Any]) -> Cost:
    """What it costs, the least of two tries, without the collection of garbage, which is of the whole process."""
    return min((_cost_of(act) for _ in range(2)), key=lambda cost: cost.longest)


def _cost_of(act: Callable[[], Any]) -> Cost:
    gc.collect()
    gc.disable()
    try:
        with counted() as steps:
            act()
    finally:
        gc.enable()
    return Cost(sum(steps), max(steps))


def check_growth(body: Callable[[int], bytes], send: Callable[[bytes], Any], n: int) -> None:
    """Asserts that no step is long, and that the whole grows no faster than what is sent."""
    costs = []
    for times in (1, 2, 4):
        text = body(times * n)
        costs.append(cost_of(lambda text=text: send(text)))  # type: ignore[misc]
    assert all(cost.longest < STEP_S_MAX for cost in costs), costs
    for one, twice in pairwise(costs):
        assert twice.whole < max(NOTICED_S, GROWTH_MAX * one.whole), costs


def memory_of(act: Callable[[], Any]) -> int:
    """The bytes that it had at most, beyond those of before."""
    gc.collect()
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
