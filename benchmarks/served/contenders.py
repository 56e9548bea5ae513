"""The servers of a run: all up at once, filled with the same events."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from headwater.speedups import VARIABLE

from ..measure import expect
from ..stores.headwater_server import HeadwaterServer
from ..stores.served import Remote, Server
from ..workload import Workload
from .clients import Endpoint, Endpoints
from .rows import BATCH, UMADB

HEADWATER = "headwater over HTTP"
SAME = "headwater again"
PURE = "headwater without the extension"
BESIDE = "headwater of the other checkout"


@dataclass(frozen=True, slots=True)
class Contender:
    """What starts a server in a directory, what connects to it, and the interpreter of its clients."""

    start: Callable[[Path], Server]
    kind: type[Server] = HeadwaterServer
    python: Path = Path(sys.executable)


def contenders(*, has_same: bool, has_pure: bool, beside: Path | None) -> dict[str, Contender]:
    """By label; the first is the reference. UmaDB is one if it is installed."""
    found = {HEADWATER: Contender(HeadwaterServer)}
    if has_same:
        found[SAME] = Contender(HeadwaterServer)
    if has_pure:
        found[PURE] = Contender(partial(HeadwaterServer, environment={VARIABLE: "1"}))
    if beside is not None:
        found[BESIDE] = Contender(partial(HeadwaterServer, python=beside), python=beside)
    if find_spec("umadb") is not None:
        from ..stores.umadb_server import UmadbServer

        found[UMADB] = Contender(UmadbServer, UmadbServer)
    return found


def python_of(checkout: Path) -> Path:
    """The interpreter of a checkout. Raises FileNotFoundError."""
    python = checkout.absolute() / ".venv" / "bin" / "python"
    if shutil.which(python) is None:
        raise FileNotFoundError(f"expected {python}, got no such program: `make setup` in {checkout} makes it")
    return python


_ASKED = """
import headwater
try:
    from headwater.speedups import BUILD
except ImportError:  # versions before 0.2
    BUILD = ""
print(", ".join(filter(None, (headwater.__version__, BUILD))))
"""


def version_of(python: Path) -> str:
    """The version and the build that an interpreter has of Headwater, and the commit of its checkout."""
    version = subprocess.run([str(python), "-c", _ASKED], capture_output=True, text=True, check=True).stdout.strip()
    git = ["git", "-C", str(python.parent), "describe", "--always", "--dirty", "--abbrev=12"]
    return f"{version}, commit {subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()}"


class Servers:
    """Those that run. Closing stops them."""

    def __init__(self, directory: Path, chosen: dict[str, Contender]) -> None:
        self._chosen = chosen
        self._servers: dict[str, Server] = {}
        try:
            for number, (name, contender) in enumerate(chosen.items()):
                self._servers[name] = contender.start(directory / str(number))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    @property
    def endpoints(self) -> Endpoints:
        """For clients in other processes."""
        each = self._servers.items()
        return {name: Endpoint(self._chosen[name].kind, server.url, self._chosen[name].python) for name, server in each}

    def pid(self, name: str) -> int:
        """The process of a server."""
        return self._servers[name].pid

    def fill(self, workload: Workload) -> None:
        """Append all events of the workload to each of them."""
        for name in self:
            with closing(self._connect(name)) as remote:
                for batch in workload.batches(0, workload.total, BATCH):
                    last = remote.append(remote.prepare(batch))
                expect(f"{name}: last number", workload.total, last)

    def head(self, name: str) -> int:
        """The last number of a server's log."""
        with closing(self._connect(name)) as remote:
            return remote.head()

    @contextmanager
    def on_cores(self, cores: Sequence[int]) -> Iterator[None]:
        """Every thread of the servers on these cores, meanwhile."""
        everywhere = os.sched_getaffinity(0)
        self._move(cores)
        try:
            yield
        finally:
            self._move(everywhere)

    def _move(self, cores: Sequence[int] | set[int]) -> None:
        for server in self._servers.values():
            for task in os.listdir(f"/proc/{server.pid}/task"):
                os.sched_setaffinity(int(task), cores)

    def _connect(self, name: str) -> Remote:
        return self._chosen[name].kind.connect(self._servers[name].url)

    def close(self) -> None:
        """Stop them."""
        for server in self._servers.values():
            server.close()
