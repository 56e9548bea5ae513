"""The server that is recorded, or that is to serve what a power cut has left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.load.place import LOG
from tests.load.server import PROTOCOLS, password_hash, place_at
from tests.ports import free_ports
from tests.server.running import SILENCE_S_MAX, RunningServer, environment

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "tests.power.watched")
USER = "alice"
TRIMMED, ROLLING = "trimmed", "rolling"
"""The log that an operator trims, and the one whose retention does."""
ROLLING_BYTES = 200_000


class Served:
    """`headwater serve` on a directory, with every front end, at the same addresses each time it is started."""

    def __init__(self, folder: Path, data: Path, variables: Mapping[str, str] | None = None) -> None:
        """`folder` takes the configuration and what is said on stderr. A context manager that ends it."""
        self._folder, self._data, self._variables = folder, data, variables or {}
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(_CONFIGURATION.format(hash=password_hash()))
        self._ports = dict(zip(PROTOCOLS, free_ports(3), strict=True))
        self.place = place_at(self._ports)
        self.complaints = ""
        """What all of them said on stderr."""
        self._server: RunningServer | None = None

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._server is not None:
            self._server.process.kill()
            self._ended()

    def start(self) -> None:
        """Start it; it is ready when this returns."""
        arguments = [f"--{name}-port={port}" for name, port in self._ports.items()]
        self._server = RunningServer(
            f"--config={self._folder / 'config.toml'}",
            f"--data={self._data}",
            "--flight-enabled=true",
            *arguments,
            cwd=self._folder,
            program=PROGRAM,
            variables=self._environment,
        )
        assert self._server.line, f"the server did not start: {self._server.errors[-2000:]}"
        for scheme in ("amqp", "grpc"):
            self._server.further_url(scheme)

    def stop(self) -> None:
        """SIGTERM: it ends in order."""
        assert self._server is not None
        code = self._server.terminate()
        self._ended()
        assert code == 0, f"the server ended in order with exit code {code}: {self.complaints[-2000:]}"

    def kill(self) -> None:
        """SIGKILL."""
        assert self._server is not None
        self._server.process.kill()
        self._ended()

    def command(self, *arguments: str, stdin: str = "") -> None:
        """Another command of `headwater`, on the same directory; it must succeed."""
        subprocess.run(
            [*PROGRAM, *arguments, "--data", str(self._data)],
            cwd=self._folder,
            env=environment(**self._environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SILENCE_S_MAX,
            check=True,
        )

    @property
    def _environment(self) -> dict[str, str]:
        return {**self._variables, "PYTHONDONTWRITEBYTECODE": "1"}

    def _ended(self) -> None:
        assert self._server is not None
        with self._server as server:
            server.process.wait()
            self.complaints += server.errors
        self._server = None


_CONFIGURATION = f"""
[cne]
log = "{LOG}"
retry_ms_max = "500ms"
[logs.{LOG}]
[logs.{TRIMMED}]
[logs.{ROLLING}]
retention_bytes = {ROLLING_BYTES}
[users.{USER}]
password = "{{hash}}"
grants = ["all:*"]
"""
