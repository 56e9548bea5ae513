"""How fast does another process read a stored log as Arrow batches? `python -m benchmarks.mapped`

Frames of 1,000 events with every column, and with some; frames of one event; queries that few events match, and one
that half of them do, answered by postings and without them. Every round opens the log anew (so it verifies each frame)
and scans it twice: the first and the second time are given, each the best of all rounds.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from headwater.core import Query
from headwater.storage import Engine, StoredLog
from headwater.storage.disk.system import Disk
from headwater.storage.read.mapped_log import MappedLog

from . import machine
from .measure import anonymous_bytes, expect
from .workload import COMMON_TYPES, Workload

COLUMNS = ["sequence_number", "type", "tags"]
NEVER = Query.where(tags=["no:such"])


class UnsyncedDisk(Disk):
    """The logs are made for this benchmark only: they need not outlive the machine."""

    def writes_durably(self, directory: Path) -> bool:
        return False  # so that each write and each sync is one of its own

    def sync(self, fd: int) -> None:
        """Nothing."""


class Case(NamedTuple):
    """A scan of a whole log."""

    title: str
    log: StoredLog
    options: dict[str, Any]
    events: int
    """How many it must give."""


@click.command()
@click.option("--events", default=1_000_000, show_default=True, help="In frames of 1,000.")
@click.option("--single", default=200_000, show_default=True, help="In frames of one event.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), help="Where the logs are kept, to be used again.")
def main(events: int, single: int, rounds: int, directory: Path | None) -> None:
    """Events per second of scans by another process than the writer."""
    parent = Path("build")
    parent.mkdir(exist_ok=True)
    console = Console(highlight=False, width=120)
    for name, value in machine.describe(parent).items():
        console.print(f"[bold]{name}[/]: {value}")
    table = Table("scan", "events", "first ms", "second ms", "events/s first", "events/s second", "batches", "MB anon.")
    with tempfile.TemporaryDirectory(prefix="mapped-", dir=parent) as temporary:
        engine = Engine(directory or Path(temporary), maintains=False, disk=UnsyncedDisk())
        for case in _cases(_filled(engine, "large", events, 1000), _filled(engine, "single", single, 1)):
            table.add_row(*_measured(case, rounds))
        engine.close()
    console.print(table)


def _filled(engine: Engine, name: str, events: int, per_frame: int) -> StoredLog:
    """A log of so many events of 256 bytes with three tags, sealed but for its newest segment."""
    log = engine.create(name)
    workload = Workload(events)
    for first in range(log.head(), events, 1000):
        batch = [
            each._replace(tags=(*each.tags, f"region:{n % 7}")) for n, each in enumerate(workload.stored(first, 1000))
        ]
        for start in range(0, 1000, per_frame):
            log.append(batch[start : start + per_frame])
    engine.maintain()
    return log


def _cases(large: StoredLog, single: StoredLog) -> Iterator[Case]:
    workload = Workload(large.head())
    half = Query.where(types=COMMON_TYPES[:10])
    types = [workload.type_of(n) for n in range(large.head())]
    matching_half = sum(each in COMMON_TYPES[:10] for each in types)
    yield Case("1,000 a frame, all columns", large, {}, large.head())
    yield Case("1,000 a frame, 3 columns", large, {"columns": COLUMNS}, large.head())
    yield Case("1,000 a frame, number only", large, {"columns": COLUMNS[:1]}, large.head())
    yield Case("1,000 a frame, tag of 10 events", large, {"query": Query.where(tags=["account:77"])}, 10)
    yield Case("1,000 a frame, tag of no event", large, {"query": NEVER}, 0)
    yield Case("1,000 a frame, types of half", large, {"query": half}, matching_half)
    yield Case("1,000 a frame, types of half, 3 columns", large, {"query": half, "columns": COLUMNS}, matching_half)
    yield Case("1 a frame, all columns", single, {}, single.head())
    yield Case("1 a frame, 3 columns", single, {"columns": COLUMNS}, single.head())
    yield Case("1 a frame, tag of 10 events", single, {"query": Query.where(tags=["account:77"])}, 10)


def _measured(case: Case, rounds: int) -> list[str]:
    firsts, seconds, batches = [], [], 0
    before, peak = anonymous_bytes(os.getpid()), 0
    for _ in range(rounds):
        mapped = MappedLog(case.log.directory)
        for times in (firsts, seconds):
            began = time.perf_counter()
            mapped.refresh(case.log.head())
            rows = batches = 0
            for batch in mapped.scan(0, case.log.head(), **case.options):
                rows, batches = rows + batch.num_rows, batches + 1
                if batches % 50 == 0:
                    peak = max(peak, anonymous_bytes(os.getpid()))
            times.append(time.perf_counter() - began)
            expect(f"{case.title}: events", case.events, rows)
        mapped.close()
    first, second = min(firsts), min(seconds)
    rates = [f"{case.log.head() / each:,.0f}" for each in (first, second)]
    grown = (max(peak, anonymous_bytes(os.getpid())) - before) / 1e6
    return [
        case.title,
        f"{case.events:,}",
        f"{first * 1e3:,.1f}",
        f"{second * 1e3:,.1f}",
        *rates,
        f"{batches:,}",
        f"{grown:.0f}",
    ]


if __name__ == "__main__":
    main()
