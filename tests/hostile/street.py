"""A server, good neighbours, and one hostile one at a time: what was acknowledged is there, once, in order, for all.

    python -m tests.hostile.street [SECONDS [SCALE]]

The neighbours live through all attacks on the same connections. How long they wait is told, and not judged: that
depends on the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.client import connect
from headwater.server.users.accounts import hash_password
from tests.server.bulk.test_bulk import WITH_FLIGHT, bulk_pid
from tests.server.running import RunningServer, environment
from tests.server.starting import PROGRAM

from .attacks import AT_IT, ATTACKS, NOISE
from .neighbours import LOG, Place, Reader, Writer
from .readers import READERS, CneReader
from .writers import WRITERS

PASSWORD = "correcthorse"
PATIENCE_S = 240.0
"""How long something may take that must come to pass in the end: for ever, but that a test must end. On a busy machine,
what a hostile client has left behind may take a minute to be dealt with."""
ROOT = Path(__file__).resolve().parents[2]


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


class Street:
    """A server with neighbours; a context manager that ends them."""

    def __init__(self, folder: Path) -> None:
        (folder / "config.toml").write_text(configuration())
        arguments = ("--config", "config.toml", "--data", "data", "--log", LOG, "--log", NOISE, *WITH_FLIGHT)
        self.server = RunningServer(*arguments, cwd=folder, program=PROGRAM)
        addresses = (self.server.url, self.server.further_url("amqp"), self.server.further_url("grpc"))
        self.good = Place(*addresses, "alice", PASSWORD)
        self.bad = Place(*addresses, "mallory", PASSWORD)
        self.writers: list[Writer] = []
        self.readers: list[Reader] = []
        self.waits: list[Waits] = []

    def __enter__(self) -> Street:
        try:
            self.bulk_process = bulk_pid(self.server)
            self.readers = [kind(self.good) for kind in READERS]
            self.writers = [kind(self.good) for kind in WRITERS]
            for each in self.readers:
                each.start()
            [webhook] = [each for each in self.readers if isinstance(each, CneReader)]
            self.until(webhook.is_ready.is_set, "a webhook to be registered")
            for each in self.writers:
                each.start()
            self.settle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for each in (*self.writers, *self.readers):
            each.end()
        with self.server:
            pass
        for each in (*self.writers, *self.readers):
            each.stop()

    def calm(self, seconds: float) -> None:
        """Nobody attacks."""
        began = time.monotonic()
        time.sleep(seconds)
        self._measure("nobody", began)

    def attack(self, protocol: str, seconds: float, scale: int = 1) -> dict[str, int]:
        """One client misbehaves for a while, and dies. Answers how often it did what."""
        began = time.monotonic()
        command = [sys.executable, "-m", "tests.hostile.attacks", protocol, str(scale), json.dumps(self.bad)]
        path = os.pathsep.join((str(ROOT), environment()["PYTHONPATH"]))
        with subprocess.Popen(
            command, cwd=ROOT, env=environment(PYTHONPATH=path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
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
        self._measure(protocol, began)
        done: dict[str, int] = json.loads(told)
        return done

    def settle(self) -> None:
        """Each neighbour gets something done that it begins now: it is not shut out for good."""
        began = time.monotonic()
        for writer in self.writers:
            self.until(
                lambda writer=writer: bool(writer.latencies) and writer.latencies[-1][0] > began,
                f"an append of {writer.name}",
            )
        newest = {writer.name: list(writer.acknowledged)[-1] for writer in self.writers}
        for reader in self.readers:
            for name, marker in newest.items():
                if reader.writers is None or name in reader.writers:
                    self.until(lambda m=marker, r=reader: m in r.seen_at, f"{marker} to be seen by {reader.name}")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for something that must come to pass, while nobody is at fault."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            self.check_faults()
            assert time.monotonic() < deadline, f"{what} did not come to pass; they stand at:\n{self._stand()}"
            time.sleep(0.05)

    def check_faults(self) -> None:
        """Raises AssertionError where a neighbour was hurt, or a process of the server ended."""
        faults = {type(each).__name__: repr(each.fault) for each in (*self.writers, *self.readers) if each.fault}
        assert not faults, faults
        assert self.server.process.poll() is None, self.server.errors[-3000:]
        assert bulk_pid(self.server) == self.bulk_process, self.server.errors[-3000:]

    def finish(self) -> None:
        """Let the neighbours end, and compare what they wrote and saw. Raises AssertionError."""
        for writer in self.writers:
            writer.stop()
        self.check_faults()
        written = [marker for writer in self.writers for marker in writer.acknowledged]
        for reader in self.readers:
            mine = [marker for marker in written if reader.writers is None or marker.split(":")[1] in reader.writers]
            self.until(
                lambda r=reader, m=mine: len(r.seen_at) >= len(m), f"{reader.name} to see all that was acknowledged"
            )
        for reader in self.readers:
            reader.stop()
        self.check_faults()
        self.compare()

    def compare(self) -> None:
        """What is stored with what was written, and what was seen with that. Raises AssertionError."""
        stored = self._stored()
        for writer in self.writers:
            its = [marker for marker in stored if marker.split(":")[1] == writer.name]
            assert its == list(writer.acknowledged), f"what {writer.name} wrote is not there once, in its order"
        for reader in self.readers:
            expected = [marker for marker in stored if reader.writers is None or marker.split(":")[1] in reader.writers]
            assert seen_once(reader) == expected, f"{reader.name} did not see each event once, in the order of the log"

    def faults_told(self) -> list[str]:
        """Lines of the server's diary that nobody's input may lead to."""
        return [line for line in self.server.errors.splitlines() if "level=error" in line or "Traceback" in line]

    def open_files(self) -> int:
        """Of the main process."""
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def memory_mib(self) -> int:
        """Of the main process, resident."""
        return resident_mib(self.server.process.pid)

    def table(self) -> str:
        """How long neighbours waited."""
        lines = ["| hostile | neighbour | appends | median ms | 99% ms | most ms | seen, median ms |", "|---" * 7 + "|"]
        for name, protocol, appends, *milliseconds in self.waits:
            cells = " | ".join(f"{each:.1f}" for each in milliseconds)
            lines.append(f"| {name} | {protocol} | {appends} | {cells} |")
        return "\n".join(lines)

    def _stand(self) -> str:
        """In which lines the neighbours are."""
        return "\n".join(f"{type(each).__name__}: {each.stands_at}" for each in (*self.writers, *self.readers))

    def _stored(self) -> list[str]:
        with connect(self.good.http, user=self.good.user, password=self.good.password) as server:
            collector = READERS[0](self.good)
            for event in server.log(LOG).read():
                collector.note(event.sequence_number, event.data)
        return collector.seen

    def _measure(self, name: str, began: float) -> None:
        seen = {reader.name: reader.seen_at for reader in self.readers}
        for writer in self.writers:
            waits = sorted(1000 * took for at, took in writer.latencies if at >= began)
            sent = {marker: at for marker, at in writer.acknowledged.copy().items() if at >= began}
            its = seen[writer.name]
            delays = sorted(1000 * (its[marker] - at) for marker, at in sent.items() if marker in its)
            parts = (_part(waits, 0.5), _part(waits, 0.99), _part(waits, 1), _part(delays, 0.5))
            self.waits.append(Waits(name, writer.name, len(waits), *parts))


def resident_mib(pid: int) -> int:
    """How much memory a process has (VmRSS)."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


