"""`python -m benchmarks.spark`: what Spark reads from and writes to Headwater, beside what it reads elsewhere."""

from __future__ import annotations

import dataclasses
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
from ..measure import Case, Outcome, WrongAnswer, run_case
from ..report import Answer, json_text, terminal_view, write_markdown
from .bench import SparkBench

QUESTIONS = ("read", "write", "importing", "exporting", "archive", "micro_batch", "partitions", "memory")
QUICK_EVENTS, QUICK_ROUNDS = 100_000, 2
LIVE_S, QUICK_LIVE_S = 40.0, 8.0
TABLE_WIDTH = 120


@click.command()
@click.option("--only", "only", multiple=True, type=click.Choice(QUESTIONS), help="Only these (may be repeated).")
@click.option("--events", type=click.IntRange(min=1000), default=1_000_000, show_default=True, help="In each log.")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="After one to warm up.")
@click.option("--quick", is_flag=True, help="At most a tenth of the events, two rounds and short streams.")
@click.option("--cold", is_flag=True, help="Without the round to warm up.")
@click.option("--without-peers", is_flag=True, help="Install and start no other server.")
@click.option("--live-s", type=float, help=f"How long each stream is looked at.  [default: {LIVE_S:g}]")
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where to put the files; on the disk to be measured."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write every sample to this file.")
@click.option(
    "--markdown",
    "markdown_path",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value=Path("docs/benchmarks-spark.md"),
    help="Write the tables to docs/benchmarks-spark.md, or to this file.",
)
def main(
    only: Sequence[str],
    events: int,
    rounds: int,
    quick: bool,
    cold: bool,
    without_peers: bool,
    live_s: float | None,
    directory: Path | None,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    """Answer the questions with medians and ratios of interleaved runs.

    Questions: read, write, importing, exporting, archive, micro_batch, partitions, memory. Kafka installs itself into
    build/peers.
    """
    parent = directory or Path("build")
    parent.mkdir(parents=True, exist_ok=True)
    if (kind := machine.filesystem(parent)) in machine.VOLATILE:
        raise click.BadParameter(f"{parent} is on {kind}, where nothing is durable", param_hint="--directory")
    events, rounds = (min(events, QUICK_EVENTS), min(rounds, QUICK_ROUNDS)) if quick else (events, rounds)
    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that everything is cleaned up
    load = Load(is_for_page=markdown_path is not None)
    place = machine.describe(parent)
    with tempfile.TemporaryDirectory(prefix="spark-", dir=parent) as path, console.status("") as status:
        bench = SparkBench(
            Path(path).resolve() / "bench",
            events,
            live_s=live_s or (QUICK_LIVE_S if quick else LIVE_S),
            has_peers=not without_peers,
            note=status.update,
            complain=console.print,
        )
        try:
            run: dict[str, object] = {
                **bench.versions,
                "events": f"{events:,}",
                "rounds": rounds if cold else f"{rounds}, after one more",
            }
            for name, value in {**place, **run}.items():
                console.print(f"[bold]{name}[/]: {value}")
            answers = [_answer(name, bench, rounds, cold, console) for name in QUESTIONS if not only or name in only]
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
        write_markdown(markdown_path, "python -m benchmarks.spark --markdown", place, run, answers)


def _answer(name: str, bench: SparkBench, rounds: int, is_cold: bool, console: Console) -> Answer:
    question = importlib.import_module(f".questions.{name}", __package__)
    outcomes = [_outcome(case, rounds, is_cold, bench) for case in question.cases(bench)]
    asked = " ".join((question.__doc__ or "").partition("\n\n")[0].split())
    answer = Answer(name, question.TITLE, asked, outcomes)
    console.print(terminal_view(answer))
    return answer


def _outcome(case: Case, rounds: int, is_cold: bool, bench: SparkBench) -> Outcome:
    """The rounds of a case without the first, in which the JIT compiler works. A case may know its own number."""
    if case.rounds is not None:
        case = dataclasses.replace(case, rounds=min(case.rounds, rounds))
    if case.rounds is not None or is_cold:
        return run_case(case, rounds, bench.note)
    outcome = run_case(case, rounds + 1, bench.note)
    for samples in outcome.samples.values():
        del samples[0]
    return outcome


if __name__ == "__main__":
    main()
