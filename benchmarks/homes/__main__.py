"""`python -m benchmarks.homes [QUESTION ...]`: a home in PostgreSQL, and what else a program has for it."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import click
from rich.console import Console

from .. import machine
from ..load import Load
from ..measure import Outcome, WrongAnswer, run_case
from ..report import Answer, json_text, terminal_view, write_markdown
from .bench import HomesBench

QUESTIONS = ("singles", "batches", "commands", "standby", "lag", "scans")
SECONDS, SHORT_S = 3.0, 2.0
EVENTS = 20_000
ROUND_TRIPS_MS = (0.0, 5.0)
TABLE_WIDTH = 120
SWITCH_INTERVAL_S = 0.0005
"""As Headwater's server sets it, for every contender."""


@click.command()
@click.argument("questions", nargs=-1, type=click.Choice(QUESTIONS), metavar="[QUESTION]...")
@click.option("--repeat", default=3, show_default=True, help="Rounds; every contender runs once in each.")
@click.option("--seconds", default=SECONDS, show_default=True, help="How long each sample takes.")
@click.option("--events", default=EVENTS, show_default=True, help="How many events each log is filled with.")
@click.option(
    "--round-trip-ms",
    "round_trips_ms",
    multiple=True,
    type=float,
    default=ROUND_TRIPS_MS,
    show_default=True,
    help="How long the way to the database takes, to and fro (may be repeated).",
)
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where to put the files; on the disk to be measured."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every sample to this file.")
@click.option(
    "--markdown",
    "markdown_path",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value=Path("docs/benchmarks-homes.md"),
    help="Write the tables to docs/benchmarks-homes.md, or to this file.",
)
def main(
    questions: Sequence[str],
    repeat: int,
    seconds: float,
    events: int,
    round_trips_ms: Sequence[float],
    directory: Path | None,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    """Answer QUESTIONs (default: all) with medians and ratios of interleaved runs.

    Questions: singles, batches, commands, standby, lag, scans. PostgreSQL is that of the tests, with its files on disk;
    without psycopg-pool the recorder of eventsourcing is left out.
    """
    chosen = sorted(set(questions) or QUESTIONS, key=QUESTIONS.index)
    parent = directory or Path("build")
    parent.mkdir(parents=True, exist_ok=True)
    if events < 1000 or events % 1000:
        raise click.BadParameter(f"{events} given, a multiple of 1000 is needed", param_hint="--events")
    if (kind := machine.filesystem(parent)) in machine.VOLATILE:
        raise click.BadParameter(f"{parent} is on {kind}, where nothing is durable", param_hint="--directory")
    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that everything is cleaned up
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    load = Load(is_for_page=markdown_path is not None)
    place = machine.describe(parent)
    with tempfile.TemporaryDirectory(prefix="homes-", dir=parent) as path, console.status("") as status:
        os.chmod(path, 0o755)  # as root, PostgreSQL is another user
        bench = HomesBench(
            Path(path).resolve(), events=events, seconds=seconds, round_trips_ms=round_trips_ms, note=status.update
        )
        try:
            run = {**_versions(bench), "rounds": repeat, "a sample takes": f"{seconds:g} s"}
            if seconds < SHORT_S:
                run["**short run**"] = "samples of less than 2 s, for orders of magnitude alone; a full run replaces it"
            for name, value in {**place, **run}.items():
                console.print(f"[bold]{name}[/]: {value}")
            answers = [_answer(name, bench, repeat, console) for name in chosen]
        except WrongAnswer as error:
            raise click.ClickException(str(error)) from error
        finally:
            bench.close()
    load.end()
    run["load by others"] = str(load)
    console.print(f"[bold]load by others[/]: {load}")
    if json_path:
        json_path.write_text(json_text(place, run, answers))
    if markdown_path:
        load.check()
        write_markdown(markdown_path, "python -m benchmarks.homes --markdown", place, run, answers)


def _answer(name: str, bench: HomesBench, rounds: int, console: Console) -> Answer:
    question = importlib.import_module(f".questions.{name}", __package__)
    outcomes: list[Outcome] = []
    for case in question.cases(bench):
        outcomes.append(run_case(case, rounds, bench.note))
    asked = " ".join((question.__doc__ or "").partition("\n\n")[0].split())
    answer = Answer(name, question.TITLE, asked, outcomes)
    console.print(terminal_view(answer))
    return answer


def _versions(bench: HomesBench) -> dict[str, object]:
    names = ("psycopg", *bench.peers)
    return {"PostgreSQL": bench.database.version, **{name: metadata.version(name) for name in names}}


if __name__ == "__main__":
    main()
