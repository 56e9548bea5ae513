"""A server on HTTP: what small requests and commands cost it, and what commands cost its client."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from ..stores.headwater_server import LOG, HeadwaterRemote, HeadwaterServer
from ..workload import Workload
from .rows import Place, Row
from .slices import Cost, measured, watched

SECONDS = 4.0
BATCH = 1000
Step = Callable[[HeadwaterRemote, Workload, int], object]


class _Clients:
    """Threads that repeat a step, each on a connection of its own, until they are told to stop."""

    def __init__(self, url: str, workload: Workload, step: Step, count: int) -> None:
        self._url, self._workload, self._step = url, workload, step
        self.done = [0] * count
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def __enter__(self) -> _Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def total(self) -> int:
        """Steps so far."""
        return sum(self.done)

    def _run(self, number: int) -> None:
        with closing(HeadwaterRemote(self._url)) as remote:
            while not self._stop.is_set():
                self._step(remote, self._workload, number)
                self.done[number] += 1


@contextmanager
def served(place: Place) -> Iterator[HeadwaterServer]:
    """A server whose log has all events of the workload."""
    directory = place.directory / f"served-{len(list(place.directory.iterdir()))}"
    with closing(HeadwaterServer(directory)) as server, closing(HeadwaterRemote(server.url)) as remote:
        for events in place.workload.batches(0, place.workload.total, BATCH):
            remote.append(events)
        yield server


def head(place: Place) -> Cost:
    """The smallest request, as raw bytes on one connection."""
    with served(place) as server:
        at = urlsplit(server.url)
        assert at.hostname is not None and at.port is not None
        return _asked(server.pid, at.hostname, at.port)


def echo(place: Place) -> Cost:
    """The same bytes for a server that does nothing with them: what of `head` is the event loop's, and waking up."""
    command = [sys.executable, "-m", "benchmarks.hotpath.echo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            return _asked(server.pid, "127.0.0.1", int(server.stdout.readline()))
        finally:
            server.stdin.close()


def _asked(pid: int, host: str, port: int) -> Cost:
    """What it costs a server to be asked for the head of the log, by one client that waits for each answer."""
    asked = f"GET /logs/{LOG}/head HTTP/1.1\r\nhost: {host}:{port}\r\nuser-agent: benchmark\r\n\r\n".encode()
    done, stop = [0], threading.Event()

    def ask() -> None:
        with socket.create_connection((host, port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not stop.is_set():
                connection.sendall(asked)
                assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
                done[0] += 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        return watched(pid, lambda: done[0], SECONDS)
    finally:
        stop.set()
        thread.join()


def command(remote: HeadwaterRemote, workload: Workload, number: int) -> None:
    """Read the events of two tags, and append one under the condition that they are still all."""
    event = workload.fresh(1)[0]
    first = int(event.tags[0].partition(":")[2])
    pair = [f"account:{(first * 7919 + number + n) % workload.accounts}" for n in range(2)]
    query = remote.prepare_query(pair)
    remote.append_if([event._replace(tags=tuple(pair))], query, remote.read(query).head)


def commands(clients: int) -> Callable[[Place], Cost]:
    """What a command costs the server, with so many clients."""

    def measure(place: Place) -> Cost:
        with served(place) as server, _Clients(server.url, place.workload, command, clients) as running:
            return watched(server.pid, running.total, SECONDS)

    return measure


def of_client(place: Place) -> Cost:
    """What a command costs its client: this process, with one of them."""
    with served(place) as server, closing(HeadwaterRemote(server.url)) as remote:
        return measured(lambda _: [command(remote, place.workload, 0) for _ in range(50)], 50)


def read(remote: HeadwaterRemote, workload: Workload, number: int) -> None:
    """Ten events of a tag."""
    number = workload.reserve(1) * 7919 % workload.accounts
    assert len(remote.read(remote.prepare_query([f"account:{number}"])).payloads) == 10


def tag_reads(place: Place) -> Cost:
    """What a read of a tag costs the server."""
    with served(place) as server, _Clients(server.url, place.workload, read, 1) as running:
        return watched(server.pid, running.total, SECONDS)


def append_batch(remote: HeadwaterRemote, workload: Workload, number: int) -> None:
    """A batch of 1000."""
    remote.append(workload.fresh(BATCH))


def batches(place: Place) -> Cost:
    """What an event of a batch costs the server, with 8 clients."""
    with served(place) as server, _Clients(server.url, place.workload, append_batch, 8) as running:
        return watched(server.pid, lambda: running.total() * BATCH, SECONDS)


ROWS = (
    Row("echo", "as head, a server that does nothing", echo),
    Row("head", "head over HTTP, the server", head, us_max=25),
    Row("http-tag", "ten events of a tag over HTTP, the server", tag_reads),
    Row("command", "a command, 1 client, the server", commands(1), us_max=260),
    Row("command-8", "a command, 8 clients, the server", commands(8), us_max=260),
    Row("command-64", "a command, 64 clients, the server", commands(64), us_max=260),
    Row("client", "a command, its client", of_client, us_max=120),
    Row("http-batches", "batches of 1000 over HTTP, 8 clients, per event, the server", batches),
)
