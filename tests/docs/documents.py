"""The project's documents, and the few things in them that can be checked: links, tables, code blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "deploy").glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GENERATED_FROM_CODE = {"docs/reference/python.md"}
"""Pages of docstrings, which are checked in the code."""
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
"""In the line before a block: why it cannot be run here."""

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def name_of(path: Path) -> str:
    """The path of a document below the root: what a test case is called."""
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    """The text of a document or of a module; a process reads it once."""
    return path.read_text(encoding="utf-8")


@cache
def prose(path: Path) -> str:
    """A document without its fenced blocks; lines keep their numbers."""
    return without_blocks(text_of(path))


def without_blocks(text: str) -> str:
    """The text of a document with empty lines for its fenced blocks."""
    return _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)


def line_of(text: str, offset: int) -> int:
    """The number of the line in which a character is."""
    return text.count("\n", 0, offset) + 1


def relative_links(path: Path) -> list[str]:
    """The targets of all links of a document that stay in the repository."""
    return [target for _, target in numbered_links(path)]


def numbered_links(path: Path) -> Iterator[tuple[int, str]]:
    """The same, each with the number of its line."""
    for link in _LINK.finditer(text := prose(path)):
        if "://" not in link[1] and not link[1].startswith("mailto:"):
            yield line_of(text, link.start()), link[1]


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(path)))
    return frozenset(heading.strip().replace(" ", "-") for heading in plain)


def table_after(path: Path, marker: str) -> list[list[str]]:
    """The rows, without the head, of the table that follows a comment: cells without their surrounding space."""
    _, found, rest = text_of(path).partition(f"<!-- {marker} -->\n")
    assert found, f"{path.name} has no comment {marker!r}"
    lines = [line for line in rest.split("\n\n")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def with_table(text: str, marker: str, lines: Iterable[str]) -> str:
    """The text with other lines after a comment, in place of those up to the next empty line."""
    before, found, rest = text.partition(f"<!-- {marker} -->\n")
    assert found, f"there is no comment {marker!r}"
    _, gap, after = rest.partition("\n\n")
    return "".join([before, found, "\n".join(lines), gap or "\n", after])


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of a table."""
    yield _row(columns := list(head))
    yield _row(["---"] * len(columns))
    yield from map(_row, rows)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def check_none(faults: Iterable[str], remedy: str = "") -> None:
    """Fail with all faults, one a line, and after them the remedy."""
    if found := list(faults):
        pytest.fail("\n".join([f"{len(found)} wrong:", *found, *([remedy] if remedy else [])]), pytrace=False)
