"""UmaDB's server in its default mode (gRPC), and its own Python client, which is a binding of its Rust client.

The server binary comes inside the client's wheel. Its default writer is used, not the pipelined one: under concurrent
reads and appends that one gives false corruption errors in this version (0.7.8).
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import umadb

from headwater.core import Event

from .served import Facts, Remote, Server
from .store import Conflict, Extent

START_TIMEOUT_S = 20
_SERVE = "import sys, umadb; umadb.run_server_from_args(['umadb', *sys.argv[1:]])"


class UmadbServer(Server):
    """The script `umadb`, on a port that was free a moment ago: it does not tell which one port 0 became."""

    def _start(self, directory: Path) -> subprocess.Popen[bytes]:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        directory.mkdir()
        options = ["--listen", f"127.0.0.1:{self._port}", "--db-path", str(directory)]
        return subprocess.Popen([sys.executable, "-c", _SERVE, *options], stdout=self._log, stderr=self._log)

    def _ready_url(self) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return f"http://127.0.0.1:{self._port}"
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"the UmaDB server did not start; see {self._log.name}")

    @staticmethod
    def connect(url: str) -> Remote:
        """See Server."""
        return UmadbRemote(url)


class UmadbRemote(Remote):
    """UmaDB's client. Events keep their ids as UmaDB's UUIDs."""

    def __init__(self, url: str) -> None:
        self._client = umadb.Client(url)

    def prepare(self, events: Sequence[Event]) -> object:
        """See Remote."""
        return [umadb.Event(event.type, event.data, list(event.tags), uuid.UUID(event.id)) for event in events]

    def prepare_query(self, tags: Sequence[str]) -> object:
        """See Remote."""
        return umadb.Query([umadb.QueryItem(tags=[tag]) for tag in tags])

    def append(self, prepared: Any) -> int:
        """See Remote."""
        return self._client.append(prepared)

    def append_if(self, prepared: Any, query: Any, after: int) -> int:
        """See Remote."""
        try:
            return self._client.append(prepared, umadb.AppendCondition(query, after))
        except umadb.IntegrityError as error:
            raise Conflict from error

    def read(self, query: Any) -> Facts:
        """See Remote."""
        events, head = self._client.read(query).collect_with_head()
        return Facts([stored.event.data for stored in events], head or 0)

    def read_type(self, type: str, limit: int) -> int:
        """See Remote."""
        query = umadb.Query([umadb.QueryItem(types=[type])])
        events = [stored.event for stored in self._client.read(query, backwards=True, limit=limit)]
        return sum(1 for event in events if event.event_type == type and event.data)

    def scan(self) -> Extent:
        """See Remote."""
        events = size = last = 0
        for stored in self._client.read():
            events += 1
            size += len(stored.event.data)
            last = stored.position
        return Extent(events, size, last)

    def head(self) -> int:
        """See Remote."""
        return self._client.head() or 0

    def close(self) -> None:
        """See Remote."""
        self._client.close()
