"""Headwater's server with its defaults, and its own Python client over HTTP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.client import RemoteLog, connect
from headwater.core import ALL, AppendCondition, Event, Query, QueryItem
from headwater.core.errors import AppendConditionFailed

from .served import Facts, Remote, Server
from .store import Conflict, Extent

LOG = "bench"
_LISTENING = re.compile(rb"listening on (http://\S+)")


class HeadwaterServer(Server):
    """`headwater serve` on a free port."""

    interpreter_options: tuple[str, ...] = ()
    """Options of the interpreter that come before the server's module: a profiler, for example."""

    def __init__(
        self, directory: Path, python: Path = Path(sys.executable), environment: Mapping[str, str] | None = None
    ) -> None:
        self._python, self._environment = python, {**os.environ, **(environment or {})}
        super().__init__(directory)

    def _start(self, directory: Path) -> subprocess.Popen[bytes]:
        script = self._python.with_name("headwater")  # other versions have it, too
        command = [str(self._python), *self.interpreter_options, str(script), "serve"]
        options = [
            "--data",
            str(directory),
            "--http-port",
            "0",
            "--amqp-port",
            "0",
            "--flight-enabled",
            "false",
            "--log",
            LOG,
        ]
        return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=self._log, env=self._environment)

    def _ready_url(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := _LISTENING.search(line):
                return found[1].decode()
        raise RuntimeError(f"the Headwater server did not start; see {self._log.name}")

    @staticmethod
    def connect(url: str) -> Remote:
        """See Server."""
        return HeadwaterRemote(url)


class HeadwaterRemote(Remote):
    """The project's client, as programs use it: checks, JSON and retries included."""

    def __init__(self, url: str) -> None:
        self._server = connect(url)
        self.log: RemoteLog = self._server.log(LOG)

    def prepare(self, events: Sequence[Event]) -> object:
        """See Remote."""
        return events

    def prepare_query(self, tags: Sequence[str]) -> object:
        """See Remote."""
        return Query.of(*(QueryItem(tags=(tag,)) for tag in tags))

    def append(self, prepared: object) -> int:
        """See Remote."""
        return self.log.append(prepared).last  # type: ignore[arg-type]

    def append_if(self, prepared: object, query: object, after: int) -> int:
        """See Remote."""
        try:
            return self.log.append(prepared, AppendCondition(query, after)).last  # type: ignore[arg-type]
        except AppendConditionFailed as error:
            raise Conflict from error

    def read(self, query: object) -> Facts:
        """See Remote."""
        reading = self.log.read(query)  # type: ignore[arg-type]
        return Facts([stored.data for stored in reading], reading.head)

    def read_type(self, type: str, limit: int) -> int:
        """See Remote."""
        events = list(self.log.read(Query.where(types=[type]), backwards=True, limit=limit))
        return sum(1 for stored in events if stored.type == type and stored.data)

    def scan(self) -> Extent:
        """See Remote."""
        events = size = last = 0
        for stored in self.log.read(ALL):
            events += 1
            size += len(stored.data)
            last = stored.sequence_number
        return Extent(events, size, last)

    def head(self) -> int:
        """See Remote."""
        return self.log.head()

    def close(self) -> None:
        """See Remote."""
        self._server.close()
