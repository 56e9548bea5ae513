"""The servers of one home, each a process with its copy, its ports and its own way to the database; and a balancer."""

from __future__ import annotations

import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.homes.postgres_server import Postgres
from tests.homes.proxy import Proxy
from tests.ports import free_ports
from tests.server.running import environment
from tests.server.starting import PROGRAM

from ..run import Repeating
from ..server import PROTOCOLS

LEASE_MS = 2000
END_S = 60.0
LOOK_S = 0.1
ANSWER_S = 1.0


class Member:
    def __init__(self, folder: Path, name: str, home: str, settings: str) -> None:
        self._folder, self.name, self._home = folder / name, name, home
        self._folder.mkdir()
        (self._folder / "config.toml").write_text(settings)
        self.copy = self._folder / "data"
        self.ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
        self.url = f"http://127.0.0.1:{self.ports['http']}"
        self.start()

    @property
    def runs(self) -> bool:
        return "process" in vars(self) and self.process.poll() is None

    @property
    def is_primary(self) -> bool:
        """Whether it says that it serves."""
        return is_ready(self.ports["http"])

    def stands_by(self) -> bool:
        """Whether it waits for its turn, while another is the primary."""
        try:
            urllib.request.urlopen(f"{self.url}/health/ready", timeout=5).close()
        except urllib.error.HTTPError as refused:
            with refused:
                return b"is the primary" in refused.read()
        except OSError:
            pass
        return False

    def start(self) -> None:
        assert not self.runs
        ports = [f"--{protocol}-port={port}" for protocol, port in self.ports.items()]
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, "serve", "--config=config.toml", "--data=data", f"--home={self._home}",
                 f"--advertise=http={self.url}", *ports],
                cwd=self._folder, env=environment(), stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(END_S)

    def stop(self) -> int:
        """SIGTERM, which it answers by ending in order; its exit code. Raises AssertionError: it does not end."""
        self.process.terminate()
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"server {self.name} does not end: {self.said()[-2000:]}") from None

    def pause(self) -> None:
        """SIGSTOP: nothing of it runs until `go_on`, and it does not know."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()

    def said(self) -> str:
        """All that it printed, in all its lives."""
        return (self._folder / "log").read_text(errors="replace")


class ProxiedMember(Member):
    """One whose way to the database leads through a proxy, which costs this process time."""

    def __init__(self, folder: Path, name: str, database: Postgres, settings: str) -> None:
        self.proxy = Proxy(database.port)
        home = self.proxy.before(database.url)
        super().__init__(folder, name, home, settings)

    def close(self) -> None:
        super().close()
        self.proxy.close()


def is_ready(port: int) -> bool:
    """Whether the server at that port is the primary, and says so."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=ANSWER_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Balancer:
    """Leads clients to the primary, by `/health/ready`, connection by connection: by a port of its own for each
    protocol, or nowhere."""

    def __init__(self, servers: Sequence[Mapping[str, int]]) -> None:
        """`servers`: of each, its ports by protocol."""
        self._servers = servers
        own_ports = free_ports(len(servers[0]))  # those that the system gives out are those of clients, too
        self._proxies = {
            protocol: Proxy(None, own_port=port) for protocol, port in zip(servers[0], own_ports, strict=True)
        }
        self.ports = {protocol: proxy.port for protocol, proxy in self._proxies.items()}
        """Where clients connect, by protocol."""
        self.keeps_old = False
        """Whether connections to a server that is ready no more are left alone: its clients stay with it."""
        self.primary: int | None = None
        """Which server is ready, by its place."""
        self._was_ready = [False] * len(servers)
        self._looking = [Repeating(partial(self._look, place), LOOK_S) for place in range(len(servers))]
        for each in self._looking:
            each.__enter__()

    def cut(self) -> None:
        for proxy in self._proxies.values():
            proxy.cut()

    def close(self) -> None:
        for each in self._looking:
            each.__exit__()
        for proxy in self._proxies.values():
            proxy.close()

    def _look(self, place: int) -> None:
        """Ask one server; one that hangs holds up no other."""
        if (ready := is_ready(self._servers[place]["http"])) != self._was_ready[place]:
            self._was_ready[place] = ready
            if ready or self.primary == place:
                self._lead(place if ready else None)

    def _lead(self, place: int | None) -> None:
        self.primary = place
        for protocol, proxy in self._proxies.items():
            proxy.target = None if place is None else self._servers[place][protocol]
        if not self.keeps_old:
            self.cut()
