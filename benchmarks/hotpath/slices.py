"""How the cost of a piece of work is told on a machine that does other things, too: the least of many short slices.

CPU time is inflated by neighbours, up to twice: by their cache lines, and by the other half of a core. Least of all in
the slices in which they pause. So what is told is the least, and the lower quartile beside it: where both are far
apart, the machine was busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..measure import quiet_collector


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one piece of work."""

    least_us: float
    """CPU time, in the slice in which it was least."""
    quartile_us: float
    per_second: float
    """How often it was done, in the slice in which that was most."""


def cost_of(slices: list[tuple[float, float, int]]) -> Cost:
    """Of slices as (CPU s, wall s, how often it was done)."""
    told = sorted(cpu / count * 1e6 for cpu, _, count in slices)
    return Cost(told[0], told[len(told) // 4], max(count / wall for _, wall, count in slices))


def measured(work: Callable[[int], object], count: int, slices: int = 30) -> Cost:
    """What `work(n)` costs this process, all threads of it, per unit; it does `count` units each time it is called."""
    taken = []
    with quiet_collector():
        work(0)
        for number in range(1, slices + 1):
            cpu, wall = time.process_time(), time.perf_counter()
            work(number)
            taken.append((time.process_time() - cpu, time.perf_counter() - wall, count))
    return cost_of(taken)
