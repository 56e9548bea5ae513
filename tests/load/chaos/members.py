"""The servers of one home: each a process of its own, with its copy, its ports and its own way to the database."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tests.homes.postgres_server import Postgres
from tests.homes.proxy import Proxy
from tests.ports import free_ports
from tests.server.running import environment
from tests.server.starting import PROGRAM

from ..clients import TRIMMED
from ..server import PROTOCOLS, password_hash
from .balancer import is_ready
from .rivals import ONCE_LOG, SEATS_LOG

LEASE_MS = 2000
END_S = 60.0
_CONFIGURATION = f"""
home_lease_ms = {LEASE_MS}
[flight]
enabled = true
[cne]
log = "orders"
retry_ms_max = "500ms"
[logs.orders]
[logs.{SEATS_LOG}]
[logs.{ONCE_LOG}]
[logs.{TRIMMED}]
retention_ms = 20000
[users.alice]
password = "{{hash}}"
grants = ["all:*"]
"""


class Member:
    """One server of the home."""

    def __init__(
        self,
        folder: Path,
        name: str,
        database: Postgres,
        configuration: str | None = None,
        *,
        is_direct: bool = False,
    ) -> None:
        """`configuration`: of all servers, instead of the one that has logs and a user for each kind of client.

        `is_direct`: its way to the database leads through no proxy, which would cost this process time.
        """
        self._folder, self.name = folder / name, name
        self._folder.mkdir()
        if configuration is None:
            configuration = _CONFIGURATION.format(hash=password_hash())
        (self._folder / "config.toml").write_text(configuration)
        self.ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
        self.proxy = Proxy(database.port)
        """Its way to the database."""
        self._database_port = database.port if is_direct else self.proxy.port
        self.url = f"http://127.0.0.1:{self.ports['http']}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def copy(self) -> Path:
        """Its data directory."""
        return self._folder / "data"

    @property
    def has_copy(self) -> bool:
        """Whether it was the primary since it had an empty directory."""
        return (self.copy / "state.sqlite").exists()

    @property
    def runs(self) -> bool:
        """Whether there is a process, and it has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_primary(self) -> bool:
        """Whether it says that it serves."""
        return is_ready(self.ports["http"])

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

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
        """Begin, again."""
        assert not self.runs
        ports = [f"--{protocol}-port={port}" for protocol, port in self.ports.items()]
        home = f"--home=postgresql://headwater@127.0.0.1:{self._database_port}/postgres"
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*PROGRAM, "serve", "--config=config.toml", "--data=data", home,
                 f"--advertise=http={self.url}", *ports],
                cwd=self._folder, env=environment(), stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL."""
        self._signalled(signal.SIGKILL).wait(END_S)

    def stop(self) -> int:
        """SIGTERM, which it answers by ending in order; its exit code. Raises AssertionError: it does not end."""
        try:
            return self._signalled(signal.SIGTERM).wait(END_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"server {self.name} does not end: {self.said()[-2000:]}") from None

    def pause(self) -> None:
        """SIGSTOP: nothing of it runs until `go_on`, and it does not know."""
        self._signalled(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._signalled(signal.SIGCONT)

    def forget(self) -> None:
        """Remove its copy; it does not run."""
        assert not self.runs
        shutil.rmtree(self.copy, ignore_errors=True)

    def close(self) -> None:
        """End it."""
        if self.runs:
            self.go_on()
            self.kill()
        self.proxy.close()

    def said(self) -> str:
        """All that it printed, in all its lives."""
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _signalled(self, number: signal.Signals) -> subprocess.Popen[bytes]:
        assert self._process is not None
        os.kill(self._process.pid, number)
        return self._process
