"""`python -m benchmarks.hotpath [ROW ...]`: CPU per operation, beside what it should be, in five minutes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from .. import machine
from ..workload import Workload
from . import in_process, rooms
from .rows import Place, Row

ROWS = {row.name: row for row in (*in_process.ROWS, *rooms.ROWS)}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(ROWS)), metavar="[ROW]...")
@click.option("--events", default=200_000, show_default=True, help="How many events the logs are filled with.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where the files are; on the disk to be measured.")
def main(names: Sequence[str], events: int, directory: Path | None) -> None:
    """What the work that matters costs in CPU: the least of many short slices, and the lower quartile.

    Rows: {rows}.
    """
    parent = directory or Path("build")
    parent.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, width=120)
    for name, value in {**machine.describe(parent), "events": f"{events:,}"}.items():
        console.print(f"[bold]{name}[/]: {value}")
    table = Table("row", "work", "CPU us, least", "lower quartile", "per second, most", "target", "")
    with console.status("") as status:
        for row in [ROWS[name] for name in names or ROWS]:
            status.update(row.what)
            with tempfile.TemporaryDirectory(prefix="hotpath-", dir=parent) as path:
                table.add_row(*_cells(row, Place(Path(path), Workload(events))))
    console.print(table)


def _cells(row: Row, place: Place) -> list[str]:
    cost = row.measure(place)
    verdict = "" if not row.aim else "met" if row.is_met(cost) else "MISSED"
    numbers = f"{cost.least_us:,.2f}", f"{cost.quartile_us:,.2f}", f"{cost.per_second:,.0f}"
    return [row.name, row.what, *numbers, row.aim, verdict]


if __name__ == "__main__":
    assert main.help is not None
    main.help = main.help.format(rows=", ".join(ROWS))
    main()
