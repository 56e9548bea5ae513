"""How the outcomes are shown: a table per question on the terminal, JSON, and the tables of docs/benchmarks.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Group
from rich.table import Table

from .measure import CPU, Aim, Outcome

COLUMNS = (
    "contender",
    "median",
    "quartiles",
    "p50/p99 ms",
    "CPU us",
    "client CPU us",
    "headwater is",
    "its CPU is",
    "target",
)
_MARK = "<!-- results"


@dataclass(frozen=True, slots=True)
class Answer:
    """One question and its outcomes."""

    question: str
    title: str
    asked: str
    """The first paragraph of the question's docstring."""
    outcomes: Sequence[Outcome]


def terminal_view(answer: Answer) -> Group:
    """The outcomes of one question, a table for each case."""
    tables = []
    for outcome in answer.outcomes:
        table = Table(*COLUMNS, title=_heading(outcome), title_justify="left")
        for column in table.columns:
            column.justify = "left" if column.header in ("contender", "target") else "right"
        for row in _rows(outcome):
            table.add_row(*row)
        tables.append(table)
    return Group(f"\n[bold]{answer.title}[/]\n{answer.asked}", *tables)


def json_text(machine: Mapping[str, str], run: Mapping[str, object], answers: Sequence[Answer]) -> str:
    """Everything that was measured, every sample."""
    questions = [
        {
            "question": answer.question,
            "title": answer.title,
            "cases": [
                {
                    "case": outcome.case.title,
                    "unit": outcome.case.unit,
                    "is_lower_better": outcome.case.is_lower_better,
                    "samples": {
                        name: [asdict(sample) for sample in samples] for name, samples in outcome.samples.items()
                    },
                    "aims": [{"aim": str(aim), "is_met": outcome.is_met(aim)} for aim in outcome.case.aims],
                }
                for outcome in answer.outcomes
            ],
        }
        for answer in answers
    ]
    return json.dumps({"machine": machine, "run": run, "questions": questions}, indent=1)


def write_markdown(
    path: Path, writer: str, machine: Mapping[str, str], run: Mapping[str, object], answers: Sequence[Answer]
) -> None:
    """Replace what a command wrote in a document, from its mark to the next mark, by the tables of this run."""
    mark = f"{_MARK}: written by `{writer}` -->"
    before, _, after = (path.read_text() if path.exists() else "").partition(mark)
    others = after.find(_MARK)
    lines = [mark, "", f"{'; '.join(f'{name}: {value}' for name, value in {**machine, **run}.items())}.", ""]
    for answer in answers:
        lines += [f"## {answer.title}", "", answer.asked, ""]
        lines += [*_markdown_table(answer.outcomes), ""]
    path.write_text(before + "\n".join([*lines, after[others:] if others >= 0 else ""]).rstrip() + "\n")


def _heading(outcome: Outcome) -> str:
    return f"{outcome.case.title}, {outcome.case.unit}"


def _rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """One row per contender; an absolute aim is in the first."""
    case = outcome.case
    if case.absent:
        yield case.absent, *[""] * (len(COLUMNS) - 1)
    for number, (name, samples) in enumerate(outcome.samples.items()):
        aims = [aim for aim in case.aims if aim.against == name or (not number and aim.against in ("", CPU))]
        yield (
            name,
            _short(statistics.median(outcome.values(name))),
            _quartiles(outcome.values(name)),
            _latency(outcome, name),
            _median_of([sample.cpu_us for sample in samples]),
            _median_of([sample.client_us for sample in samples]),
            _ratio(outcome.ratios(name), " x") if number else "",
            _ratio(outcome.cpu_ratios(name)) if number else "",
            ", ".join(_verdict(outcome, aim) for aim in aims),
        )


def _verdict(outcome: Outcome, aim: Aim) -> str:
    if aim.against == CPU:
        return f"{aim}: {'met' if outcome.is_met(aim) else 'MISSED'}"
    sign = "<" if outcome.case.is_lower_better and not aim.against else ">="
    bound = f"{aim.bound:g} x" if aim.against else f"{aim.bound:,g}"
    return f"{sign} {bound}: {'met' if outcome.is_met(aim) else 'MISSED'}"


def _ratio(ratios: Sequence[float], times: str = "") -> str:
    return f"{_short(statistics.median(ratios))}{times} ({_quartiles(ratios)})" if ratios else ""


def _quartiles(values: Sequence[float]) -> str:
    low, _, high = statistics.quantiles(list(values) * (1 + (len(values) == 1)), method="inclusive")
    return f"{_short(low)}\N{EN DASH}{_short(high)}"


def _latency(outcome: Outcome, name: str) -> str:
    samples = outcome.samples[name]
    p50, p99 = (_median_of([getattr(sample, field) for sample in samples]) for field in ("p50_ms", "p99_ms"))
    return f"{p50}/{p99}" if p50 else ""


def _median_of(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _short(statistics.median(known)) if known else ""


def _short(value: float) -> str:
    """Three significant digits, with separators where they help."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _markdown_table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """One table for all cases: a case is named in its first row, and a column without a value is left out."""
    rows: list[tuple[str, ...]] = [("measured", *COLUMNS)]
    for outcome in outcomes:
        rows += [("" if number else _heading(outcome), *row) for number, row in enumerate(_rows(outcome))]
    kept = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    header, *body = ([row[place] for place in kept] for row in rows)
    yield from map(_markdown_row, (header, ["---"] * len(kept), *body))


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
