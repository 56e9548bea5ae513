"""One server that lives, dies and lives again, at the same addresses, on the same data."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import children

from headwater.server.users.accounts import hash_password
from tests.ports import free_ports
from tests.server.running import RunningServer
from tests.server.starting import PROGRAM
from tests.waiting import eventually

from .clients import TRIMMED
from .place import LOG, Place
from .run import Run

NOISE = "noise"
"""The log that a hostile client may do everything to; of the others' log it may read."""
PROTOCOLS = ("http", "amqp", "flight")
PASSWORD = "correcthorse"
OWN_DEATH = "the bulk process died; starting another"


class Pids(NamedTuple):
    """The processes that live as long as the server; indexes are made by a third one, which is small."""

    server: int
    bulk: int


class MortalServer:
    """A context manager that ends it for good."""

    def __init__(
        self, folder: Path, *arguments: str, retry_ms_max: int | None = 500, program: Sequence[str] = PROGRAM
    ) -> None:
        """`retry_ms_max`: of webhooks; None: the server's own. `program`: what is run with the arguments of `serve`."""
        (folder / "config.toml").write_text(configuration(retry_ms_max))
        ports = dict(zip(PROTOCOLS, free_ports(3), strict=True))
        self._folder, self._program = folder, program
        self._arguments = (*(f"--{name}-port={port}" for name, port in ports.items()), *arguments)
        self.place = place_at(ports)
        self.ends: Counter[str] = Counter()
        """How often it was ended how."""
        self.faults: list[str] = []
        self.pids: Pids | None = None
        """Its processes, while it lives."""
        self._start()

    def __enter__(self) -> MortalServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.pids = None
        self._server.__exit__()

    def open_files(self) -> int:
        return sum(open_files(self._server.process.pid))

    def kill(self) -> None:
        """SIGKILL for the server, which begins again; the bulk process goes by itself."""
        self.end("SIGKILL")
        self._start()

    def stop(self) -> None:
        """SIGTERM, and it begins again."""
        self.end()
        self._start()

    def end(self, how: str = "SIGTERM") -> None:
        """Send it that signal; SIGTERM it answers by ending in order."""
        self.pids = None
        self.ends[how] += 1
        if how == "SIGTERM" and (code := self._server.terminate()) != 0:
            self.faults.append(f"the server ended in order with exit code {code}")
        self._server.process.kill()
        self._server.process.wait()
        self._listen()
        self._server.__exit__()

    def kill_bulk(self) -> None:
        """SIGKILL for the bulk process; the server starts another."""
        killed = self.pids
        assert killed is not None
        self._bulk_kills += 1
        self.ends["SIGKILL of the bulk process"] += 1
        os.kill(killed.bulk, signal.SIGKILL)
        eventually(
            lambda: (self._find_pids() or killed).bulk != killed.bulk, lambda: "no other bulk process was started"
        )

    def look(self) -> None:
        """Note it where a process ended by itself."""
        if self._server.process.poll() is not None:
            self.faults.append(f"the server ended by itself: {self._server.errors[-2000:]}")
        self._listen()

    def _start(self) -> None:
        server = self._server = RunningServer(
            *("--config=config.toml", "--data=data", "--flight-enabled=true"),
            "--flight-start=at_once",  # its memory is judged from the beginning
            *self._arguments,
            cwd=self._folder,
            program=self._program,
        )
        self._bulk_kills = 0
        if self._find_pids() is None:
            with server:
                raise AssertionError(f"the server did not start: {server.errors[-2000:]}")

    def _find_pids(self) -> Pids | None:
        self.pids = pids_of(self._server.process.pid) or self.pids
        return self.pids

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


def open_files(pid: int) -> tuple[int, int]:
    """How many sockets and the like are open, and how many files."""
    kinds = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            kinds.append(os.readlink(descriptor).startswith("/"))
    return len(kinds) - sum(kinds), sum(kinds)


def pids_of(server: int) -> Pids | None:
    """The processes of a server; None where one of them does not live."""
    for child in children(server):
        with suppress(FileNotFoundError, ProcessLookupError):
            if b"headwater.server.bulk.process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return Pids(server, child)
    return None


def place_at(ports: Mapping[str, int]) -> Place:
    """The good user of a server on this machine, by the ports of its protocols."""
    http, amqp, flight = (f"127.0.0.1:{ports[protocol]}" for protocol in PROTOCOLS)
    return Place(f"http://{http}", f"amqp://{amqp}", f"grpc://{flight}", "alice", PASSWORD)


@cache
def password_hash() -> str:
    """Of the password of all users."""
    return hash_password(PASSWORD)


def configuration(retry_ms_max: int | None, *logs: str) -> str:
    """Of a server with a log for everybody, one for each purpose and these, a good user and a bad one."""
    retry = "" if retry_ms_max is None else f'retry_ms_max = "{retry_ms_max}ms"'
    return f"""
[cne]
log = "{LOG}"
{retry}
{"".join(f"[logs.{log}]" + chr(10) for log in (LOG, NOISE, *logs))}
[logs.{TRIMMED}]
retention_ms = 20000
[users.alice]
password = "{password_hash()}"
grants = ["all:*"]
[users.mallory]
password = "{password_hash()}"
grants = ["all:{NOISE}", "read:*", "manage:large", "manage:huge"]
"""
