"""One of the servers that share a home: a process of its own, which stands for a machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.ports import free_ports

from ..server_process import ALIASES, STARTS_WITHIN_S, ServerFailed, environment_of_servers
from ..stage import LOG

STOPS_WITHIN_S = 30.0
LOOK_S = 0.02


class Machine:
    """A data directory, which is a copy, and the process that serves it, always on the same ports."""

    def __init__(self, directory: Path, name: str, home: str, lease_ms: int) -> None:
        self.name = name
        self._directory, self._home, self._lease_ms = directory, home, lease_ms
        http, amqp = free_ports(2)
        self.url, self.amqp_url = f"http://127.0.0.1:{http}", f"amqp://127.0.0.1:{amqp}"
        self._ports = ("--http-port", str(http), "--amqp-port", str(amqp), "--flight-enabled", "false")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def command(self) -> list[str]:
        """How it is started, as a user would."""
        return [
            "headwater", "serve", "--home", self._home, "--data", str(self._directory / self.name),
            "--advertise", f"http={self.url}", *self._ports,
        ]  # fmt: skip

    @property
    def pid(self) -> int:
        """The number of the process that runs now."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    def start(self) -> None:
        """Start it; who has the lease is the primary, `await_role` waits for that."""
        told = ["--log", LOG, "--futoin-aliases", ALIASES, "--home-lease-ms", str(self._lease_ms)]
        with self._diary.open("ab") as diary:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headwater.cli.main", *self.command[1:], *told],
                stdin=subprocess.DEVNULL,
                stdout=diary,
                stderr=diary,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops the servers in order
                env=environment_of_servers(),
            )

    def is_ready(self, role: str) -> bool:
        """Whether it serves in that role, `primary` or `replica`; a load balancer asks the same."""
        try:
            with urllib.request.urlopen(f"{self.url}/health/ready?role={role}", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def await_role(self, role: str, within_s: float = STARTS_WITHIN_S) -> None:
        """Wait until it serves in that role. Raises ServerFailed."""
        deadline = time.monotonic() + within_s
        while not self.is_ready(role):
            assert self._process is not None, "it was not started"
            if self._process.poll() is not None or time.monotonic() > deadline:
                told = self._diary.read_text(errors="replace").strip().splitlines()
                raise ServerFailed(f"server {self.name} is no {role}: {' / '.join(told[-3:]) or 'it said nothing'}")
            time.sleep(LOOK_S)

    def why_it_stands_by(self, within_s: float = STARTS_WITHIN_S) -> str:
        """What it answers to whoever wants to append, as soon as it knows who is the primary. Raises ServerFailed."""
        deadline = time.monotonic() + within_s
        while not (told := self._why_not_primary()).startswith("this server is a replica"):
            if time.monotonic() > deadline:
                raise ServerFailed(f"server {self.name} does not stand by: {told or 'it is ready'}")
            time.sleep(LOOK_S)
        return told

    def _why_not_primary(self) -> str:
        try:
            urllib.request.urlopen(f"{self.url}/health/ready?role=primary", timeout=5).close()
        except urllib.error.HTTPError as refused:
            with refused:
                return str(json.load(refused).get("detail", ""))
        return ""

    def kill(self) -> None:
        """SIGKILL: it tells nobody."""
        assert self._process is not None, "it was not started"
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """SIGTERM, and wait until it has left. Raises ServerFailed if it does not."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"server {self.name} did not stop within {STOPS_WITHIN_S:g} s of SIGTERM") from None
        self._process = None

    @property
    def _diary(self) -> Path:
        return self._directory / f"{self.name}.log"