def seen_once(reader: Reader) -> list[str]:
    """What a reader saw. A webhook may be called again with what it had: where its answer came too late, say."""
    return list(dict.fromkeys(reader.seen)) if isinstance(reader, CneReader) else reader.seen


def _part(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")


def configuration() -> str:
    """Of a server with the two users."""
    hashed = hash_password(PASSWORD)
    return f"""
[cne]
log = "{LOG}"
[users.alice]
password = "{hashed}"
grants = ["all:*"]
[users.mallory]
password = "{hashed}"
grants = ["all:{NOISE}", "read:{LOG}"]
"""


def main(seconds: float = 30.0, scale: float = 4) -> None:
    """Attack by each protocol in turn, and tell."""
    with tempfile.TemporaryDirectory(prefix="headwater-hostile-") as directory, Street(Path(directory)) as street:
        street.calm(seconds / 2)
        for protocol in ATTACKS:
            done = street.attack(protocol, seconds, int(scale))
            print(f"{protocol}: {json.dumps(done)}; {street.memory_mib()} MiB, {street.open_files()} files", flush=True)
        street.finish()
        assert not street.faults_told(), street.faults_told()[:10]
        print(street.table())
        total = sum(len(writer.acknowledged) for writer in street.writers)
    print(f"{total:,} events acknowledged; each was there once, in order, for every protocol")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
