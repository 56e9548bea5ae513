"""A Headwater server as a process of its own: started, killed and started again as a user's would be."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

STARTS_WITHIN_S = 60.0
_LISTENING = re.compile(r"listening on ((?:http|amqp|grpc)://\S+:(\d+))")
_PORTS = 3
"""HTTP first, then AMQP, then Arrow Flight."""
ALIASES = "*:FlightDeparted=FLIGHT_DEPARTED,*:FlightArrived=FLIGHT_ARRIVED"
"""What FutoIn clients call the types of the flights."""


class ServerFailed(Exception):
    """The server did not start, or did not stop."""


class ServerProcess:
    """One data directory and the process that serves it, always on the same ports."""

    def __init__(self, directory: Path, log: str) -> None:
        self.directory, self._log = directory, log
        self._port = self._amqp_port = self._flight_port = 0
        self.url = self.amqp_url = self.flight_url = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The number of the process that runs now."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    def start(self) -> float:
        """Start it; answers how many seconds went by until it was ready. Raises ServerFailed."""
        command = [sys.executable, "-m", "headwater.cli.main", "serve", "--data", str(self.directory / "data")]
        command += ["--http-port", str(self._port), "--amqp-port", str(self._amqp_port)]
        command += ["--flight-port", str(self._flight_port)]
        command += ["--log", self._log, "--futoin-aliases", ALIASES]
        started = time.perf_counter()
        with (self.directory / "server.log").open("a") as diary:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=diary,
                text=True,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops the server in order
                env=environment_of_servers(),
            )
        found = [its for line in self._first_lines() if (its := _LISTENING.search(line))]
        if len(found) != _PORTS:
            self.kill()
            told = (self.directory / "server.log").read_text().strip().splitlines()
            raise ServerFailed(f"the server did not start: {' / '.join(told[-3:]) or 'it said nothing'}")
        places = [(its[1], int(its[2])) for its in found]
        (self.url, self._port), (self.amqp_url, self._amqp_port), (self.flight_url, self._flight_port) = places
        return time.perf_counter() - started

    def kill(self) -> None:
        """SIGKILL: what it had not written is gone."""
        assert self._process is not None, "it was not started"
        self._process.kill()
        self._forget()

    def stop(self) -> None:
        """SIGTERM, and wait until it has left. Raises ServerFailed if it does not."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed("the server did not stop within 30 seconds of SIGTERM") from None
        self._forget()

    def leave_running(self) -> None:
        """Let go of it: it outlives the demo."""
        assert self._process is not None and self._process.stdout is not None
        self._process.stdout.close()
        self._process.returncode = 0  # nobody waits for it any more

    def _first_lines(self) -> list[str]:
        """What it says when it is ready, a line for each port; fewer lines if it ends, or says nothing more."""
        assert self._process is not None and self._process.stdout is not None
        told, output = b"", self._process.stdout.fileno()
        while told.count(b"\n") < _PORTS:
            readable, _, _ = select.select([output], [], [], STARTS_WITHIN_S)
            if not readable or not (more := os.read(output, 4096)):
                break
            told += more
        return told.decode().splitlines()

    def _forget(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.wait()
        self._process.stdout.close()
        self._process = None


def environment_of_servers() -> dict[str, str]:
    """Ours without Headwater's settings: the demo is the same for everybody."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
