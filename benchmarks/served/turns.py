"""Contenders in turn: short slices in random order, and ratios of slices that are neighbours.

The speed of a shared machine changes by a fifth within seconds. What it does in one round hits all contenders.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

from ..measure import CPU, Case, Outcome, expect
from .clients import Clients
from .contenders import Servers
from .rows import Row

WARM_UP = 2
"""Rounds that do not count."""
CORES_MIN = 4
"""So many let clients have cores of their own."""


def compare(
    row: Row, servers: Servers, total: int, first_client: int, rounds: int, slice_s: float, note: Callable[[str], None]
) -> Outcome:
    """Every contender does the work of a row once in each round. Raises WrongAnswer."""
    if row.is_apart and (cores := len(os.sched_getaffinity(0))) < CORES_MIN:
        return Outcome(Case(row.title, row.unit, {}, absent=f"not measured: {cores} cores, {CORES_MIN} are needed"))
    aims = [aim for aim in row.aims if aim.against in ("", CPU, *servers)]
    outcome = Outcome(Case(row.title, row.unit, {}, aims), {name: [] for name in servers})
    heads = {name: servers.head(name) for name in servers}
    ours, theirs = halves(os.sched_getaffinity(0), _siblings) if row.is_apart else ([], [])
    with ExitStack() as stack:
        if row.is_apart:
            stack.enter_context(servers.on_cores(ours))
        clients = stack.enter_context(Clients(row, servers.endpoints, total, first_client, theirs))
        order = list(servers)
        for turn in range(-WARM_UP, rounds):
            random.shuffle(order)
            note(f"{row.title}: round {max(turn + 1, 0)} of {rounds}")
            for name in order:
                sample = clients.slice(name, servers.pid(name), slice_s)
                if turn >= 0:
                    outcome.samples[name].append(sample)
        for name in servers:
            expected = heads[name] + clients.steps(name) * row.appended
            expect(f"{name}: head after {row.title}", expected, servers.head(name))
    return outcome


def halves(cpus: Iterable[int], siblings: Callable[[int], str]) -> tuple[list[int], list[int]]:
    """Two halves of the processors; those of one core, which `siblings` names, are in the same half."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        cores.setdefault(siblings(cpu), []).append(cpu)
    groups = list(cores.values())
    half = len(groups) // 2
    return list(chain(*groups[:half])), list(chain(*groups[half:]))


def _siblings(cpu: int) -> str:
    return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
