"""`headwater serve` with its defaults."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import Any

from headwater import __version__
from headwater.client import connect

from .broker import Broker

_HTTP = re.compile(rb"listening on (http://\S+)")
_AMQP = re.compile(rb"amqp://([^\s/]+)")


class Headwater(Broker):
    """A fresh log per measurement. Reading leaves the log as it is, and each reader starts at an offset of its own."""

    label = "headwater"
    version = __version__

    def _start(self) -> str:
        command = [sys.executable, "-m", "headwater.cli.main", "serve"]
        options = [
            "--data",
            str(self.directory / "data"),
            "--http-port",
            "0",
            "--amqp-port",
            "0",
            "--flight-enabled",
            "false",
        ]
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=self._log)
        self.processes.append(process)
        assert process.stdout is not None
        found: dict[re.Pattern[bytes], str] = {}
        for line in process.stdout:
            for pattern in (_HTTP, _AMQP):
                if match := pattern.search(line):
                    found[pattern] = match[1].decode()
            if len(found) == 2:
                break
        else:
            raise RuntimeError(f"the Headwater server does not speak AMQP; see {self._log.name}")
        threading.Thread(target=process.stdout.read, daemon=True).start()
        self.http = found[_HTTP]
        self._server = connect(self.http)
        return found[_AMQP]

    def request(self, address: str) -> dict[str, Any]:
        """See Broker."""
        return {**super().request(address), "offsets": True}

    def fresh_address(self) -> str:
        """See Broker."""
        address = super().fresh_address()
        self._server.create(address)
        return address

    def discard(self, address: str) -> None:
        """See Broker."""
        self._server.delete(address)

    def close(self) -> None:
        """See Broker."""
        if hasattr(self, "_server"):
            self._server.close()
        super().close()
