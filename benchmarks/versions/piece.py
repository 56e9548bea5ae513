"""A piece of work whose CPU time two versions are compared by."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..measure import quiet_collector

Do = Callable[[int], object]
"""Gets how often it was done before."""


def nothing(_: object) -> None:
    """What a step or a piece needs no preparation for."""


class Step(NamedTuple):
    """What is done again and again."""

    do: Do
    before: Do = nothing
    """Not measured."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work, in a directory that one version alone has."""

    name: str
    what: str
    steps: Callable[[Path], AbstractContextManager[Step]]
    """Gets the directory."""
    prepare: Callable[[Path], object] = nothing
    """Makes once what all rounds need in the directory."""
    repeats: int = 10
    """How often it is done in a process, after once to warm up."""
    is_in_memory: bool = False
    """Whether its files are in memory: of pieces that write nothing of their own, and would wait for the disk."""
    limit: float = 1.05
    """How many times the other version's CPU time it may take."""

    def measure(self, directory: Path) -> list[tuple[float, float]]:
        """CPU seconds of each repeat, and those that went by."""
        taken = []
        with self.steps(directory) as step, quiet_collector():
            for number in range(self.repeats + 1):
                step.before(number)
                began, used = time.perf_counter(), cpu_seconds()
                step.do(number)
                taken.append((cpu_seconds() - used, time.perf_counter() - began))
        return taken[1:]


def cpu_seconds() -> float:
    """CPU time of this process, all its threads, and of children that have ended, user and system."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
