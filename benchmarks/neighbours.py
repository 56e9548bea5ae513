"""How long do good clients wait while hostile peers take memory? `python -m benchmarks.neighbours [LOAD ...]`

A server with the budget and the cgroup of `tests.load.hostile.memory`, and one good writer and reader of each protocol.
First nobody disturbs them, then each load in turn does. The aim is a 99th percentile of three times the quiet one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from tests.load.hostile.memory import DAILY, LOADS, Prepared

from . import machine

AIM = 3.0


@click.command()
@click.argument("loads", nargs=-1, type=click.Choice(list(LOADS)), metavar="[LOAD]...")
@click.option("--seconds", default=20.0, show_default=True, help="How long nobody disturbs them.")
def main(loads: tuple[str, ...], seconds: float) -> None:
    """A neighbour's appends beside hostile peers."""
    console = Console(highlight=False, width=120)
    for name, value in machine.describe(Path(tempfile.gettempdir())).items():
        console.print(f"[bold]{name}[/]: {value}")
    table = Table("load", "neighbour", title=f"Appends of neighbours; the aim is {AIM:g} x quiet", title_justify="left")
    for heading in ("appends", "median ms", "99% ms", "x quiet"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory(prefix="headwater-neighbours-") as directory:
        prepared = Prepared(Path(directory))
        for load in loads or DAILY:
            for _ in prepared.run([load], quiet_s=seconds):
                pass
            quiet = {waits.protocol: waits.last_percent_ms for waits in prepared.waits if waits.name == "nobody"}
            for waits in prepared.waits:
                times = waits.last_percent_ms / quiet[waits.protocol]
                cells = (f"{waits.median_ms:.1f}", f"{waits.last_percent_ms:.1f}", f"{times:.1f}")
                table.add_row(waits.name, waits.protocol, str(waits.appends), *cells)
            table.add_section()
            for fault in prepared.faults:
                console.print(f"{load}: {fault[:200]}", markup=False)
    console.print(table)


if __name__ == "__main__":
    main()
