"""The pages of `docs/conformance/`: tables whose rows name the tests that prove them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def page(name: str) -> str:
    """The text of a page of conformance."""
    return (ROOT / "docs/conformance" / f"{name}.md").read_text(encoding="utf-8")


DEVIATION = "Deviation from a MUST"
"""The column that is empty where all is kept."""


def rows(page: str) -> list[str]:
    """The rows of all tables with a column of proofs."""
    found = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line]
    return [row for row in found if "| Proof |" not in row]


def cells(row: str) -> list[str]:
    """The cells of a row."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def faults(rows: list[str]) -> list[str]:
    """What is wrong with the proofs of rows: a row that has none, a proof that is no test."""
    unproven = [row for row in rows if not PROOF.search(row)]
    proofs = [proof for row in rows for proof in PROOF.findall(row)]
    return unproven + [f"{path}::{name} is not there" for path, name in proofs if name not in names_of_tests(path)]


@cache
def names_of_tests(path: str) -> frozenset[str]:
    """The names of the tests of a file, those in classes too; it is parsed once."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in functions if node.name.startswith("test_"))
