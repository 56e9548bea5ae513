"""How long does a burst of connections wait? `python -m benchmarks.bursts`

So many peers connect at once over HTTP, from one address, and ask for the health of a server with its logs in memory;
all stay until the last one was answered. The aim: all are answered within 5 s, and none is reset.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import click

from . import machine
from .client_http import MemoryServer
from .measure import expect

AIM_S = 5.0
REQUEST = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
SPARE_FILES = 100


@click.command()
@click.option("--connections", default=2000, show_default=True, help="How many connect at once.")
@click.option("--rounds", default=5, show_default=True)
def main(connections: int, rounds: int) -> None:
    """How long does a burst of connections wait?"""
    for name, value in machine.describe(Path(tempfile.gettempdir())).items():
        click.echo(f"{name}: {value}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(connections + SPARE_FILES, hard), hard))
    with tempfile.TemporaryDirectory() as directory, closing(MemoryServer(Path(directory, "server"))) as server:
        at = urlsplit(server.url)
        assert at.hostname is not None and at.port is not None
        for number in range(rounds):
            waits = sorted(asyncio.run(burst(at.hostname, at.port, connections)))
            expect("connections that were answered", connections, len(waits))
            median, last = statistics.median(waits), waits[-1]
            click.echo(f"round {number + 1}: answered {len(waits)}, median {median:.2f} s, last {last:.2f} s")
    click.echo(f"the aim is {AIM_S:g} s for the last one")


async def burst(host: str, port: int, connections: int) -> list[float]:
    """After how many seconds each connection was answered; those that were reset are left out."""
    began = time.perf_counter()

    async def answered() -> tuple[float, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(REQUEST)
        expect("status", b"HTTP/1.1 200", await reader.readexactly(12))
        return time.perf_counter() - began, writer

    peers = await asyncio.gather(*[answered() for _ in range(connections)], return_exceptions=True)
    served = [each for each in peers if not isinstance(each, BaseException)]
    for _, writer in served:
        writer.close()
    return [waited for waited, _ in served]


if __name__ == "__main__":
    main()
