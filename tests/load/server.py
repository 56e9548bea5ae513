"""One server that lives, dies and lives again, at the same addresses, on the same data."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from headwater.server.users.accounts import hash_password
from tests.ports import free_ports
from tests.server.running import RunningServer
from tests.server.starting import PROGRAM

from .clients import TRIMMED
from .place import LOG, Place
from .run import Run
from .vitals import Pids, open_files, pids_of

NOISE = "noise"
"""The log that a hostile client may do everything to; of the others' log it may read."""
PROTOCOLS = ("http", "amqp", "flight")
PASSWORD = "correcthorse"
PATIENCE_S = 60.0
OWN_DEATH = "the bulk process died; another is started"


class MortalServer:
    """A context manager that ends it for good."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        retry_ms_max: int | None = 500,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """`retry_ms_max`: of webhooks; None: the server's own. `program`: what is run with the arguments of `serve`."""
        self._folder, self.arguments, self._program = folder, arguments, program
        (folder / "config.toml").write_text(configuration(retry_ms_max))
        self._ports = dict(zip(PROTOCOLS, free_ports(3), strict=True))
        self.place = place_at(self._ports)
        self.ends: Counter[str] = Counter()
        """How often it was ended how."""
        self.faults: list[str] = []
        self._bulk_kills = 0
        self._pids: Pids | None = None
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

    @property
    def errors(self) -> str:
        """What it said on stderr in this life."""
        return self._server.errors

    def open_files(self) -> int:
        """Sockets and files that the main process has open."""
        return sum(open_files(self._server.process.pid))

    def kill(self) -> None:
        """SIGKILL for the server; the bulk process goes by itself."""
        self._end("SIGKILL", 0)

    def stop(self, *arguments: str) -> None:
        """SIGTERM, which it answers by ending in order; from then on with these arguments, if any are given."""
        self.arguments = arguments or self.arguments
        self._end("SIGTERM", 1)

    def end(self) -> None:
        """SIGTERM, for good."""
        self._end("SIGTERM", 1, is_last=True)

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

    def _end(self, how: str, grace: int, *, is_last: bool = False) -> None:
        self._pids = None
        self.ends[how] += 1
        if grace and (code := self._server.terminate()) != 0:
            self.faults.append(f"the server ended in order with exit code {code}")
        self._server.process.kill()
        self._server.process.wait()
        self._listen()
        with self._server:
            pass
        if not is_last:
            self._server = self._start()

    def _start(self) -> RunningServer:
        arguments = [f"--{name}-port={port}" for name, port in self._ports.items()]
        server = RunningServer(
            "--config=config.toml",
            "--data=data",
            "--flight-enabled=true",
            "--flight-start=at_once",  # its memory is judged from the beginning
            *arguments,
            *self.arguments,
            cwd=self._folder,
            program=self._program,
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


class OneServer(Run):
    """A run on one server, which ends with it, and whose complaints are faults."""

    def __init__(self, server: MortalServer, *given: Any, **options: Any) -> None:
        super().__init__(server.place, *given, **options)
        self.server = self.servers.enter_context(server)

    def all_faults(self) -> list[str]:
        if self.server.pids:
            self.server.look()
        return [*super().all_faults(), *self.server.faults]


def place_at(ports: Mapping[str, int]) -> Place:
    """The good user of a server on this machine, by the ports of its protocols."""
    http, amqp, flight = (f"127.0.0.1:{ports[protocol]}" for protocol in PROTOCOLS)
    return Place(f"http://{http}", f"amqp://{amqp}", f"grpc://{flight}", "alice", PASSWORD)


@cache
def password_hash() -> str:
    """Of the password of all users."""
    return hash_password(PASSWORD)


def configuration(retry_ms_max: int | None) -> str:
    """Of a server with a log for everybody, one for each purpose, a good user and a bad one."""
    retry = "" if retry_ms_max is None else f'retry_ms_max = "{retry_ms_max}ms"'
    return f"""
[cne]
log = "{LOG}"
{retry}
[logs.{LOG}]
[logs.{NOISE}]
[logs.{TRIMMED}]
retention_ms = 20000
[users.alice]
password = "{password_hash()}"
grants = ["all:*"]
[users.mallory]
password = "{password_hash()}"
grants = ["all:{NOISE}", "read:*", "manage:large", "manage:huge"]
"""
