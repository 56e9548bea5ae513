"""`headwater serve` with AMQP: the real command, as libraries of others meet it."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

from headwater.client import connect
from headwater.core.settings import LogSettings

from ..server.running import RunningServer
from ..server.starting import PROGRAM

_AMQP = re.compile(r"(amqps?)://([^\s/]+)")
_CERTIFICATE = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
USER, PASSWORD = "alice", "correct horse"


class Broker(RunningServer):
    """A server that says where it speaks AMQP; logs are made as they are asked for."""

    def __init__(self, directory: Path, *arguments: str, ca: Path | None = None) -> None:
        options = ("--data", str(directory / "data"), "--amqp-port", "0", *arguments)
        super().__init__(*options, cwd=directory, program=PROGRAM)
        self._numbers = itertools.count(1)
        self._ca = ca
        try:
            self.amqp = self._amqp_url()
        except BaseException:
            self.__exit__()
            raise

    def _amqp_url(self) -> str:
        lines = [self.line]
        assert self.process.stdout is not None
        while lines[-1] and not _AMQP.search(lines[-1]):
            lines.append(self.process.stdout.readline())
        found = _AMQP.search(lines[-1])
        assert found, f"no AMQP address in {lines}; {self.errors}"
        return found[0].replace("127.0.0.1", "localhost") if self._ca else found[0]

    def log(self, partitions: int = 1, event_bytes_max: int = 1024 * 1024) -> str:
        """The name of a new log."""
        name = f"log{next(self._numbers)}"
        settings = LogSettings(partitions=partitions, event_bytes_max=event_bytes_max)
        with connect(self.url) as server:
            server.create(name, settings)
        return name


class Certificates:
    """An authority of our own, a certificate for localhost, and another authority that has signed nothing."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            raise FileNotFoundError("openssl")
        self.certificate, self.key = directory / "cert.pem", directory / "key.pem"
        self.stranger = directory / "stranger.pem"
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
        _make(self.certificate, self.key, "/CN=localhost", names)
        _make(self.stranger, directory / "stranger.key", "/CN=stranger", names)


def _make(certificate: Path, key: Path, subject: str, names: str) -> None:
    files = ["-subj", subject, "-addext", names, "-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*_CERTIFICATE.split(), *files], check=True, capture_output=True)
