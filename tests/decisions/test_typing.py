"""mypy, strict: the types of rules and handlers are inferred without casts, and what does not fit is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = (
    "course_subscriptions",
    "double_submission",
    "dynamic_price",
    "invoice_number",
    "opt_in_token",
    "unique_username",
)
USES = """\
from typing import Annotated

import msgspec

from headwater.core import EventLog
from headwater.client import aio as client
from headwater.decisions import Decision, Projection, ReadModel, Several, Tag, aio, decide, event, project


@event
class Lent:
    copy: Annotated[str, Tag]
    days: int


class Returned(msgspec.Struct, frozen=True):
    copy: Annotated[str, Tag]


days = Projection(0, tags={"copy": "17"}).on(Lent, lambda n, lent: n + lent.days).on(Returned, lambda n, each: 0)
names = Projection[str | None](None).on_stored(Lent, lambda _, lent, stored: f"{lent.copy}{stored.sequence_number}")
lend = Decision(days, names, lambda n, name: Lent(name or "17", n))


def rule(ns: tuple[int, ...]) -> list[Lent | Returned]:
    return [Lent("17", sum(ns)), Returned("17")]


both = Decision(Several([days, days]), rule)
perhaps = Decision(names, lambda name: None if name is None else Returned(name))


def use(log: EventLog) -> None:
    reveal_type(decide(log, lend).event)
    reveal_type(decide(log, both).events)
    reveal_type(decide(log, perhaps, key="k").events)
    reveal_type(project(log, names))
    reveal_type(project(log, Several([days])))


async def await_it(log: client.RemoteLog) -> None:
    reveal_type((await aio.decide(log, lend)).event.days)


Lent("17", "3")
days.on(Lent, lambda n, lent: n + lent.copy)
Decision(days, lambda n, name: Lent("17", n))
Lent("17", 3).days = 4
ReadModel("m", {}).on(Lent, lambda database, lent: lent.nothing)
"""
REVEALED = [
    'note: Revealed type is "uses.Lent"',
    'note: Revealed type is "tuple[uses.Lent | uses.Returned, ...]"',
    'note: Revealed type is "tuple[uses.Returned, ...]"',
    'note: Revealed type is "str | None"',
    'note: Revealed type is "tuple[int, ...]"',
    'note: Revealed type is "int"',
]
"""In the order of the lines; then one wrong use follows the other, each on a line."""


def mypy(*arguments: str, directory: Path = ROOT) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache")]
    return subprocess.run([*command, *arguments], cwd=directory, capture_output=True, text=True, check=False).stdout


def test_the_examples_are_typed() -> None:
    assert mypy(*[f"examples/{each}.py" for each in EXAMPLES]) == ""


def test_types_are_inferred_and_what_does_not_fit_is_found(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text(USES)
    lines = mypy("uses.py", directory=tmp_path).splitlines()
    assert [line.partition(" ")[2].replace("builtins.", "") for line in lines if "Revealed" in line] == REVEALED
    errors = [line for line in lines if ": error:" in line]
    first_wrong = USES[: USES.index('Lent("17", "3")')].count("\n") + 1
    assert {int(line.split(":")[1]) for line in errors} == set(range(first_wrong, first_wrong + 5)), lines
