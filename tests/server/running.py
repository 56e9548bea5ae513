"""A server in a process of its own, on a free port of loopback; and any other command, to its end."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.waiting import eventually

from .starting import inherited, run, start

SILENCE_S_MAX = 60.0


def environment(**more: str) -> dict[str, str]:
    """This process's environment without any setting of ours, and with the package on its path."""
    kept = {name: value for name, value in inherited().items() if not name.startswith("HEADWATER_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


def headwater(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return run(arguments, cwd=cwd, env=environment(), stdin=stdin, timeout=SILENCE_S_MAX)


class RunningServer:
    """`headwater serve` with these arguments; a context manager that ends it.

    It is forked (`starting`), unless a program is named: `PROGRAM` is the real command.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        context: ssl.SSLContext | None = None,
        program: Sequence[str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._errors = open(cwd / "stderr.txt", "w+", encoding="utf-8")  # noqa: SIM115 - as long as the process
        self.process = start(
            ["serve", "--http-port", "0", "--amqp-port", "0", "--flight-enabled", "false", *arguments],
            program=program,
            cwd=cwd,
            env=environment(**(variables or {})),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.url = self.line.removeprefix("headwater: listening on ").partition(" ")[0]
        self._context = context

    def further_url(self, scheme: str) -> str:
        """The first address of that scheme among the lines after the first. To be asked once, in their order."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            url = line.removeprefix("headwater: listening on ").split()[0]
            if url.startswith(f"{scheme}://"):
                return url
        raise AssertionError(f"the server named no {scheme} address")

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()

    def terminate(self) -> int:
        """Send SIGTERM; answers the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SILENCE_S_MAX)

    @property
    def errors(self) -> str:
        """What was told on stderr so far."""
        self._errors.flush()
        return Path(self._errors.name).read_text(encoding="utf-8")

    def wait_for(self, text: str) -> None:
        """Wait until stderr has that text."""
        eventually(lambda: text in self.errors, lambda: self.errors)

    def open(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        """The open answer to a GET, or to a POST of JSON."""
        request = urllib.request.Request(
            f"{self.url}{path}", body, {"content-type": "application/json", **(headers or {})}
        )
        return urllib.request.urlopen(request, timeout=SILENCE_S_MAX, context=self._context)

    def ask(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Status and text of an answer."""
        try:
            with self.open(path, body, headers) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
