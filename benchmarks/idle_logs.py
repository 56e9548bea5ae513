"""What does an open log cost at which nothing happens? `python -m benchmarks.idle_logs`

A data directory gets many logs of one event each, all open. Then nothing is asked of it for some seconds. What this
process takes is given per log, less what the directory takes without logs.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

from headwater.core import Event
from headwater.storage import Engine

from . import machine
from .measure import anonymous_bytes, expect

SETTLE_S = 3.0
"""So long until maintenance has nothing left to do."""


class Taken(NamedTuple):
    """What this process and its directory take at one moment, or over some seconds."""

    cpu_us_per_s: float
    memory_bytes: float
    disk_bytes: float
    descriptors: float
    maps: float
    threads: float

    def per_log(self, without: Taken, logs: int) -> Taken:
        """What each of the logs adds."""
        return Taken(*((mine - its) / logs for mine, its in zip(self, without, strict=True)))


@click.command()
@click.option("--logs", default=500, show_default=True)
@click.option("--seconds", default=10.0, show_default=True, help="How long nothing happens.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where to put the files.")
def main(logs: int, seconds: float, directory: Path | None) -> None:
    """The cost of an open log at which nothing happens."""
    console = Console(highlight=False, width=120)
    parent = directory or Path("build")
    parent.mkdir(exist_ok=True)
    for name, value in machine.describe(parent).items():
        console.print(f"[bold]{name}[/]: {value}")
    with (
        tempfile.TemporaryDirectory(prefix="idle-", dir=parent) as temporary,
        Engine(temporary, ballast_bytes=0) as engine,
    ):
        without = _taken(Path(temporary), seconds)
        began = time.perf_counter()
        for number in range(logs):
            engine.create(f"log{number}").append([Event("Made")])
        making_ms = (time.perf_counter() - began) * 1000 / logs
        found = _taken(Path(temporary), seconds).per_log(without, logs)
        expect("events", logs, sum(engine.open(name).head() for name in engine.names()))
    table = Table("an idle log takes", "")
    table.add_row("CPU", f"{found.cpu_us_per_s:.1f} us a second")
    table.add_row("memory", f"{found.memory_bytes / 1024:.0f} KiB")
    table.add_row("disk", f"{found.disk_bytes / 1024:.0f} KiB")
    table.add_row("descriptors", f"{found.descriptors:.1f}")
    table.add_row("maps", f"{found.maps:.1f}")
    table.add_row("threads", f"{found.threads:.1f}")
    table.add_row("to make it, with its first event", f"{making_ms:.1f} ms")
    console.print(table)


def _taken(directory: Path, seconds: float) -> Taken:
    time.sleep(SETTLE_S)
    began, cpu = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    cpu_us = (time.process_time() - cpu) * 1e6 / (time.perf_counter() - began)
    return Taken(
        cpu_us,
        anonymous_bytes(os.getpid()),
        sum(path.lstat().st_blocks * 512 for path in directory.rglob("*")),
        len(os.listdir("/proc/self/fd")),
        len(Path("/proc/self/maps").read_text().splitlines()),
        threading.active_count(),
    )


if __name__ == "__main__":
    main()
