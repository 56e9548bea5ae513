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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.server.running import environment

from .. import losses, readers, writers
from ..run import Run, end, stored_in
from ..server import MortalServer
from .attacks import AT_IT

PATIENCE_S = 240.0
"""How long something may take that must come to pass in the end: for ever, but that a test must end. On a busy machine,
what a hostile client has left behind may take a minute to be dealt with."""
PAUSE_S = 0.02
"""Between two appends of a neighbour: it is no load."""
ROOT = Path(__file__).resolve().parents[3]


class Waits(NamedTuple):
    """How long neighbours waited in one stretch of time."""

    name: str
    protocol: str
    appends: int
    median_ms: float
    last_percent_ms: float
    most_ms: float
    seen_median_ms: float
    """From sending an event to its being seen by the reader of the same protocol."""


class Street(Run):
    """A server with neighbours; a context manager that ends them."""

    patience_s = PATIENCE_S

    def __init__(
        self,
        server: MortalServer,
        seed: int = 0,
        told: Callable[[str], object] = lambda _: None,
        is_lost: losses.Losses = losses.nothing,
    ) -> None:
        super().__init__(seed, told, is_lost)
        self.server = server
        self.bad = server.place._replace(user="mallory")
        self.waits: list[Waits] = []
        self.writers = self.make(server.place, writers.ONE_EACH)
        self.readers = self.make(server.place, readers.ONE_EACH)
        for writer in self.writers:
            writer.pause_s = PAUSE_S

    def __enter__(self) -> Street:
        try:
            self.begin()
            self.settle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for each in self.everybody:
            each.is_given_up = True
            each.end()
        self.server.__exit__()
        self.give_up()

    def calm(self, seconds: float) -> None:
        """Nobody attacks."""
        began = time.monotonic()
        self.wait(seconds)
        self.measure("nobody", began)

    def attack(self, protocol: str, seconds: float, scale: int = 1) -> dict[str, int]:
        """One client misbehaves for a while, and dies. Answers how often it did what."""
        began = time.monotonic()
        command = [sys.executable, "-m", "tests.load.hostile.attacks", protocol, str(scale), json.dumps(self.bad)]
        path = os.pathsep.join((str(ROOT), environment()["PYTHONPATH"]))
        variables = environment(PYTHONPATH=path, ATTACK_SEED=str(self.seed))
        with subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as attacker:
            assert attacker.stdout is not None
            try:
                assert attacker.stdout.readline() == AT_IT, f"the hostile client of {protocol} did not get at it"
                time.sleep(seconds)  # counted from there: how long a process takes to start is the machine's affair
                attacker.terminate()
                told, _ = attacker.communicate(timeout=30)
            finally:
                attacker.kill()
        self.settle()
        self.measure(protocol, began)
        done: dict[str, int] = json.loads(told)
        return done

    def settle(self) -> None:
        """Each neighbour gets something done that it begins now: it is not shut out for good. Raises Faulty."""
        began = time.monotonic()
        for writer in self.writers:
            self.until(
                lambda w=writer: bool(w.latencies) and w.latencies[-1][0] > began,
                PATIENCE_S,
                f"{writer.name} to append",
            )
        newest = {writer: list(writer.acknowledged)[-1] for writer in self.writers}
        for reader in self.readers:
            for writer, marker in newest.items():
                if reader.sees(writer):
                    self.until(
                        lambda m=marker, r=reader: r.saw(m), PATIENCE_S, f"{marker} to be seen by {reader.page.name}"
                    )

    def finish(self) -> None:
        """Let the neighbours end, and compare what they wrote and saw. Raises Faulty."""
        self.catch_up()
        self.compare(stored_in(self.server.place))
        end(self.readers)
        self.check()

    def all_faults(self) -> list[str]:
        if self.server.pids:
            self.server.look()
        return [*super().all_faults(), *self.server.faults]

    def table(self) -> str:
        """How long neighbours waited."""
        lines = ["| hostile | neighbour | appends | median ms | 99% ms | most ms | seen, median ms |", "|---" * 7 + "|"]
        for name, protocol, appends, *milliseconds in self.waits:
            cells = " | ".join(f"{each:.1f}" for each in milliseconds)
            lines.append(f"| {name} | {protocol} | {appends} | {cells} |")
        return "\n".join(lines)

    def measure(self, name: str, began: float) -> None:
        """Note how long neighbours have waited since then."""
        for writer, reader in zip(self.writers, self.readers, strict=True):
            waits = sorted(1000 * took for at, took in writer.latencies if at >= began)
            sent = {marker: at for marker, at in writer.acknowledged.copy().items() if at >= began}
            delays = sorted(1000 * (reader.seen_at[marker] - at) for marker, at in sent.items() if reader.saw(marker))
            parts = (_part(waits, 0.5), _part(waits, 0.99), _part(waits, 1), _part(delays, 0.5))
            self.waits.append(Waits(name, writer.name, len(waits), *parts))


def _part(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")
