"""What hostile peers may make a server hold: each load alone, in a cgroup of 512 MiB, with a budget of 64 MiB.

Good neighbours work beside each load. Judged are anonymous memory of all processes of the server, what of it is left
after the peers have gone, the longest hold of the interpreter, and what neighbours wrote and saw.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import anonymous_bytes, children

from headwater.amqp.protocol.frames import AMQP_HEADER, SASL_HEADER
from headwater.core.event import Event
from headwater.core.settings import LogSettings
from tests.cost.measuring import GENEROSITY
from tests.server.starting import PROGRAM

from .. import losses
from ..place import LOG, Place
from ..run import Faulty
from ..server import MortalServer
from . import peers
from .cage import Cage
from .peers import MIB, Crowd, Peer
from .street import Street, Waits

CAGE_BYTES = 512 * MIB
BUDGET_BYTES, WRITING_BYTES = 64 * MIB, 1024 * MIB
STRANGERS_BYTES = 16 * MIB
"""So much more all peers before their login may take."""
CONNECTION_BYTES = 64 * 1024
WORKER_BYTES = 60 * MIB
"""Of the stated base: the process that makes index files comes and goes."""
LEFT_BYTES, LEFT_S = 32 * MIB, 10.0
"""So much more may be left so long after the peers have gone."""
HOLD_S_MAX = 0.05 * GENEROSITY
"""50 ms on a core without neighbours."""
SAMPLE_S = 0.05
PUSH_S, STAY_S = 60.0, 2.0
"""Peers send for so long at most, and stay for so long without taking anything."""
WARM_S, WARM_S_MAX = 4.0, 40.0
"""Memory is at its base when it has stayed as it is for so long."""
PROCESSES = 3
LARGE, HUGE = "large", "huge"
"""The log of 60 events of 1 MB, and the one with an event of 64 MiB."""
_ALL = b'{"query": "all"}'
FORMS = {
    "ndjson": "application/x-ndjson",
    "json": "application/json",
    "messagepack": "application/vnd.msgpack",
    "cloudevents": "application/cloudevents-batch+json",
    "arrow": "application/vnd.apache.arrow.stream",
}
Many = Callable[[Place], Iterable[Peer]]


class Load(NamedTuple):
    """Peers that come together."""

    make: Many
    are_strangers: bool = False


class Outcome(NamedTuple):
    """What one load did."""

    name: str
    connected: int
    """Peers whose connection was open when all had sent what they could."""
    sent: int
    """Bytes that the server, or the kernel for it, took from them."""
    base: int
    """Anonymous bytes before it."""
    peak: int
    allowed: int
    after: int
    """Ten seconds after the peers had gone, or as soon as it was little enough."""
    hold_s: float
    faults: tuple[str, ...]

    def row(self) -> str:
        """A line of the table."""
        sizes = " | ".join(f"{each / MIB:.0f}" for each in (self.sent, self.base, self.peak, self.allowed, self.after))
        verdict = "; ".join(" ".join(fault.split())[:120] for fault in self.faults[:4]) or "as promised"
        return f"| {self.name} | {self.connected} | {sizes} | {1000 * self.hold_s:.0f} | {verdict} |"


HEADINGS = (
    "| load | peers open | sent MiB | before MiB | peak MiB | allowed MiB | after MiB | hold ms | verdict |\n"
    + "|---" * 9
    + "|"
)


def _strangers(make: Callable[[Place], Peer]) -> Load:
    return Load(lambda place: [make(place)] * 100, are_strangers=True)


def _readers(count: int, log: str, form: str) -> Load:
    def make(place: Place) -> Iterable[Peer]:
        if form == "sse":
            path = f"/logs/{log}/subscribe?query=all&after=0"
            return [peers.http(place, path, accept="text/event-stream", method="GET")] * count
        if form == "push":
            return [peers.push(place, log, f"Bad{number}") for number in range(count)]
        if form == "amqp":
            return [peers.receiver(place, log) for _ in range(count)]
        return [peers.http(place, f"/logs/{log}/read", accept=FORMS[form], body=_ALL)] * count

    return Load(make)


def _halves(make: Callable[[Place], Peer]) -> Load:
    return Load(lambda place: [make(place) for _ in range(100)])


LOADS: dict[str, Load] = {
    "nobody": Load(lambda place: []),
    "strangers-http": _strangers(lambda place: peers.http(place, f"/logs/{LOG}/append", is_known=False)),
    "strangers-futoin": _strangers(lambda place: peers.http(place, f"/futoin/{LOG}", is_known=False)),
    "strangers-websocket": _strangers(lambda place: peers.websocket(place, LOG, is_known=False)),
    "strangers-sasl": _strangers(lambda place: peers.amqp_stranger(place, SASL_HEADER, 1)),
    "strangers-amqp": _strangers(lambda place: peers.amqp_stranger(place, AMQP_HEADER, 0)),
    "strangers-flight": _strangers(lambda place: peers.flight(place, is_known=False)),
    **{f"readers-{form}": _readers(150, LARGE, form) for form in (*FORMS, "sse", "push")},
    "readers-amqp": _readers(20, LARGE, "amqp"),
    **{f"huge-{form}": _readers(50, HUGE, form) for form in (*FORMS, "sse", "push")},
    "huge-amqp": _readers(20, HUGE, "amqp"),
    "half-bodies": _halves(lambda place: peers.http(place, "/logs/noise/append")),
    "half-calls": _halves(lambda place: peers.http(place, "/futoin/noise")),
    "half-messages": _halves(lambda place: peers.websocket(place, "noise")),
    "half-frames": _halves(peers.half_frames),
    "half-batches": _halves(lambda place: peers.flight(place, is_known=True)),
}
LOADS["all"] = Load(lambda place: [peer for load in list(LOADS.values())[:-1] for peer in list(load.make(place))[::5]])
DAILY = ("readers-ndjson", "strangers-websocket", "strangers-flight", "half-messages", "huge-amqp", "half-bodies")
"""One of each protocol, for every day."""


class Watched(Street):
    """Neighbours, and the server's memory while peers come and go."""

    def __init__(self, server: MortalServer, cage: Cage, cost: Path) -> None:
        super().__init__(server, is_lost=losses.too_busy)
        self._cage, self._cost = cage, cost
        self._ending = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Watched:
        super().__enter__()
        self._thread.start()
        self._warm_up()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ending.set()
        super().__exit__()

    def put(self, name: str, load: Load) -> Outcome:
        """Let the peers do what they can, and judge."""
        base = self._held() + WORKER_BYTES * max(PROCESSES - self._processes(), 0)
        self.hold_s()
        self._peak = base
        began = time.monotonic()
        with Crowd(list(load.make(self.bad))) as crowd:
            crowd.push(PUSH_S)
            time.sleep(STAY_S)
            more = STRANGERS_BYTES if load.are_strangers else BUDGET_BYTES + CONNECTION_BYTES * len(crowd.connections)
            opened, sent = crowd.open, crowd.sent
            self.measure(name, began)
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
        """Until memory stays as it is, and all processes have begun: Flight's, and the one that makes index files."""
        began = time.monotonic()
        before, since = 0, began
        while (now := time.monotonic()) < began + WARM_S_MAX and (
            now < since + WARM_S or self._processes() < PROCESSES
        ):
            if abs((held := self._held()) - before) > MIB:
                before, since = held, now
            time.sleep(SAMPLE_S)

    def _processes(self) -> int:
        return 1 + len(children(self.server.pids.server)) if self.server.pids else 0

    def _left(self, base: int) -> int:
        until = time.monotonic() + LEFT_S
        while (after := self._held()) > base + LEFT_BYTES and time.monotonic() < until:
            time.sleep(SAMPLE_S)
        return after

    def _held(self) -> int:
        """Anonymous bytes of all processes of the server; 0 where one has just ended."""
        try:
            return anonymous_bytes(self.server.pids.server) if self.server.pids else 0
        except (OSError, StopIteration):
            return 0

    def _sample(self) -> None:
        while not self._ending.wait(SAMPLE_S):
            self._peak = max(self._peak, self._held())


