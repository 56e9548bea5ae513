"""One server that lives, dies and lives again, at the same addresses, on the same data."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from pathlib import Path

from headwater.server.users.accounts import hash_password
from tests.hostile.neighbours import LOG, Place
from tests.server.running import RunningServer
from tests.server.starting import PROGRAM

from .clients import TRIMMED
from .vitals import Pids, pids_of

PASSWORD = "correcthorse"
PORTS = range(20_000, 30_000)
"""Not those that the system gives out itself: a client could otherwise connect to itself while the server is away."""
PATIENCE_S = 60.0
OWN_DEATH = "the bulk process died; another is started"


class MortalServer:
    """A context manager that ends it for good."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "config.toml").write_text(_CONFIGURATION.format(hash=hash_password(PASSWORD)))
        self._ports = dict(zip(("http", "amqp", "flight"), free_ports(3), strict=True))
        http, amqp, flight = self._ports.values()
        self.place = Place(
            f"http://127.0.0.1:{http}", f"amqp://127.0.0.1:{amqp}", f"grpc://127.0.0.1:{flight}", "alice", PASSWORD
        )
        self.ends: Counter[str] = Counter()
        """How often it was ended how."""
        self.faults: list[str] = []
        self._bulk_kills = 0
        self._pids: Pids | None = None
        self._lock = threading.Lock()
        self._server = self._start()

    def __enter__(self) -> MortalServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._pids = None
        with self._server:
            pass

    @property
    def pids(self) -> Pids | None:
        """Its processes, while it lives."""
        return self._pids

    def kill(self) -> None:
        """SIGKILL for the server; the bulk process goes by itself."""
        self._end("SIGKILL", 0)

    def stop(self) -> None:
        """SIGTERM, which it answers by ending in order."""
        self._end("SIGTERM", 1)

    def kill_bulk(self) -> None:
        """SIGKILL for the bulk process; the server starts another."""
        killed = self._pids
        assert killed is not None
        self._bulk_kills += 1
        self.ends["SIGKILL of the bulk process"] += 1
        os.kill(killed.bulk, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while (pids := pids_of(self._server.process.pid)) is None or pids.bulk == killed.bulk:
            assert time.monotonic() < deadline, "no other bulk process was started"
            time.sleep(0.05)
        self._pids = pids

    def look(self) -> None:
        """Note it where a process ended by itself."""
        if self._server.process.poll() is not None:
            self.faults.append(f"the server ended by itself: {self._server.errors[-2000:]}")
        self._listen()

    def _end(self, how: str, grace: int) -> None:
        self._pids = None
        self.ends[how] += 1
        if grace and (code := self._server.terminate()) != 0:
            self.faults.append(f"the server ended in order with exit code {code}")
        self._server.process.kill()
        self._server.process.wait()
        self._listen()
        with self._server:
            pass
        self._server = self._start()

    def _start(self) -> RunningServer:
        arguments = [f"--{name}-port={port}" for name, port in self._ports.items()]
        server = RunningServer(
            "--config=config.toml",
            "--data=data",
            "--flight-enabled=true",
            "--flight-start=at_once",  # its memory is judged from the beginning
            *arguments,
            cwd=self._folder,
            program=PROGRAM,
        )
        self._bulk_kills = 0
        self._pids = pids_of(server.process.pid)
        if self._pids is None:
            with server:
                raise AssertionError(f"the server did not start: {server.errors[-2000:]}")
        return server

    def _listen(self) -> None:
        """Note what it complained about."""
        said = self._server.errors.replace("\0", "")  # where a process of an earlier life wrote on, behind its place
        complaints = [line for line in said.splitlines() if "level=error" in line or "Traceback" in line]
        own = [line for line in complaints if OWN_DEATH in line]
        if len(own) > self._bulk_kills:
            self.faults.append(f"a bulk process died by itself: {own}")
        if others := [line for line in complaints if OWN_DEATH not in line]:
            self.faults.append(f"the server complained: {others[:5]}: {said[-2000:]}")


_GIVEN: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports at which nobody listens, each given once in this process: its user may listen later."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            if port not in _GIVEN and probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
                _GIVEN.add(port)
    return found


_CONFIGURATION = f"""
[cne]
log = "{LOG}"
retry_ms_max = "500ms"
[logs.{LOG}]
[logs.{TRIMMED}]
retention_ms = 20000
[users.alice]
password = "{{hash}}"
grants = ["all:*"]
"""
