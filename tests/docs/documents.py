"""The project's documents, and the few things in them that can be checked: links, tables, code blocks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "deploy").glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
"""In the line before a block: why it cannot be run here."""

_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def name_of(path: Path) -> str:
    """The path of a document below the root: what a test case is called."""
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    """A document without its fenced blocks."""
    return without_blocks(path.read_text(encoding="utf-8"))


def without_blocks(text: str) -> str:
    """The text of a document without its fenced blocks."""
    return _FENCED.sub("", text)


def relative_links(path: Path) -> list[str]:
    """The targets of all links of a document that stay in the repository."""
    return [target for target in _LINK.findall(prose(path)) if "://" not in target and not target.startswith("mailto:")]


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(path)))
    return {heading.strip().replace(" ", "-") for heading in plain}


def table_after(path: Path, marker: str) -> list[list[str]]:
    """The rows, without the head, of the table that follows a comment: cells without their surrounding space."""
    _, found, rest = path.read_text(encoding="utf-8").partition(f"<!-- {marker} -->\n")
    assert found, f"{path.name} has no comment {marker!r}"
    lines = [line for line in rest.split("\n\n")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
