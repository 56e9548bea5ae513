"""`python -m tests.chaos [SECONDS] [SEED]`: let servers, network and database fail, and print what came of it."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.homes.postgres_server import fast_folder

from .chaos import Chaos


def main(seconds: float = 600.0, seed: float = 0) -> int:
    """Answers the exit code: 1 if anything was lost, came twice, or was told wrongly."""
    console = Console(highlight=False)
    began, chance = time.monotonic(), int(seed or time.time())
    console.print(f"seed {chance}")
    with tempfile.TemporaryDirectory(prefix="headwater-chaos-", dir=fast_folder()) as directory:
        chaos = Chaos(
            Path(directory),
            seconds,
            chance,
            lambda what: console.print(f"{time.monotonic() - began:6.1f} s {what}", markup=False),
        )
        found = chaos.run()
        if found:
            for member in chaos.members:
                (kept := Path(tempfile.gettempdir()) / f"headwater-chaos-{chance}-{member.name}.log").write_text(
                    member.said()
                )
                console.print(f"what server {member.name} said: {kept}")
    table = Table("does", "client", title="Chaos", title_justify="left")
    for heading in ("events", "again", "connections lost"):
        table.add_column(heading, justify="right")
    for row in chaos.rows():
        table.add_row(row.kind, row.name, *(f"{cell:,}" for cell in (row.events, row.again, row.losses)))
    console.print(table)
    console.print(
        "happened:", dict(chaos.happened), f"; every writer was answered again within {chaos.slowest_s:.1f} s"
    )
    for fault in found:
        console.print(f"FAULT: {fault}", markup=False)
    if not found:
        console.print(f"{chaos.acknowledged():,} events acknowledged; each is there once, in order, for every reader")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
