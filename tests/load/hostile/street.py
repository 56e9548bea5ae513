"""A server, good neighbours, and one hostile client at a time: what was acknowledged is there, once, in order, for all.

The neighbours live through all attacks on the same connections. How long they wait is told, and not judged: that
depends on the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.server.running import environment

from .. import losses, readers, writers
from ..run import Table
from ..server import MortalServer, OneServer
from .attacks import AT_IT, ATTACKS

PATIENCE_S = 240.0
"""How long something may take that must come to pass: a busy machine needs a minute for what is left behind."""
PAUSE_S = 0.02
"""Between two appends of a neighbour: it is no load."""
FILES_MORE = 60
"""Files that may be open more than before: those of segments, and of connections of the neighbours."""
WEBHOOKS = ("subscriptions", "black_holes", "endless_continue")
"""What outlives its client; most are in this server, at both ends."""
ROOT = Path(__file__).resolve().parents[3]


class Waits(NamedTuple):
    """How long neighbours waited in one stretch of time."""

    name: str
    protocol: str
    appends: int
    median_ms: float
    last_percent_ms: float
    most_ms: float


class Street(OneServer):
    """A server with neighbours."""

    patience_s = PATIENCE_S

    def __init__(
        self, server: MortalServer, *given: Any, is_lost: losses.Losses = losses.nothing, scale: int = 1
    ) -> None:
        """`scale`: how much of everything a hostile client does at once."""
        super().__init__(server, *given, is_lost=is_lost)
        self.bad = server.place._replace(user="mallory")
        self.scale = scale
        self.waits: list[Waits] = []
        self.writers, self.readers = self.make(*writers.ONE_EACH), self.make(*readers.ONE_EACH)
        for writer in self.writers:
            writer.pause_s = PAUSE_S

    def begin(self) -> None:
        super().begin()
        self.settle()

    def live(self) -> None:
        """Nobody attacks, and then a hostile client of each protocol in turn, so long each."""
        self.calm(self.seconds / 2)
        for protocol in ATTACKS:
            files = self.server.open_files()
            done = self.attack(protocol)
            webhooks = sum(done.get(f"{kind}: tried", 0) for kind in WEBHOOKS) if protocol == "cne" else 0
            allowed = files + FILES_MORE + 3 * webhooks
            self.until(lambda most=allowed: self.server.open_files() <= most, PATIENCE_S, "what it held to be let go")
            self._told(f"{protocol}: {json.dumps(done)}; {self.server.open_files()} files")

    def calm(self, seconds: float) -> None:
        began = time.monotonic()
        self.wait(seconds)
        self.measure("nobody", began)

    def attack(self, protocol: str) -> dict[str, int]:
        """One client misbehaves for a while, and dies. Answers how often it did what."""
        began = time.monotonic()
        with self.hostile("attacks", protocol, str(self.scale)) as done:
            time.sleep(self.seconds)  # from there on: how long a process takes to start is the machine's affair
        self.settle()
        self.measure(protocol, began)
        return done

    @contextmanager
    def hostile(self, module: str, *arguments: str) -> Iterator[dict[str, int]]:
        """A hostile process that is at it; in the end it says how often it did what, and dies."""
        done: dict[str, int] = {}
        command = [sys.executable, "-m", f"tests.load.hostile.{module}", *arguments, json.dumps(self.bad)]
        path = os.pathsep.join((str(ROOT), environment()["PYTHONPATH"]))
        variables = environment(PYTHONPATH=path, ATTACK_SEED=str(self.seed))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, cwd=ROOT, env=variables, **pipes) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == AT_IT, f"{module} {arguments} did not get at it"
                yield done
                told, _ = process.communicate(timeout=30)  # it ends when its stdin does
                done |= json.loads(told)
            finally:
                process.kill()

    def settle(self) -> None:
        """Each neighbour gets something done that it begins now: it is not shut out for good. Raises Faulty."""
        began = time.monotonic()
        for writer in self.writers:
            what = f"{writer.name} to append"
            self.until(lambda w=writer: bool(w.latencies) and w.latencies[-1][0] > began, PATIENCE_S, what)
        newest = {writer: list(writer.acknowledged)[-1] for writer in self.writers}
        for reader in self.readers:
            for marker in (marker for writer, marker in newest.items() if reader.sees(writer)):
                what = f"{marker} to be seen by {reader.page.name}"
                self.until(lambda m=marker, r=reader: m in r.seen_at, PATIENCE_S, what)

    def report(self) -> Iterator[Table | str]:
        """With how long neighbours waited."""
        rows = [(*its[:2], f"{its.appends:,}", *(f"{each:.1f}" for each in its[3:])) for its in self.waits]
        headings = ("hostile", "neighbour", "appends", "median ms", "99% ms", "most ms")
        yield Table("How long neighbours waited", headings, rows)
        yield from super().report()

    def measure(self, name: str, began: float) -> None:
        """Note how long neighbours have waited since then."""
        for writer in self.writers:
            waits = sorted(1000 * took for at, took in writer.latencies if at >= began)
            self.waits.append(Waits(name, writer.name, len(waits), *(_part(waits, part) for part in (0.5, 0.99, 1))))


def _part(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")
