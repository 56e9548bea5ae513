"""How it is measured: samples, cases, and the rounds that let the contenders run in turn.

Every contender runs once in each round, and the order turns round by round, so that what else the machine does hits
all of them. Ratios are taken within a round; what is reported is the median of the rounds, with minimum and maximum.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

REFERENCE = "headwater"
"""The contender that the others are compared with; every label of it starts so."""


class WrongAnswer(Exception):
    """A contender did not do what was asked: its numbers mean nothing, and the run fails."""


def expect(what: str, expected: object, given: object) -> None:
    """Raises WrongAnswer unless the contender gave what was expected."""
    if expected != given:
        raise WrongAnswer(f"{what}: {expected!r} expected, {given!r} given")


@dataclass(frozen=True, slots=True)
class Sample:
    """What one contender did in one round."""

    value: float
    """In the unit of its case."""
    cpu_us: float | None = None
    """CPU time per unit of work, in microseconds: of this process for logs in process, of the server for servers."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    client_us: float | None = None
    """CPU time of the clients of a server per unit of work."""


CPU = "CPU"


@dataclass(frozen=True, slots=True)
class Aim:
    """What Headwater should reach: so many times as good as a contender, or an absolute bound (`against` = "").

    Against CPU it is a bound in us for a unit of work, in the slice in which it took least: others inflate CPU time.
    """

    against: str
    bound: float

    def __str__(self) -> str:
        if self.against == CPU:
            return f"CPU <= {self.bound:g} us"
        return f">= {self.bound:g} x {self.against}" if self.against else f"{self.bound:g}"


@dataclass(frozen=True, slots=True)
class Case:
    """One row group of a table: the same work, done by each contender."""

    title: str
    unit: str
    runs: Mapping[str, Callable[[], Sample]]
    """By contender; the first is the reference. Servers over sockets have none: they run in slices."""
    aims: Sequence[Aim] = ()
    is_lower_better: bool = False
    rounds: int | None = None
    """As many rounds as that, whatever was asked for."""
    absent: str = ""
    """Why it was not measured."""


@dataclass(slots=True)
class Outcome:
    """A case and its samples: `samples[contender][round]`."""

    case: Case
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def values(self, contender: str) -> list[float]:
        """The contender's values, round by round."""
        return [sample.value for sample in self.samples[contender]]

    def ratios(self, contender: str) -> list[float]:
        """How many times as good the reference was, round by round."""
        pairs = zip(self.values(self.reference), self.values(contender), strict=True)
        return [theirs / ours if self.case.is_lower_better else ours / theirs for ours, theirs in pairs]

    def cpu_ratios(self, contender: str) -> list[float]:
        """The reference's CPU time for a unit of work by the contender's, round by round, where both are known."""
        pairs = zip(self.samples[self.reference], self.samples[contender], strict=True)
        return [ours.cpu_us / theirs.cpu_us for ours, theirs in pairs if ours.cpu_us and theirs.cpu_us]

    @property
    def reference(self) -> str:
        """The contender that the others are compared with."""
        return next(iter(self.samples))

    def is_met(self, aim: Aim) -> bool:
        """Whether the median reaches the aim."""
        if aim.against == CPU:
            return min(sample.cpu_us or 0 for sample in self.samples[self.reference]) <= aim.bound
        if aim.against:
            return statistics.median(self.ratios(aim.against)) >= aim.bound
        value = statistics.median(self.values(self.reference))
        return value <= aim.bound if self.case.is_lower_better else value >= aim.bound


def run_case(case: Case, rounds: int, note: Callable[[str], None]) -> Outcome:
    """Every contender once per round, in turning order."""
    outcome = Outcome(case, {contender: [] for contender in case.runs})
    contenders = list(case.runs)
    rounds = case.rounds or rounds
    for turn in range(rounds):
        shift = turn % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            note(f"{case.title}: {contender}, round {turn + 1} of {rounds}")
            with quiet_collector():
                outcome.samples[contender].append(case.runs[contender]())
    return outcome


class Stopwatch:
    """Wall time and CPU time of a piece of work, in seconds."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._cpu = sum(map(cpu_seconds, self._pids))
        self._began = time.perf_counter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = sum(map(cpu_seconds, self._pids)) - self._cpu

    def rate(self, count: int, latencies: Sequence[float] = ()) -> Sample:
        """The sample of `count` units of work in that time."""
        # A process that ended without being waited for takes what it used with it.
        cpu_us = self.cpu_seconds / count * 1e6 if self.cpu_seconds > 0 else None
        return Sample(count / self.seconds, cpu_us, percentile_ms(latencies, 50), percentile_ms(latencies, 99))


def stopwatch(*pids: int) -> Stopwatch:
    """A stopwatch for this process and its descendants, or for those given."""
    return Stopwatch(pids or (os.getpid(),))


def percentile_ms(latencies: Sequence[float], percent: int) -> float | None:
    """A percentile of latencies in seconds, in ms; None where there are none."""
    if not latencies:
        return None
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000


def cpu_seconds(pid: int) -> float:
    """CPU time that a process and its descendants have used, also in threads that ended (0 if it has ended itself)."""
    if pid == os.getpid():
        reaped = os.times()
        own = time.process_time() + reaped.children_user + reaped.children_system
    else:
        ticks = _stat_fields(pid)[13:15]  # of children that were waited for: proc(5), fields 16 and 17
        own = _clock_s(pid) + sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(cpu_seconds, children(pid)))


def _clock_s(pid: int) -> float:
    """The CPU clock of a process, to the nanosecond: clock_getcpuclockid(3), of which Python has no function."""
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def anonymous_bytes(pid: int) -> int:
    """Resident anonymous memory of a process and its descendants: what is not cached file content."""
    return own_anonymous_bytes(pid) + sum(map(anonymous_bytes, children(pid)))


def own_anonymous_bytes(pid: int) -> int:
    """The same of the process alone."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def disk_bytes(directory: Path) -> int:
    """What the files of a directory take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def children(pid: int) -> list[int]:
    """The live children of a process. A thread or process may end while it is being looked at: it has none then."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (task / "children").read_text().split())
    return found


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold blanks and brackets itself; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


@contextmanager
def quiet_collector() -> Iterator[None]:
    """The prepared events out of the garbage collector's way: no contender pays for what the harness holds."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
