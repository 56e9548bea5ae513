"""What does the client's own HTTP cost beside urllib3? `python -m benchmarks.client_http`

One thread asks a server with its logs in memory for `head`, and appends single events, by the same `RemoteLog` over the
client's transport and over a pool of urllib3, both with the same header fields on one kept connection. Each round does
so in turn, so that what else the machine does hits both. The CPU time is that of the client's thread. Ratios are taken
within a round; shown is their median, and the middle half of them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar, cast

import click
import urllib3

from headwater.client import RemoteLog
from headwater.client.protocol.address import address_of
from headwater.client.protocol.request import Request
from headwater.client.protocol.terms import terms_of
from headwater.client.sync.transport import Transport
from headwater.core import Event
from headwater.formats.clients.answer import Answer

from . import machine
from .stores.headwater_server import LOG, HeadwaterServer

T = TypeVar("T")
OWN, URLLIB3 = "own", f"urllib3 {urllib3.__version__}"
EVENT = Event("OrderPlaced", b"x" * 200, ("order:17", "customer:ann"))
REQUESTS: dict[str, Callable[[RemoteLog], object]] = {
    "head": RemoteLog.head,
    "append of one event": lambda log: log.append([EVENT]),
}


class MemoryServer(HeadwaterServer):
    """`headwater serve` with its logs in memory."""

    def _start(self, directory: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headwater.cli.main", "serve", "--storage", "memory", "--log", LOG]
        ports = ["--http-port", "0", "--amqp-port", "0", "--flight-enabled", "false"]
        return subprocess.Popen([*command, *ports], cwd=directory.parent, stdout=subprocess.PIPE, stderr=self._log)


class PoolOfUrllib3:
    """What `RemoteLog` asks of a transport, by urllib3's shortest way: one attempt, errors as they come."""

    def __init__(self, url: str) -> None:
        at = address_of(url, None, None, None, None, True)
        self._pool = urllib3.HTTPConnectionPool(at.host, at.port, maxsize=1)

    def call(self, request: Request[T]) -> T:
        """What a whole answer means."""
        route, body = request.route, request.body
        headers = {"user-agent": "headwater-client", "accept": route.accept}
        if body:
            headers["content-type"] = route.content_type
        said = self._pool.urlopen(
            route.method, route.path, body or None, headers, retries=False, assert_same_host=False
        )
        assert said.status < 400, said.data
        answer = Answer()
        answer.status, answer.pieces = said.status, [said.data]
        return request.decode(answer)

    def close(self) -> None:
        """Close its connection."""
        self._pool.close()


def cpu_us(log: RemoteLog, ask: Callable[[RemoteLog], object], count: int) -> float:
    """CPU time per request."""
    began = time.thread_time_ns()
    for _ in range(count):
        ask(log)
    return (time.thread_time_ns() - began) / count / 1000


@click.command()
@click.option("--rounds", default=30, show_default=True, help="Each of both runs once in each.")
@click.option("--requests", default=1000, show_default=True, help="Of each kind, in a round.")
def main(rounds: int, requests: int) -> None:
    """What does the client's own HTTP cost beside urllib3?"""
    for name, value in machine.describe(Path(tempfile.gettempdir())).items():
        click.echo(f"{name}: {value}")
    with tempfile.TemporaryDirectory() as directory, closing(MemoryServer(Path(directory, "server"))) as server:
        own = Transport(terms_of(server.url, timeout_s=60.0, retry_s=0.0))
        other = PoolOfUrllib3(server.url)
        logs = {OWN: RemoteLog(own, LOG), URLLIB3: RemoteLog(cast(Transport, other), LOG)}
        for kind, ask in REQUESTS.items():
            times: dict[str, list[float]] = {name: [] for name in logs}
            for turn in range(rounds + 1):
                for name in sorted(logs, reverse=bool(turn % 2)):
                    taken = cpu_us(logs[name], ask, requests)
                    if turn:  # the first one warms up
                        times[name].append(taken)
            show(kind, times)
        own.close()
        other.close()


def show(kind: str, times: dict[str, list[float]]) -> None:
    """A line for one kind of request."""
    ratios = [other / own for other, own in zip(times[URLLIB3], times[OWN], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    medians = ", ".join(f"{name} {statistics.median(taken):.0f} us" for name, taken in times.items())
    click.echo(f"{kind}: {medians}; ratio {middle:.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
