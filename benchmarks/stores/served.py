"""What the questions ask of a log behind a socket: a server process (`Server`), and a client of it (`Remote`)."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headwater.core import Event

from .store import Extent

STOP_TIMEOUT_S = 60


class Facts(NamedTuple):
    """What a decision takes from the events that it read, and the head that came with them."""

    payloads: list[bytes]
    head: int


class Remote(ABC):
    """A client, for one thread. What can be made before the clock runs is made by the `prepare` calls."""

    @abstractmethod
    def prepare(self, events: Sequence[Event]) -> object:
        """Events in the client's own form, ready to be appended."""

    @abstractmethod
    def prepare_query(self, tags: Sequence[str]) -> object:
        """A query for the events that have any of these tags."""

    @abstractmethod
    def append(self, prepared: object) -> int:
        """Append durably; answers the last number."""

    @abstractmethod
    def append_if(self, prepared: object, query: object, after: int) -> int:
        """Append unless an event above `after` matches; answers the last number. Raises Conflict."""

    @abstractmethod
    def read(self, query: object) -> Facts:
        """Read every matching event."""

    @abstractmethod
    def read_type(self, type: str, limit: int) -> int:
        """Read the newest events of that type, whole; answers how many there were."""

    @abstractmethod
    def scan(self) -> Extent:
        """Read every event, whole, in order."""

    @abstractmethod
    def head(self) -> int:
        """The last number."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Server(ABC):
    """A server process with data of its own, on a loopback port."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._log = (directory / "server.log").open("wb")
        self._process = self._start(directory / "data")
        try:
            self.url = self._ready_url()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _start(self, directory: Path) -> subprocess.Popen[bytes]:
        """Start the process."""

    @abstractmethod
    def _ready_url(self) -> str:
        """Wait until it listens; where it does."""

    @staticmethod
    @abstractmethod
    def connect(url: str) -> Remote:
        """A client of the server at that URL, in whatever process."""

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def close(self) -> None:
        """Stop the process in order, or at last by force."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            with contextlib.suppress(OSError):
                self._process.stdout.close()
        self._log.close()
