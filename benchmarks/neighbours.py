"""How long do good clients wait while hostile peers take memory? `python -m benchmarks.neighbours [LOAD ...]`

A server with the budget and the cgroup of `tests.load.hostile.memory`, and one good writer and reader of each protocol.
First nobody disturbs them, then the load comes, goes and comes again. Hostile peers are in a process of their own with
the lowest priority. The aim is a 99th percentile of three times the quiet one; rows are medians of the rounds.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table
from tests.load.hostile.loads import DAILY, LOADS
from tests.load.hostile.memory import Prepared

from . import machine

AIM = 3.0


@click.command()
@click.argument("loads", nargs=-1, type=click.Choice(list(LOADS)), metavar="[LOAD]...")
@click.option("--seconds", default=20.0, show_default=True, help="How long nobody disturbs them.")
@click.option("--rounds", default=5, show_default=True, help="How often each load comes.")
def main(loads: tuple[str, ...], seconds: float, rounds: int) -> None:
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
            for _ in prepared.run([load] * rounds, quiet_s=seconds):
                pass
            kinds = {(waits.name, waits.protocol): [] for waits in prepared.waits}
            for waits in prepared.waits:
                kinds[waits.name, waits.protocol].append(waits)
            for (name, protocol), its in kinds.items():
                quiet = kinds["nobody", protocol][0].last_percent_ms
                last = median(waits.last_percent_ms for waits in its)
                appends, middle = sum(waits.appends for waits in its), median(waits.median_ms for waits in its)
                table.add_row(name, protocol, str(appends), f"{middle:.1f}", f"{last:.1f}", f"{last / quiet:.1f}")
            table.add_section()
            for fault in prepared.faults:
                console.print(f"{load}: {fault[:200]}", markup=False)
    console.print(table)


if __name__ == "__main__":
    main()
