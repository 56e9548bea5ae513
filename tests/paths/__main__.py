"""`python -m tests.paths`: how many files and Python calls below `src/headwater` an event takes, each way.

Each way is warmed up, and then sends 300 events three times; the server's calls are counted on all threads, those of
an idle server are taken off. `--json FILE` keeps the figures, `--against FILE` shows them beside those kept before,
names each way with more files or more calls, and exits with 1 if there is one.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from .counting import EVENTS, Way, Ways, growth, measured


@click.command(help=__doc__)
@click.option("--events", default=EVENTS, show_default=True, help="How many events each way.")
@click.option("--json", "kept", type=click.Path(path_type=Path), help="Write the figures to this file.")
@click.option("--against", type=click.Path(exists=True, path_type=Path), help="Compare with the figures of this file.")
def main(events: int, kept: Path | None, against: Path | None) -> None:
    """The program."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="headwater-paths-") as directory:
        found = measured(Path(directory), events=events, tell=lambda name: console.print(f"counting {name}"))
    before = _read(against) if against is not None else {}
    console.print(_table(before, found))
    if kept is not None:
        kept.write_text(json.dumps({name: way._asdict() for name, way in found.items()}, indent=1) + "\n")
    if lines := growth(before, found):
        console.print(*lines, sep="\n")
        raise SystemExit(1)


def _read(file: Path) -> Ways:
    return {name: Way(tuple(way["files"]), way["calls"]) for name, way in json.loads(file.read_text()).items()}


def _table(before: Ways, found: Ways) -> Table:
    """A row for each way; with the figures of before, if there are any."""
    table = Table(
        "way", *(("files before",) if before else ()), "files", *(("calls before",) if before else ()), "calls"
    )
    for name, way in found.items():
        old = before.get(name)
        files = ([str(len(old.files)) if old else "-"] if before else []) + [str(len(way.files))]
        calls = ([f"{old.calls:.1f}" if old else "-"] if before else []) + [f"{way.calls:.1f}"]
        table.add_row(name, *files, *calls)
    return table


if __name__ == "__main__":
    main()
