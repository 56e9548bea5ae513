"""What hostile peers may make a server hold: each load alone, in a cgroup of 512 MiB, with a budget of 64 MiB.

Good neighbours work beside each load. Judged are anonymous memory of all processes of the server, what of it is left
after the peers have gone, the longest hold of the interpreter, and what neighbours wrote and saw.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import anonymous_bytes, children, own_anonymous_bytes

from headwater.core.event import Event
from headwater.core.settings import LogSettings
from tests.cost.measuring import GENEROSITY

from .. import losses
from ..run import Faulty, Repeating, Told
from ..server import MortalServer
from .loads import HUGE, LARGE, LOADS
from .peers import MIB
from .street import Street, Waits

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
CAGE_BYTES = 512 * MIB
BUDGET_BYTES, WRITING_BYTES = 64 * MIB, 1024 * MIB
STRANGERS_BYTES = 16 * MIB
"""So much more all peers before their login may take."""
CONNECTION_BYTES = 64 * 1024
WORKER_BYTES = 60 * MIB
"""Of the stated base: the process that makes index files comes and goes, and grows with its work; it counts so much at
least."""
LEFT_BYTES, LEFT_S = 32 * MIB, 10.0
"""So much more may be left so long after the peers have gone."""
HOLD_S_MAX = 0.05 * GENEROSITY
"""50 ms on a core without neighbours."""
SAMPLE_S = 0.05
STAY_S = 2.0
"""Peers that have done what they can stay for so long without taking anything."""
BASE_S = 1.0
"""The base is the most that is held for so long before the peers come."""
WARM_S, WARM_S_MAX = 4.0, 40.0
"""Memory is at its base when it has stayed as it is for so long."""


class Outcome(NamedTuple):
    """What one load did; bytes are anonymous memory of all processes of the server, but for those that were sent."""

    name: str
    connected: int
    """Peers whose connection was open when all had sent what they could."""
    sent: int
    """Bytes that the server, or the kernel for it, took from them."""
    before: int
    peak: int
    allowed: int
    after: int
    """Ten seconds after the peers had gone, or as soon as it was little enough."""
    hold_s: float
    faults: tuple[str, ...]

    def row(self) -> str:
        """A line of the table."""
        sizes = " | ".join(f"{size / MIB:.0f}" for size in self[2:7])
        verdict = "; ".join(" ".join(fault.split())[:120] for fault in self.faults[:4]) or "as promised"
        return f"| {self.name} | {self.connected} | {sizes} | {1000 * self.hold_s:.0f} | {verdict} |"


HEADINGS = f"""\
| load | peers open | sent MiB | before MiB | peak MiB | allowed MiB | after MiB | hold ms | verdict |
{"|---" * 9}|"""


class Watched(Street):
    """Neighbours, and the server's memory while peers come and go."""

    def __init__(self, server: MortalServer, cage: Cage, cost: Path) -> None:
        super().__init__(server, 0, is_lost=losses.too_busy)
        self._cage, self._cost = cage, cost
        self._peak = 0

    def begin(self) -> None:
        super().begin()
        self.servers.enter_context(Repeating(self._sample, SAMPLE_S))
        self._warm_up()

    def put(self, name: str) -> Outcome:
        """Let the peers of a load do what they can, and judge."""
        self._peak = 0
        time.sleep(BASE_S)
        base = self._peak
        self.hold_s()
        began = time.monotonic()
        with self.hostile("loads", name) as told:
            time.sleep(STAY_S)
            self.measure(name, began)
        tried, opened, sent = told["tried"], told["open"], told["sent"]
        more = STRANGERS_BYTES if LOADS[name].are_strangers else BUDGET_BYTES + CONNECTION_BYTES * tried
        after = self._left(base)
        hold_s, peak = self.hold_s(), self._peak
        with suppress(Faulty):
            self.settle()
        faults = [*unkept(self._cage.killed(), peak - base, more, after - base, hold_s), *self.all_faults()]
        return Outcome(name, opened, sent, base, peak, base + more, after, hold_s, tuple(faults))

    def hold_s(self) -> float:
        """The longest turn of the loop, or hold of the interpreter by any thread, since the last call: by CPU."""
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(30)
                asking.connect(str(self._cost))
                told: dict[str, float] = json.loads(asking.recv(1000))
        except (OSError, ValueError):
            return float("nan")
        return max(told["step"], told["hold"])

    def _warm_up(self) -> None:
        """Until memory stays as it is. Flight's process has begun, as neighbours use it; the one that makes index files
        counts at its stated size until it has.
        """
        began = time.monotonic()
        before, since = 0, began
        while (now := time.monotonic()) < min(began + WARM_S_MAX, since + WARM_S):
            if abs((held := self._held()) - before) > MIB:
                before, since = held, now
            time.sleep(SAMPLE_S)

    def _left(self, base: int) -> int:
        until = time.monotonic() + LEFT_S
        while (after := self._held()) > base + LEFT_BYTES and time.monotonic() < until:
            time.sleep(SAMPLE_S)
        return after

    def _held(self) -> int:
        """Anonymous bytes of all processes of the server; 0 where one has just ended."""
        if not self.server.pids:
            return 0
        its = self.server.pids.server
        try:
            workers = [
                pid for pid in children(its) if b"maintenance.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ]
            return anonymous_bytes(its) + max(WORKER_BYTES - sum(map(own_anonymous_bytes, workers)), 0)
        except (OSError, StopIteration):
            return 0

    def _sample(self) -> None:
        self._peak = max(self._peak, self._held())


def unkept(killed: int, peak: int, allowed: int, after: int, hold_s: float) -> list[str]:
    """What was not kept of what is promised; bytes are those above the base."""
    judged = {
        f"the kernel ended {killed} processes for want of memory": killed,
        f"{peak / MIB:.0f} MiB more were held, {allowed / MIB:.0f} are allowed": peak > allowed,
        f"{after / MIB:.0f} MiB more are left after {LEFT_S:g} s": after > LEFT_BYTES,
        f"one hold took {1000 * hold_s:.0f} ms of CPU": not hold_s <= HOLD_S_MAX,
    }
    return [fault for fault, is_so in judged.items() if is_so]


class Prepared:
    """A data directory with the large events, made once."""

    faults: Sequence[str] = ()
    """What neighbours had to complain about in the end."""
    waits: Sequence[Waits] = ()
    """How long neighbours waited for their appends."""
    why_not = ""
    """Why there was no cgroup; empty where there was."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._turn = folder, 0
        (folder / "first").mkdir()
        with MortalServer(folder / "first", _budget(WRITING_BYTES)) as server:
            with server.place.client() as client:
                log = client.create(LARGE, LogSettings())
                for number in range(60):
                    log.append([Event("Large", bytes([97 + number % 26]) * 1_000_000)])
                log = client.create(HUGE, LogSettings(event_bytes_max=64 * MIB))
                log.append([Event("Huge", b'"' + b"h" * (64 * MIB - 1024) + b'"')])
            server.end()

    def run(self, names: Sequence[str], quiet_s: float = 0.0) -> Iterator[Outcome]:
        """These loads, one after the other, on one server with a copy of the directory; before them nobody."""
        self._turn += 1
        folder = self._folder / f"{self._turn}"
        shutil.copytree(self._folder / "first", folder, ignore=shutil.ignore_patterns("*.sock"))
        cost = folder / "cost"
        with Cage(CAGE_BYTES) as cage:
            self.why_not = cage.why_not
            observed = cage.program(sys.executable, "-m", "tests.cost.observed", str(cost))
            server = MortalServer(folder, _budget(BUDGET_BYTES), retry_ms_max=None, program=observed)
            with Watched(server, cage, cost) as watched:
                watched.begin()
                watched.calm(quiet_s)
                for name in names:
                    yield watched.put(name)
                with suppress(Faulty):
                    watched.finish()
                self.faults, self.waits = watched.all_faults(), watched.waits
        shutil.rmtree(folder)


def _budget(size: int) -> str:
    return f"--memory-peers={size // MIB}MiB"


def run_all(names: Sequence[str] | None, told: Told) -> list[str]:
    """Each of these loads, or all, each on a server of its own; a line is told of each. Answers all faults."""
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="headwater-hostile-") as directory:
        prepared = Prepared(Path(directory))
        told(HEADINGS)
        for name in names or LOADS:
            [outcome] = prepared.run([name])
            told(outcome.row())
            further = (fault for fault in prepared.faults if fault not in outcome.faults)
            faults += [*outcome.faults, *(f"{name}: {fault}" for fault in further)]
    if prepared.why_not:
        told(f"no cgroup could be made ({prepared.why_not}): anonymous memory was sampled, and nothing bounded it")
    return faults


class Cage:
    """A context manager: processes that `program` starts have so many bytes together, and the kernel ends who exceeds.

    Where none can be made, nothing is bounded, and `why_not` says why.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.why_not = ""
        """Empty where there is one."""
        self._group: Path | None = None

    def __enter__(self) -> Cage:
        is_v1 = (V1 / "memory.limit_in_bytes").exists()
        group = (V1 if is_v1 else V2) / f"headwater-load-{os.getpid()}-{time.monotonic_ns()}"
        try:
            if not is_v1 and "memory" not in (V2 / "cgroup.subtree_control").read_text().split():
                (V2 / "cgroup.subtree_control").write_text("+memory")
            group.mkdir()
            self._group = group
            (group / ("memory.limit_in_bytes" if is_v1 else "memory.max")).write_text(str(self.bytes_max))
        except OSError as error:
            self.why_not = str(error)
            self.__exit__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._group is not None:
            for _ in range(100):  # who has just ended may still be counted
                with suppress(OSError):
                    self._group.rmdir()
                    break
                time.sleep(0.05)
            self._group = None

    def program(self, *command: str) -> tuple[str, ...]:
        """The command, whose process enters first."""
        if self._group is None:
            return command
        return ("/bin/sh", "-c", f'echo $$ > "{self._group}/cgroup.procs" && exec "$@"', "sh", *command)

    def killed(self) -> int:
        """How many processes the kernel has ended for want of memory."""
        for name in ("memory.oom_control", "memory.events"):
            with suppress(OSError, TypeError):
                lines = (self._group / name).read_text().splitlines()  # type: ignore[operator]
                return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        return 0
