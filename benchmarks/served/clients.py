"""The clients of a row: up to 8 processes, and threads in them beyond. Each client is connected to every contender.

A contender of another checkout has clients of that checkout, in processes of their own: another version's client may
fall back to a slower format.

One contender at a time is used, for a slice of time. What a client sends is made before the slice, as far as the slices
before it tell how much that is.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NamedTuple

from ..measure import Sample, WrongAnswer, cpu_seconds, percentile_ms
from ..stores.served import Server
from .rows import ROWS, Row, Source

PROCESSES_MAX = 8
_ROOT = Path(__file__).parents[2]
_PROGRAM = "import sys; from benchmarks.served.clients import serve; serve(int(sys.argv[1]))"


class Endpoint(NamedTuple):
    """A server to connect to."""

    kind: type[Server]
    """What connects to it."""
    url: str
    python: Path = Path(sys.executable)
    """The interpreter of its clients."""


Endpoints = Mapping[str, Endpoint]
"""By contender."""


class _Work(NamedTuple):
    """What one process of clients does."""

    row: str
    endpoints: Endpoints
    total: int
    numbers: Collection[int]
    cores: Collection[int]


@dataclass(frozen=True, slots=True)
class Order:
    """What a process of clients is to do: prepare for a contender, or use it for so many seconds."""

    contender: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What clients did in a slice."""

    latencies: list[float]
    """Of each step, in seconds."""
    units: int = 0
    ended_at: float = 0.0
    cpu_s: float = 0.0
    error: str = ""


def joint(parts: Collection[Done], cpu_s: float) -> Done:
    """What some clients did together, in that CPU time."""
    return Done(
        [latency for part in parts for latency in part.latencies],
        sum(part.units for part in parts),
        max(part.ended_at for part in parts),
        cpu_s,
        "; ".join(part.error for part in parts if part.error),
    )


class Clients:
    """The clients of one row, connected. `first` numbers them: each number has events of its own."""

    def __init__(self, row: Row, endpoints: Endpoints, total: int, first: int, cores: Collection[int] = ()) -> None:
        self._steps = dict.fromkeys(endpoints, 0)
        self._pipes: dict[Path, list[Connection]] = {}
        self._pythons = {name: endpoint.python for name, endpoint in endpoints.items()}
        self._processes: list[subprocess.Popen[bytes]] = []
        for python in dict.fromkeys(self._pythons.values()):
            chosen = {name: endpoint for name, endpoint in endpoints.items() if endpoint.python == python}
            self._pipes[python] = []
            for offset in range(min(row.clients, PROCESSES_MAX)):
                numbers = range(first + offset, first + row.clients, PROCESSES_MAX)
                self._pipes[python].append(self._started(python, _Work(row.name, chosen, total, numbers, cores)))

    def _started(self, python: Path, work: _Work) -> Connection:
        ours, theirs = Pipe()
        with theirs:
            command = [str(python), "-c", _PROGRAM, str(theirs.fileno())]
            self._processes.append(subprocess.Popen(command, cwd=_ROOT, pass_fds=[theirs.fileno()]))
        ours.send(work)
        return ours

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for pipes in self._pipes.values():
            for pipe in pipes:
                pipe.close()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def steps(self, contender: str) -> int:
        """How many steps all slices of a contender had."""
        return self._steps[contender]

    def slice(self, contender: str, pid: int, seconds: float) -> Sample:
        """Use a contender whose server is that process, for so long and until the last answer. Raises WrongAnswer."""
        self._ask(Order(contender))
        cpu, began = cpu_seconds(pid), time.perf_counter()
        parts = self._ask(Order(contender, seconds))
        done = joint(parts, sum(part.cpu_s for part in parts))
        server_us, client_us = ((used / done.units) * 1e6 for used in (cpu_seconds(pid) - cpu, done.cpu_s))
        self._steps[contender] += len(done.latencies)
        p50, p99 = (percentile_ms(done.latencies, percent) for percent in (50, 99))
        return Sample(done.units / (done.ended_at - began), server_us, p50, p99, client_us)

    def _ask(self, order: Order) -> list[Done]:
        pipes = self._pipes[self._pythons[order.contender]]
        for pipe in pipes:
            with contextlib.suppress(BrokenPipeError):  # what it had to say is read below
                pipe.send(order)
        return [_received(pipe) for pipe in pipes]


def _received(pipe: Connection) -> Done:
    try:
        done: Done = pipe.recv()
    except (EOFError, ConnectionResetError):
        raise WrongAnswer("a process of clients ended without an answer") from None
    if done.error:
        raise WrongAnswer(f"a client failed: {done.error}")
    return done


def serve(fd: int) -> None:
    """The clients of one process: do what is ordered over that descriptor until it is closed."""
    pipe = Connection(fd)
    work: _Work = pipe.recv()
    if work.cores:
        os.sched_setaffinity(0, work.cores)
    clients = [_Client(ROWS[work.row], work.endpoints, Source(work.total, number)) for number in work.numbers]
    with contextlib.suppress(EOFError):
        while True:
            order: Order = pipe.recv()
            gc.freeze()  # no contender pays for what was prepared for another one
            began = time.process_time()
            for client in clients:
                client.orders.put(order)
            parts = [client.done.get() for client in clients]
            pipe.send(joint(parts, time.process_time() - began))


class _Client:
    """A thread with a connection to every contender."""

    def __init__(self, row: Row, endpoints: Endpoints, source: Source) -> None:
        self.orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._row = row
        self._source = source
        self._endpoints = endpoints
        self._prepared: dict[str, deque[object]] = {name: deque() for name in endpoints}
        self._most = dict.fromkeys(endpoints, 1)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._remotes = {name: at.kind.connect(at.url) for name, at in self._endpoints.items()}
            while True:
                order = self.orders.get()
                self.done.put(self._prepare(order) if order.seconds is None else self._use(order, order.seconds))
        except Exception as error:  # whatever it is, the first process reports it
            self.done.put(Done([], error=repr(error)))

    def _prepare(self, order: Order) -> Done:
        name, prepared = order.contender, self._prepared[order.contender]
        while len(prepared) <= self._most[name] * 3 // 2:
            prepared.append(self._row.prepare(self._remotes[name], self._source))
        return Done([])

    def _use(self, order: Order, seconds: float) -> Done:
        remote, prepared = self._remotes[order.contender], self._prepared[order.contender]
        latencies: list[float] = []
        units, began = 0, time.perf_counter()
        until = began + seconds
        while began < until:
            step = prepared.popleft() if prepared else self._row.prepare(remote, self._source)
            units += self._row.do(remote, step)
            latencies.append((now := time.perf_counter()) - began)
            began = now
        self._most[order.contender] = max(self._most[order.contender], len(latencies))
        return Done(latencies, units, began)