def unkept(killed: int, peak: int, allowed: int, after: int, hold_s: float) -> list[str]:
    """What was not kept of what is promised; bytes are those above the base."""
    found = []
    if killed:
        found.append(f"the kernel ended {killed} processes for want of memory")
    if peak > allowed:
        found.append(f"{peak / MIB:.0f} MiB more were held, {allowed / MIB:.0f} are allowed")
    if after > LEFT_BYTES:
        found.append(f"{after / MIB:.0f} MiB more are left after {LEFT_S:g} s")
    if not hold_s <= HOLD_S_MAX:
        found.append(f"one hold took {1000 * hold_s:.0f} ms of CPU")
    return found


class Prepared:
    """A data directory with the large events, made once; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._turn = folder, 0
        (folder / "first").mkdir()
        arguments = self._budget(WRITING_BYTES)
        with MortalServer(folder / "first", *arguments) as server:
            _write(server.place)
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
            server = MortalServer(folder, *self._budget(BUDGET_BYTES), retry_ms_max=None, program=observed)
            with Watched(server, cage, cost) as watched:
                watched.calm(quiet_s)
                for name in names:
                    yield watched.put(name, LOADS[name])
                with suppress(Faulty):
                    watched.finish()
                self.faults, self.waits = watched.all_faults(), watched.waits
        shutil.rmtree(folder)

    faults: Sequence[str] = ()
    """What neighbours had to complain about in the end."""
    waits: Sequence[Waits] = ()
    """How long neighbours waited for their appends."""
    why_not = ""
    """Why there was no cgroup; empty where there was."""

    def _budget(self, size: int) -> Sequence[str]:
        return (f"--memory-peers={size // MIB}MiB",) if has_budget() else ()


def has_budget() -> bool:
    """Whether this server has the setting at all."""
    command = [*PROGRAM, "serve", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    return "--memory-peers" in told


def _write(place: Place) -> None:
    with place.client() as server:
        log = server.create(LARGE, LogSettings())
        for number in range(60):
            log.append([Event("Large", bytes([97 + number % 26]) * 1_000_000)])
        log = server.create(HUGE, LogSettings(event_bytes_max=64 * MIB))
        log.append([Event("Huge", b'"' + b"h" * (64 * MIB - 1024) + b'"')])


def run_all(names: Sequence[str] | None, folder: Path, told: Callable[[str], object]) -> list[str]:
    """Each of these loads, or all, each on a server of its own; a line is told of each. Answers all faults."""
    prepared, faults = Prepared(folder), list[str]()
    told(HEADINGS)
    for name in names or LOADS:
        [outcome] = prepared.run([name])
        told(outcome.row())
        faults += [*outcome.faults, *(f"{name}: {fault}" for fault in prepared.faults if fault not in outcome.faults)]
    if prepared.why_not:
        told(f"no cgroup could be made ({prepared.why_not}): anonymous memory was sampled, and nothing bounded it")
    return faults


def main(names: Sequence[str] | None, told: Callable[[str], object]) -> int:
    """Answers the exit code: 1 where a promise was not kept."""
    with tempfile.TemporaryDirectory(prefix="headwater-hostile-") as directory:
        return 1 if run_all(names, Path(directory), told) else 0
