"""Cuts: where in a record the power fails, what is left then, and whether it is what was promised.

Each cut has a seed of its own, by which that very state is made again from the same record.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.server import running

from .check import Check
from .disk import Kind, PowerDisk
from .ledger import Ledger
from .recording import Operation, Record, environment, read_records
from .serving import ROOT
from .watched import be_alone
from .whole import WholeCheck

EVERYWHERE = 0.25
"""The part of the cuts that may be anywhere; the others are near something that happens seldom."""
SHOWN = 25
"""So many records before a cut are shown with its faults."""
_NUMBER = re.compile(r"[0-9a-f]{8,}|\d+")


class State(NamedTuple):
    """One cut, and what was found."""

    kind: str
    seed: int
    cut: int
    chosen: str
    faults: list[str]
    last: list[str]
    """What was done before."""
    seconds: float

    def __str__(self) -> str:
        what = "\n".join([f"  {fault}" for fault in self.faults[:20]] + ["  before that:"] + self.last)
        return f"POWER_SEED={self.seed} on a {self.kind} disk, cut before record {self.cut} ({self.chosen}):\n{what}"


class Cutter:
    """Cuts one record."""

    def __init__(self, records: Sequence[Record], root: Path, root_inode: int, scratch: Path) -> None:
        self._records, self._root, self._root_inode, self._scratch = records, root, root_inode, scratch
        self._ledger = Ledger(records)
        self._kinds, self._everywhere = _by_kind(records), EVERYWHERE

    def only_near(self, pattern: str) -> None:
        """Cut only near what is done to such paths."""
        wanted = re.compile(pattern)
        records = [record for record in self._records if wanted.search(record.path)]
        self._kinds, self._everywhere = _by_kind(records), 0.0

    def cut_of(self, seed: int) -> int:
        """Where the cut of that seed is."""
        chance = Random(seed)
        if chance.random() < self._everywhere:
            return chance.randrange(len(self._records) + 1)
        near = chance.choice(self._kinds[chance.choice(sorted(self._kinds))])
        return min(max(near + chance.choice((-1, 0, 0, 1, 1, 2, 3, 5)), 0), len(self._records))

    def states(
        self, kind: Kind, seeds: Iterable[int], is_ignored: Callable[[Record], bool] = lambda _: False
    ) -> Iterable[State]:
        """The states of these seeds, in the order of their cuts: the record is told once."""
        disk, told = PowerDisk(self._root, self._root_inode, kind, is_ignored), 0
        for cut, seed in sorted((self.cut_of(seed), seed) for seed in seeds):
            while told < cut:
                disk.tell(self._records[told])
                told += 1
            yield self._check(disk, kind, seed, cut)

    def again(self, kind: Kind, seeds: Iterable[int], times: int) -> Iterable[State]:
        """The power fails a second time, so many times for each seed, while the server recovers from the first."""
        disk, told = PowerDisk(self._root, self._root_inode, kind), 0
        for cut, seed in sorted((self.cut_of(seed), seed) for seed in seeds):
            while told < cut:
                disk.tell(self._records[told])
                told += 1
            first = self._scratch / f"{kind.value}-{seed}-first"
            chosen = disk.lose_power(first, Random(seed))
            second, records = PowerDisk.of(first, kind), _recovery(first, seed)
            chance, at = Random(seed), 0
            for place, later in enumerate(sorted(chance.choices(range(len(records) + 1), k=times))):
                while at < later:
                    second.tell(records[at])
                    at += 1
                yield self._check(
                    second, kind, seed, cut, f"-{place}", f"{chosen}; again before {later}", records[:later]
                )
            shutil.rmtree(first)

    def whole(self, kind: Kind, seed: int) -> State:
        """The state of that seed, served by a whole server."""
        disk, cut = PowerDisk(self._root, self._root_inode, kind), self.cut_of(seed)
        for record in self._records[:cut]:
            disk.tell(record)
        target = self._scratch / f"{kind.value}-{seed}-whole"
        chosen = disk.lose_power(target, Random(seed))
        faults = WholeCheck(target, self._scratch / f"{kind.value}-{seed}-folder", self._ledger, cut).run()
        last = [str(record)[:300] for record in self._records[max(cut - SHOWN, 0) : cut]]
        return State(kind.value, seed, cut, chosen, faults, last, 0.0)

    def _check(
        self, disk: PowerDisk, kind: Kind, seed: int, cut: int, suffix: str = "", before: str = "",
        since: Sequence[Record] = (),
    ) -> State:  # fmt: skip
        began = time.process_time()
        target = self._scratch / f"{kind.value}-{seed}{suffix}"
        chosen = f"{before} {disk.lose_power(target, Random(f'{seed}{suffix}'))}".strip()
        if kept := os.environ.get("POWER_KEEP"):
            shutil.copytree(target, Path(kept) / target.name, dirs_exist_ok=True)
        faults = Check(target / "data", self._ledger, cut).run()
        shutil.rmtree(target)
        last = [*self._records[max(cut - SHOWN, 0) : cut], *since[-SHOWN:]] if faults else []
        shown = [str(record)[:300] for record in last]
        return State(kind.value, seed, cut, chosen, faults, shown, time.process_time() - began)


def cutter(record: Path, root: Path, root_inode: int, scratch: Path) -> Cutter:
    """Of a record in a file."""
    return Cutter(read_records(record), root, root_inode, scratch)


def workers() -> ProcessPoolExecutor:
    """Processes that check states, one for each processor."""
    return ProcessPoolExecutor(os.cpu_count() or 1, multiprocessing.get_context("spawn"))


def check_all(
    pool: ProcessPoolExecutor,
    record: Path,
    root: Path,
    scratch: Path,
    kind: Kind,
    seeds: Sequence[int],
    again: int = 0,
) -> list[State]:
    """The states of these seeds. `again`: so many times each, the power fails twice."""
    count, inode = os.cpu_count() or 1, root.stat().st_ino
    parts = [
        pool.submit(_check_some, record, root, inode, scratch, kind, seeds[each::count], again) for each in range(count)
    ]
    return [state for part in parts for state in part.result()]


def _check_some(
    record: Path, root: Path, inode: int, scratch: Path, kind: Kind, seeds: Sequence[int], again: int
) -> list[State]:
    logging.disable(logging.WARNING)  # torn tails are what is wanted
    be_alone()
    cutter_ = cutter(record, root, inode, scratch)
    return list(cutter_.again(kind, seeds, again) if again else cutter_.states(kind, seeds))


def _recovery(directory: Path, seed: int) -> list[Record]:
    """What a process does that opens the directory, tends its logs, and ends, every other time not in order."""
    file = directory.with_name(f"{directory.name}.records")
    command = [sys.executable, "-m", "tests.power.recovering", str(directory / "data"), str(seed % 2)]
    subprocess.run(
        command,
        cwd=ROOT,
        env=running.environment(**environment(directory, file)),
        check=True,
        capture_output=True,
        timeout=60,
    )
    records = read_records(file)
    for each in (file, file.with_name(f"{file.name}.lock")):
        each.unlink()
    return records


def _by_kind(records: Sequence[Record]) -> dict[str, list[int]]:
    """The places of records by what was done to what kind of file: what is seldom is cut as often as the rest."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for record in records:
        if record.operation not in (Operation.MARK, Operation.MAP):
            kinds[f"{record.operation.name} {_NUMBER.sub('N', record.path)}"].append(record.number)
    return dict(kinds)
