"""`python -m tests.soak [SECONDS]`: run the soak, tell meanwhile how it goes, and print what came of it."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.measure import disk_bytes
from rich.console import Console
from rich.table import Table

from .soak import Soak
from .vitals import MIB

TELL_S = 10.0


def main(seconds: float = 600.0, seed: float = 0) -> int:
    """Answers the exit code: 1 if anything was lost, came twice, or grew."""
    console = Console(highlight=False)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-soak-") as directory:
        soak = Soak(
            Path(directory), seconds, int(seed or time.time()), lambda what: console.print(f"{_clock(began)} {what}")
        )
        done = threading.Event()
        telling = threading.Thread(target=_tell, args=(console, soak, began, done), daemon=True)
        telling.start()
        try:
            faults = soak.run()
        finally:
            done.set()
            telling.join()
        _print(console, soak, disk_bytes(Path(directory)))
    for fault in faults:
        console.print(f"FAULT: {fault}", markup=False)
    if not faults:
        console.print(f"{soak.acknowledged():,} events acknowledged; each is there once, in order, for every reader")
    return 1 if faults else 0


def _tell(console: Console, soak: Soak, began: float, done: threading.Event) -> None:
    while not done.wait(TELL_S):
        newest = {sample.role: sample for sample in soak.sampler.samples[-4:]}
        vitals = ", ".join(
            f"{role} {its.rss_mib:.0f} MiB, {its.connections}+{its.files} open" for role, its in newest.items()
        )
        ends = ", ".join(f"{count} {how}" for how, count in soak.server.ends.items())
        console.print(f"{_clock(began)}   {soak.acknowledged():,} acknowledged; {vitals}; {ends or 'no kill yet'}")


def _print(console: Console, soak: Soak, disk: int) -> None:
    table = Table("does", "client", title="Soak", title_justify="left")
    for heading in ("events", "again", "connections lost"):
        table.add_column(heading, justify="right")
    for row in soak.rows():
        table.add_row(row.kind, row.name, *(f"{cell:,}" for cell in (row.events, row.again, row.losses)))
    console.print(table)
    table = Table("process", "stretch", title="Memory and open files, without kills", title_justify="left")
    for heading in ("events", "RssAnon MiB", "connections", "files"):
        table.add_column(heading, justify="right")
    for name, role, first, last in soak.stretches:
        cells = [f"{last.events - first.events:,}", f"{first.rss_mib:.1f} to {last.rss_mib:.1f}"]
        cells += [f"{first.connections} to {last.connections}", f"{first.files} to {last.files}"]
        table.add_row(role, name, *cells)
    console.print(table)
    console.print("ends:", ", ".join(f"{count} {how}" for how, count in soak.server.ends.items()))
    visits: dict[str, int] = {}
    for passer in soak.passers:
        for kind, count in passer.visits.items():
            visits[kind] = visits.get(kind, 0) + count
    console.print("visits:", visits)
    console.print("managed:", dict(soak.manager.answers), "connections lost:", soak.manager.losses)
    console.print("heard:", dict(soak.listener.heard), "lost:", soak.listener.lost)
    console.print(
        f"trimmed: up to event {soak.trimmer.first_retained:,} of {len(soak.filler.acknowledged):,}, in "
        f"{soak.trimmer.trims} steps; consumer at {soak.holder.acknowledged:,}; {disk / MIB:.0f} MiB on disk"
    )


def _clock(began: float) -> str:
    return f"{time.monotonic() - began:6.1f} s"


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
