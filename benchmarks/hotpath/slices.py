"""How the cost of a piece of work is told on a machine that does other things, too: the least of many short slices.

CPU time is inflated by neighbours, up to twice: by their cache lines, and by the other half of a core. Least of all in
the slices in which they pause. So what is told is the least, and the lower quartile beside it: where both are far
apart, the machine was busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..measure import quiet_collector

SLICE_S = 0.1


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


def watched(pid: int, done: Callable[[], int], seconds: float) -> Cost:
    """What a process costs while others keep it busy; `done` tells how much it has done so far."""
    taken, before, ends = [], (_cpu_s(pid), time.perf_counter(), done()), time.perf_counter() + seconds
    while time.perf_counter() < ends:
        time.sleep(SLICE_S)
        now = _cpu_s(pid), time.perf_counter(), done()
        if now[2] > before[2]:
            taken.append((now[0] - before[0], now[1] - before[1], now[2] - before[2]))
            before = now
    return cost_of(taken)


def _cpu_s(pid: int) -> float:
    """CPU time of the threads of a process that are there, by the scheduler's own clock."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
