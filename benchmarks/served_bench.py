"""The servers of one run: started and filled when the first question asks for one, in turns, slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headwater.core import Event

from .measure import Sample, expect, stopwatch
from .stores.headwater_server import HeadwaterServer
from .stores.served import Remote, Server
from .stores.umadb_server import UmadbServer
from .workload import Workload, chunks

HEADWATER_SERVER = "headwater over HTTP"
UMADB = "umadb over gRPC"
KINDS: dict[str, type[Server]] = {HEADWATER_SERVER: HeadwaterServer, UMADB: UmadbServer}
BATCH = 1000
FILL_SLICES = 20


class ServedBench:
    """The contenders behind sockets; all of them are filled with the same events."""

    def __init__(self, directory: Path, workload: Workload, note: Callable[[str], None]) -> None:
        self.fills: dict[str, list[Sample]] = {}
        """By contender: one sample per slice of the fill."""
        self._directory = directory
        self._workload = workload
        self._note = note
        self._servers: dict[str, Server] = {}
        self._remotes: dict[str, Remote] = {}

    def server(self, name: str) -> Server:
        """A contender's server, filled."""
        self.fill()
        return self._servers[name]

    def remote(self, name: str) -> Remote:
        """A client of it in this process."""
        self.fill()
        return self._remotes[name]

    def fill(self) -> None:
        """Start and fill the servers, if that is still to be done."""
        if self.fills:
            return
        for name, kind in KINDS.items():
            self._servers[name] = kind(self._directory / name.replace(" ", "-"))
            self._remotes[name] = kind.connect(self._servers[name].url)
        self.fills = {name: [] for name in KINDS}
        total = self._workload.total
        slices = list(chunks(total, max(BATCH, total // FILL_SLICES // BATCH * BATCH)))
        for number, (first, count) in enumerate(slices):
            self._note(f"filling servers to {total:,} events: slice {number + 1} of {len(slices)}")
            batches = self._workload.batches(first, count, BATCH)
            for name in KINDS:
                self._fill_slice(name, batches, first + count)

    def _fill_slice(self, name: str, batches: Sequence[Sequence[Event]], head: int) -> None:
        remote = self._remotes[name]
        prepared = [remote.prepare(events) for events in batches]
        with stopwatch(self._servers[name].pid) as watch:
            for batch in prepared:
                last = remote.append(batch)
        expect(f"{name}: last number", head, last)
        expect(f"{name}: head", head, remote.head())
        self.fills[name].append(watch.rate(sum(map(len, batches))))

    def close(self) -> None:
        """Stop every client and server."""
        for remote in self._remotes.values():
            remote.close()
        for server in self._servers.values():
            server.close()
        self._remotes.clear()
        self._servers.clear()
