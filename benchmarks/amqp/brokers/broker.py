"""What the questions ask of a server that speaks AMQP."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

START_S_MAX = 90
STOP_S_MAX = 60
HEAP = "512m"
"""Of a JVM."""


class Broker(ABC):
    """A server process with data of its own, on loopback ports; closed in the end."""

    label: ClassVar[str]
    """In the tables."""
    version: str = ""
    is_warm_at_once: ClassVar[bool] = True
    """Whether it needs no work before it is measured; a JIT compiler does."""

    def __init__(self, directory: Path) -> None:
        """Install what is missing, start, and wait until it listens. Raises Unavailable."""
        directory.mkdir(parents=True)
        self.directory = directory
        self._numbers = itertools.count(1)
        self._log = (directory / "server.log").open("wb")
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self.host = self._start()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _start(self) -> str:
        """Start the process, as the last of `processes`; HOST:PORT, when it takes connections."""

    @property
    def pid(self) -> int:
        """The server's process."""
        return self.processes[-1].pid

    def request(self, address: str) -> dict[str, Any]:
        """What the load has to know to use that address."""
        return {"host": self.host, "address": address}

    def fresh_address(self) -> str:
        """An empty log or durable queue."""
        return f"bench-{next(self._numbers)}"

    def discard(self, address: str) -> None:  # noqa: B027 - a queue that was emptied may stay
        """An address that is not used any more; where it was read to its end."""

    def _spawn(self, *command: str | Path, environment: dict[str, str] | None = None) -> None:
        line = [str(part) for part in command]
        self.processes.append(
            subprocess.Popen(
                line,
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        )

    def _wait_for(self, text: str) -> None:
        """Wait until the server's log has that text."""
        deadline = time.monotonic() + START_S_MAX
        path = Path(self._log.name)
        while text not in path.read_text(errors="replace"):
            if self.processes[-1].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.label} did not start: {path.read_text(errors='replace')[-1500:]}")
            time.sleep(0.1)

    def close(self) -> None:
        """Stop the processes in order, or at last by force."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                with contextlib.suppress(OSError):
                    process.stdout.close()
        self.processes.clear()
        self._log.close()


def free_port() -> int:
    """A port that was free a moment ago, for servers that cannot say which one port 0 became."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
