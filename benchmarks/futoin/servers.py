"""The two servers: Headwater with its defaults, and the FutoIn project's own on SQLite, as durable as Headwater."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headwater.server.users.accounts import hash_password

from ..measure import Sample, cpu_seconds

HEADWATER = "headwater over WebSocket"
REFERENCE = "futoin-eventstream on SQLite"
LOG = "bench"
STOP_TIMEOUT_S = 60
_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
MODULES = Path(os.environ.get("FUTOIN_NODE_MODULES", _ROOT / "benchmarks/futoin/node_modules"))


def is_installed() -> bool:
    """Whether the reference is there: `npm install` in benchmarks/futoin, or FUTOIN_NODE_MODULES."""
    return (MODULES / "futoin-eventstream").is_dir()


class Server:
    """A server process with data of its own; both know the user alice and check her password."""

    poll_interface: str
    """The interface under which this server takes polls on the connection on which it pushes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._errors = (directory / "server.log").open("wb")
        try:
            self.process, self.url = self._start(directory)
        except BaseException:
            self._errors.close()
            raise

    def _start(self, directory: Path) -> tuple[subprocess.Popen[bytes], str]:
        raise NotImplementedError

    def ask(self, verb: str, *arguments: object) -> dict[str, float]:
        """What a peer in a process of its own measured."""
        command = [sys.executable, "-m", "benchmarks.futoin.peer", verb, self.url, *map(str, arguments)]
        done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True)
        numbers: dict[str, float] = json.loads(done.stdout)
        return numbers

    def sample(self, verb: str, *arguments: object, units: float | None = None) -> Sample:
        """The same as a sample of the rate; `units` is how much work it was, where the peer does not tell."""
        before = cpu_seconds(self.process.pid)
        numbers = self.ask(verb, *arguments)
        used = cpu_seconds(self.process.pid) - before
        count = units or numbers["count"]
        return Sample(numbers["per_s"], used / count * 1e6, numbers.get("p50_ms"), numbers.get("p99_ms"))

    def close(self) -> None:
        """Stop it in order, or at last by force."""
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            with suppress(OSError):
                self.process.stdout.close()
        self._errors.close()

    def _first_line(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        if "listening" not in line:
            process.kill()
            process.wait()
            process.stdout.close()
            raise RuntimeError(f"{type(self).__name__} did not start; see {self._errors.name}")
        return line


class HeadwaterServer(Server):
    """`headwater serve` on a free port."""

    poll_interface = "futoin.evt.poll:1.1"

    def _start(self, directory: Path) -> tuple[subprocess.Popen[bytes], str]:
        config = directory / "headwater.toml"
        config.write_text(f'[users.alice]\npassword = "{hash_password("alices-secret")}"\ngrants = ["all:*"]\n')
        command = [sys.executable, "-m", "headwater.cli.main", "serve", "--config", str(config)]
        command += [
            "--data",
            str(directory / "data"),
            "--http-port",
            "0",
            "--amqp-port",
            "0",
            "--flight-enabled",
            "false",
        ]
        command += ["--log", LOG]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors)
        address = self._first_line(process).partition("http://")[2].split()[0]
        return process, f"ws://{address}/futoin/{LOG}"


class ReferenceServer(Server):
    """`reference.js`, with SQLite in WAL mode and synchronous = FULL: what it has answered is on the disk, too."""

    poll_interface = "futoin.evt.push:1.1"

    def _start(self, directory: Path) -> tuple[subprocess.Popen[bytes], str]:
        ports = [_free_port(), _free_port()]
        environment = {
            **os.environ,
            "FUTOIN_NODE_MODULES": str(MODULES),
            "WS_PORT": str(ports[0]),
            "HTTP_PORT": str(ports[1]),
        }
        command = ["node", str(_HERE / "reference.js"), str(directory / "events.sqlite"), "FULL"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._errors, env=environment)
        self._first_line(process)
        return process, f"ws://127.0.0.1:{ports[0]}/ftn"


KINDS: dict[str, type[Server]] = {HEADWATER: HeadwaterServer, REFERENCE: ReferenceServer}


class Servers:
    """Both, or those named, for one question; a context manager that stops them."""

    def __init__(self, directory: Path, names: Sequence[str] = (HEADWATER, REFERENCE)) -> None:
        self.by_name = {name: KINDS[name](directory / KINDS[name].__name__) for name in names}

    def __enter__(self) -> dict[str, Server]:
        return self.by_name

    def __exit__(self, *exc_info: object) -> None:
        for server in self.by_name.values():
            server.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
