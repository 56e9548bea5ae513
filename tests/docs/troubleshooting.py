"""Tables of docs/guides/troubleshooting.md: their rows come from the code, the last cell of each from people.

`python -m tests.docs.troubleshooting` writes the rows, and leaves each last cell as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple
from unittest.mock import MagicMock

from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.types import Symbol
from headwater.cli import main
from headwater.http import problems
from headwater.management import wire
from headwater.server.monitoring.notifications import LINES

from .documents import ROOT

PAGE = ROOT / "docs" / "guides" / "troubleshooting.md"
BEGIN = "<!-- rows of {} are written by python -m tests.docs.troubleshooting -->\n"


class Table(NamedTuple):
    """A table of the page."""

    name: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    """All cells but the last; the first one is a row's name."""


class SentProblem(NamedTuple):
    """A problem that the server can send."""

    status: int
    members: frozenset[str]
    """All that it may have."""


def sent_problems() -> dict[str, SentProblem]:
    """Every problem by its code."""
    found: dict[str, SentProblem] = {}
    for row in problems._TABLE.values():
        members = frozenset(row.members(MagicMock()))
        status, others = found.get(row.code, (row.status, frozenset()))
        assert status == row.status, row.code
        found[row.code] = SentProblem(status, others | members)
    assert problems.INTERNAL.code in found and not problems.INTERNAL.members
    for http_status, code, _ in wire._PROBLEMS.values():
        found.setdefault(code, SentProblem(http_status, frozenset()))
    return found


def tables() -> Iterator[Table]:
    """All tables whose rows are written."""
    codes = (main.DONE, main.REFUSED, main.USAGE, main.UNREACHABLE, main.UNAVAILABLE, main.DAMAGED)
    yield Table(
        "exit codes",
        ("code", "meaning"),
        [(str(code),) for code in (*codes, main.INTERRUPTED, main.UNREAD)],
    )
    yield Table(
        "problem codes",
        ("code", "status", "members", "do"),
        [
            (_spans([code]), str(each.status), _spans(each.members))
            for code, each in sorted(sent_problems().items(), key=lambda item: (item[1].status, item[0]))
        ],
    )
    yield Table("AMQP conditions", ("condition", "do"), [(_spans([each]),) for each in amqp_conditions()])
    yield Table(
        "events",
        ("event", "message in the log", "do"),
        [(_spans([type]), _spans([line])) for type, (level, line) in LINES.items() if level >= logging.WARNING],
    )


def amqp_conditions() -> list[str]:
    """Every condition that the server sends."""
    return [str(value) for value in vars(conditions).values() if isinstance(value, Symbol)]


def _spans(names: frozenset[str] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def with_tables(page: str) -> str:
    """The page with the rows of the code."""
    for table in tables():
        before, found, rest = page.partition(BEGIN.format(table.name))
        assert found, f"{PAGE.name} has no comment {BEGIN.format(table.name)!r}"
        old, _, after = rest.partition("\n\n")
        page = before + found + "\n".join(_lines(table, advice(old))) + "\n\n" + after
    return page


def advice(table: str) -> dict[str, str]:
    """The last cell of each row of a table, by its first."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]
    return {first: last.strip() for first, *_, last in rows}


def _lines(table: Table, last: dict[str, str]) -> Iterator[str]:
    yield f"| {' | '.join(table.head)} |"
    yield f"| {' | '.join('---' for _ in table.head)} |"
    for row in table.rows:
        yield f"| {' | '.join([*row, last.get(row[0], '')])} |"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
