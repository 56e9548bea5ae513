"""`python -m benchmarks [QUESTION ...]`: answer some questions, or all of them, with the contenders side by side."""

from __future__ import annotations

import importlib
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import click
from rich.console import Console

from . import machine
from .bench import Bench
from .futoin import servers as futoin
from .load import Load
from .measure import Case, Outcome, WrongAnswer, run_case
from .report import Answer, json_text, terminal_view, write_markdown
from .workload import Workload

QUESTIONS = (
    "fill",
    "append_batches",
    "append_singles",
    "append_conditional",
    "read_tag",
    "read_type",
    "scan",
    "footprint",
    "recovery",
    "trim",
    "futoin_add",
    "futoin_receive",
    "futoin_latency",
    "notifications",
)
"""In the order in which they run: `trim` leaves less behind."""
QUICK_SCALE = 0.2
EVENTS_MIN = 10_000
TABLE_WIDTH = 120
SWITCH_INTERVAL_S = 0.0005
"""How long a thread keeps the interpreter while others wait: as Headwater's server sets it, for every contender."""


@click.command()
@click.argument("questions", nargs=-1, type=click.Choice(QUESTIONS), metavar="[QUESTION]...")
@click.option("--events", default=1_000_000, show_default=True, help="How many events the logs are filled with.")
@click.option("--repeat", default=3, show_default=True, help="Rounds; every contender runs once in each.")
@click.option("--quick", is_flag=True, help="A fifth of the measured work, for a first look.")
@click.option("--ordered-ids", is_flag=True, help="Ids that ascend, as UUIDv7 do, instead of random ones.")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where to put the files; on the disk to be measured."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every sample to this file.")
@click.option(
    "--markdown",
    "markdown_path",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value=Path("docs/benchmarks.md"),
    help="Write the tables to docs/benchmarks.md, or to this file.",
)
def main(
    questions: Sequence[str],
    events: int,
    repeat: int,
    quick: bool,
    ordered_ids: bool,
    directory: Path | None,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    """Answer QUESTIONs (default: all) with medians and ratios of interleaved runs.

    Questions: {questions}.
    """
    if events < EVENTS_MIN or events % 1000:
        problem = f"{events} given, a multiple of 1000 from {EVENTS_MIN} on is needed"
        raise click.BadParameter(problem, param_hint="--events")
    has_futoin = futoin.is_installed()
    available = [name for name in QUESTIONS if has_futoin or not name.startswith("futoin_")]
    chosen = sorted(set(questions) or available, key=QUESTIONS.index)
    if not set(chosen) <= set(available):
        raise click.UsageError("the questions about FutoIn need its library: make interop, or FUTOIN_NODE_MODULES")
    parent = directory or Path("build")
    parent.mkdir(parents=True, exist_ok=True)
    if (kind := machine.filesystem(parent)) in machine.VOLATILE:
        raise click.BadParameter(f"{parent} is on {kind}, where nothing is durable", param_hint="--directory")
    load = Load(is_for_page=markdown_path is not None)
    place = machine.describe(parent)
    run: dict[str, object] = {
        "events": f"{events:,}",
        "rounds": repeat,
        "ids": "ascending" if ordered_ids else "random",
    }
    if quick:
        run["short run"] = f"{QUICK_SCALE:g} of the measured work"
    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    for name, value in {**place, **run}.items():
        console.print(f"[bold]{name}[/]: {value}")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that everything is cleaned up
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=parent) as path, console.status("") as status:
        workload = Workload(events, has_ordered_ids=ordered_ids)
        bench = Bench(Path(path), workload, scale=QUICK_SCALE if quick else 1.0, note=status.update)
        answers = _answers(chosen, bench, repeat, console)
    load.end()
    run["load by others"] = str(load)
    console.print(f"[bold]load by others[/]: {load}")
    if json_path:
        json_path.write_text(json_text(place, run, answers))
    if markdown_path:
        load.check()
        write_markdown(markdown_path, "python -m benchmarks --markdown", place, run, answers)


def _answers(chosen: Sequence[str], bench: Bench, rounds: int, console: Console) -> list[Answer]:
    answers = []
    try:
        for name in chosen:
            answers.append(_answer(name, bench, rounds))
            console.print(terminal_view(answers[-1]))
    except WrongAnswer as error:
        raise click.ClickException(str(error)) from error
    finally:
        bench.close()
    return answers


def _answer(name: str, bench: Bench, rounds: int) -> Answer:
    question: ModuleType = importlib.import_module(f".questions.{name}", __package__)
    outcomes: list[Outcome] = []
    case: Case
    for case in question.cases(bench):
        outcomes.append(run_case(case, rounds, bench.note))
    asked = " ".join((question.__doc__ or "").partition("\n\n")[0].split())
    return Answer(name, question.TITLE, asked, outcomes)


if __name__ == "__main__":
    assert main.help is not None
    main.help = main.help.format(questions=", ".join(QUESTIONS))
    main()
