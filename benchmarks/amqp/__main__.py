"""`python -m benchmarks.amqp [QUESTION ...]`: the same AMQP load on Headwater and on other brokers."""

from __future__ import annotations

import importlib
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from .. import machine
from ..load import Load
from ..measure import Outcome, WrongAnswer, run_case
from ..report import Answer, json_text, terminal_view, write_markdown
from .bench import KINDS, AmqpBench
from .cache import Unavailable
from .load import program

QUESTIONS = ("throughput", "idle", "disturbed", "by_tag")
QUICK_SCALE = 0.2
TABLE_WIDTH = 120


@click.command()
@click.argument("questions", nargs=-1, type=click.Choice(QUESTIONS), metavar="[QUESTION]...")
@click.option("--on", "labels", multiple=True, type=click.Choice(list(KINDS)), help="Only these (may be repeated).")
@click.option("--repeat", default=3, show_default=True, help="Rounds; every contender runs once in each.")
@click.option("--quick", is_flag=True, help="A fifth of the measured work, for a first look.")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where to put the files; on the disk to be measured."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every sample to this file.")
@click.option(
    "--markdown",
    "markdown_path",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value=Path("docs/benchmarks-amqp.md"),
    help="Write the tables to docs/benchmarks-amqp.md, or to this file.",
)
def main(
    questions: Sequence[str],
    labels: Sequence[str],
    repeat: int,
    quick: bool,
    directory: Path | None,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    """Answer QUESTIONs (default: all) with medians and ratios of interleaved runs.

    Questions: throughput, idle, disturbed, by_tag. The other brokers install themselves into build/peers.
    """
    chosen = sorted(set(questions) or QUESTIONS, key=QUESTIONS.index)
    parent = directory or Path("build")
    parent.mkdir(parents=True, exist_ok=True)
    if (kind := machine.filesystem(parent)) in machine.VOLATILE:
        raise click.BadParameter(f"{parent} is on {kind}, where nothing is durable", param_hint="--directory")
    try:
        program()
    except Unavailable as error:
        raise click.ClickException(str(error)) from error
    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that everything is cleaned up
    load = Load(is_for_page=markdown_path is not None)
    place = machine.describe(parent)
    with tempfile.TemporaryDirectory(prefix="amqp-", dir=parent) as path, console.status("") as status:
        bench = AmqpBench(
            Path(path).resolve() / "servers",
            sorted(set(labels) or KINDS, key=list(KINDS).index),
            scale=QUICK_SCALE if quick else 1.0,
            note=status.update,
            complain=console.print,
        )
        run: dict[str, object] = {**bench.versions, "rounds": repeat}
        if quick:
            run["short run"] = f"{QUICK_SCALE:g} of the measured work"
        for name, value in {**place, **run}.items():
            console.print(f"[bold]{name}[/]: {value}")
        answers = _answers(chosen, bench, repeat, console)
    load.end()
    run["load by others"] = str(load)
    console.print(f"[bold]load by others[/]: {load}")
    if json_path:
        json_path.write_text(json_text(place, run, answers))
    if markdown_path:
        load.check()
        write_markdown(markdown_path, "python -m benchmarks.amqp --markdown", place, run, answers)


def _answers(chosen: Sequence[str], bench: AmqpBench, rounds: int, console: Console) -> list[Answer]:
    answers = []
    try:
        for name in chosen:
            question = importlib.import_module(f".questions.{name}", __package__)
            outcomes: list[Outcome] = []
            for case in question.cases(bench):
                outcomes.append(run_case(case, rounds, bench.note))
            asked = " ".join((question.__doc__ or "").partition("\n\n")[0].split())
            answers.append(Answer(name, question.TITLE, asked, outcomes))
            console.print(terminal_view(answers[-1]))
    except WrongAnswer as error:
        raise click.ClickException(str(error)) from error
    finally:
        bench.close()
    return answers


if __name__ == "__main__":
    main()
