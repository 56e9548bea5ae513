"""`python -m benchmarks.served [ROW ...]`: Headwater's server as it is installed here, beside UmaDB's and others."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from headwater.formats.installing import how_to_install

from .. import machine
from ..load import Load
from ..measure import Outcome, WrongAnswer
from ..report import Answer, json_text, terminal_view, write_markdown
from ..workload import Workload
from .contenders import BESIDE, SAME, Servers, contenders, python_of, version_of
from .rows import ROWS, UMADB
from .turns import compare

PAGE = Path("docs/benchmarks.md")
WRITER = "python -m benchmarks.served --write"
TITLE = "Servers over sockets"
ASKED = "What do servers do in a second, and what does that cost them and their clients?"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(ROWS)), metavar="[ROW]...")
@click.option("--events", default=300_000, show_default=True, help="How many events the logs are filled with.")
@click.option("--slices", type=click.IntRange(min=2), default=16, show_default=True, help="For each row and contender.")
@click.option("--slice-s", default=0.25, show_default=True, help="How long each takes, in seconds.")
@click.option("--same", "has_same", is_flag=True, help="A second server of this checkout: what chance does.")
@click.option("--pure", "has_pure", is_flag=True, help="A server without the extension.")
@click.option("--beside", type=click.Path(path_type=Path, exists=True), help="A checkout whose server runs, too.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where the files are; on the disk to be measured.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every sample to this file.")
@click.option("--write", is_flag=True, help=f"Write {PAGE}, with --same, if others leave the machine alone.")
def main(
    names: Sequence[str],
    events: int,
    slices: int,
    slice_s: float,
    has_same: bool,
    has_pure: bool,
    beside: Path | None,
    directory: Path | None,
    json_path: Path | None,
    write: bool,
) -> None:
    """Compare servers by ROW (default: all), in short slices in random order.

    Rows: {rows}.
    """
    if write and names:
        raise click.UsageError(f"expected no row with --write, as a page has them all, got {', '.join(names)}")
    parent = directory or Path("build")
    parent.mkdir(parents=True, exist_ok=True)
    if events < 1000 or events % 1000:
        raise click.BadParameter(f"expected a multiple of 1000, got {events}", param_hint="--events")
    if (kind := machine.filesystem(parent)) in machine.VOLATILE:
        raise click.BadParameter(f"{parent} is on {kind}, where nothing is durable", param_hint="--directory")
    try:
        python = python_of(beside) if beside else None
    except FileNotFoundError as error:
        raise click.BadParameter(str(error), param_hint="--beside") from error
    chosen = contenders(has_same=has_same or write, has_pure=has_pure, beside=python)
    if write and UMADB not in chosen:
        raise click.UsageError(f"a page needs the package umadb: {how_to_install('bench')}")
    console = Console(highlight=False)
    console.width = max(console.width, 150)
    load = Load(is_for_page=write)
    place = machine.describe(parent)
    if python:
        place[BESIDE] = version_of(python)
    run: dict[str, object] = {
        "events": f"{events:,}",
        "slices": f"{slices} of {slice_s:g} s for each row and contender",
    }
    for name, value in {**place, **run, "load by others": load}.items():
        console.print(f"[bold]{name}[/]: {value}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that everything is cleaned up
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="served-", dir=parent) as path, console.status("filling") as status:
        servers = Servers(Path(path), chosen)
        try:
            servers.fill(Workload(events))
            first = 0
            for row in [ROWS[name] for name in sorted(set(names) or ROWS, key=list(ROWS).index)]:
                outcomes.append(compare(row, servers, events, first, slices, slice_s, status.update))
                first += row.clients
                console.print(terminal_view(Answer(row.name, "", "", outcomes[-1:])))
        except WrongAnswer as error:
            raise click.ClickException(str(error)) from error
        finally:
            servers.close()
    load.end(is_all_ours=True)
    run["load by others"] = str(load)
    run["spread"] = _spread(outcomes)
    console.print(f"[bold]load by others[/]: {load}\n[bold]spread[/]: {run['spread']}")
    answers = [Answer("served", TITLE, ASKED, outcomes)]
    if json_path:
        json_path.write_text(json_text(place, run, answers))
    if write:
        load.check()
        write_markdown(PAGE, WRITER, place, run, [replace(answers[0], outcomes=_without_same(outcomes))])


def _without_same(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """What a page has: the spread says what the second server is for."""
    kept = [{name: its for name, its in each.samples.items() if name != SAME} for each in outcomes]
    return [replace(each, samples=samples) for each, samples in zip(outcomes, kept, strict=True)]


def _spread(outcomes: Sequence[Outcome]) -> str:
    """The ratios of two servers of the same build, over all rows."""
    ratios = sorted(ratio for outcome in outcomes if SAME in outcome.samples for ratio in outcome.ratios(SAME))
    if not ratios:
        return "not measured: --same does"
    low, high = (ratios[len(ratios) * part // 4] for part in (1, 3))
    return f"{low:.2f}\N{EN DASH}{high:.2f} x (quartiles) between two servers of this build"


if __name__ == "__main__":
    assert main.help is not None
    main.help = main.help.format(rows=", ".join(ROWS))
    main()
