"""`python -m benchmarks.versions CHECKOUT [PIECE ...]`: what this checkout takes of CPU, beside another one.

Both do the same pieces in turn, each time in a fresh process: so what else the machine does hits both. A round's ratio
is that of the least repeats. The last column is the ratio of the time that went by, medians of all repeats: a person
waits for that, the disk's share included. The other checkout needs its `.venv` (`make setup`).
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from .. import machine
from .piece import Piece
from .pieces import PIECES, piece_of

ROOT = Path(__file__).parents[2]
MEMORY = Path("/dev/shm")
TABLE_WIDTH = 130


@click.command()
@click.argument("checkout", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("names", nargs=-1, type=click.Choice(PIECES), metavar="[PIECE]...")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Each version, in each piece.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where the files are; on the disk to be measured.")
def main(checkout: Path, names: Sequence[str], rounds: int, directory: Path | None) -> None:
    """Compare the CPU time of this checkout with that of CHECKOUT, another one.

    Pieces: {pieces}.
    """
    parent = directory or Path("build")
    parent.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, width=TABLE_WIDTH)
    for name, value in machine.describe(parent).items():
        console.print(f"[bold]{name}[/]: {value}")
    pythons = [_python(ROOT), _python(checkout.absolute())]
    table = Table(
        "piece", "work", "ms here", "ms there", "ratio of least", "ratio of rounds", "median", "limit", "", "elapsed"
    )
    with console.status("") as status:
        for piece in map(piece_of, names or PIECES):
            status.update(piece.name)
            place = MEMORY if piece.is_in_memory and MEMORY.is_dir() else parent
            with tempfile.TemporaryDirectory(prefix="versions-", dir=place) as path:
                places = [Path(path).absolute() / each for each in ("here", "there")]
                cells = _cells(piece, _rounds(piece, pythons, places, rounds))
            console.print(f"{piece.name}: {cells[4]}")  # for whoever ends it before the table is there
            table.add_row(*cells)
    console.print(table)


def _rounds(
    piece: Piece, pythons: Sequence[Path], places: Sequence[Path], rounds: int
) -> list[list[list[list[float]]]]:
    """CPU seconds and elapsed ones of each repeat of each round of each version."""
    for python, place in zip(pythons, places, strict=True):
        place.mkdir()
        _run(python, piece.name, str(place), "prepare")
    taken: list[list[list[list[float]]]] = [[], []]
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            taken[which].append(json.loads(_run(pythons[which], piece.name, str(places[which]))))
    return taken


def _cells(piece: Piece, taken: Sequence[Sequence[Sequence[Sequence[float]]]]) -> list[str]:
    here, there = ([min(cpu for cpu, _ in repeats) for repeats in version] for version in taken)
    gone_by = [statistics.median(elapsed for repeats in version for _, elapsed in repeats) for version in taken]
    ratios = sorted(ours / theirs for ours, theirs in zip(here, there, strict=True))
    ratio, median = min(here) / min(there), statistics.median(ratios)
    is_bound = piece.limit != float("inf")
    verdict = "" if not is_bound else "within" if min(ratio, median) <= piece.limit else "OVER"
    return [
        piece.name,
        piece.what,
        f"{min(here) * 1000:,.2f}",
        f"{min(there) * 1000:,.2f}",
        f"{ratio:.3f}",
        f"{ratios[0]:.3f} to {ratios[-1]:.3f}",
        f"{median:.3f}",
        f"{piece.limit:.2f}" if is_bound else "",
        verdict,
        f"{gone_by[0] / gone_by[1]:.3f}",
    ]


def _run(python: Path, *arguments: str) -> str:
    command = [str(python), "-m", f"{__package__}.child", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def _python(checkout: Path) -> Path:
    """The interpreter that has a checkout's version installed. Raises BadParameter."""
    python = checkout / ".venv" / "bin" / "python"
    if shutil.which(python) is None:
        raise click.BadParameter(f"there is no {python}: make setup there", param_hint="CHECKOUT")
    return python


if __name__ == "__main__":
    assert main.help is not None
    main.help = main.help.format(pieces=", ".join(PIECES))
    main()
