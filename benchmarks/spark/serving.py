"""`headwater serve` with its bulk plane, as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

from headwater import __version__

from ..amqp.brokers.broker import Broker
from ..measure import anonymous_bytes, children

_HTTP = re.compile(rb"listening on (http://\S+)")
_FLIGHT = re.compile(rb"listening on (grpc://\S+)")


class Server(Broker):
    """Its defaults, on free ports; started again over the same directory, it has the same logs."""

    label = "headwater"
    version = __version__

    def __init__(self, directory: Path, data: Path) -> None:
        self._data = data
        super().__init__(directory)

    def _start(self) -> str:
        command = [sys.executable, "-m", "headwater.cli.main", "serve", "--data", str(self._data)]
        ports = [part for name in ("http", "amqp", "flight") for part in (f"--{name}-port", "0")]
        process = subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, stderr=self._log)
        self.processes.append(process)
        assert process.stdout is not None
        found: dict[re.Pattern[bytes], str] = {}
        for line in process.stdout:
            for pattern in (_HTTP, _FLIGHT):
                if match := pattern.search(line):
                    found[pattern] = match[1].decode()
            if len(found) == 2:
                break
        else:
            raise RuntimeError(f"the Headwater server has no bulk plane; see {self._log.name}")
        threading.Thread(target=process.stdout.read, daemon=True).start()
        self.http = found[_HTTP]
        return found[_FLIGHT]

    @property
    def anonymous_mib(self) -> tuple[float, float]:
        """Anonymous memory of the main process, and of the bulk process."""
        (bulk_pid,) = children(self.pid)
        bulk = anonymous_bytes(bulk_pid)
        return (anonymous_bytes(self.pid) - bulk) / 2**20, bulk / 2**20
