"""The conformance page of event streams names tests that exist, and has a row for each rule of the draft."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/conformance/amqp-event-streams.md").read_text(encoding="utf-8")
_PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def rows() -> list[str]:
    found = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    return [row for row in found if not row.endswith("| Proof |")]


def test_every_row_names_tests_that_exist():
    assert len(rows()) > 75
    for row in rows():
        proofs = _PROOF.findall(row)
        assert proofs, row
        for path, name in proofs:
            assert name in names_in(path), (path, name)


def test_every_section_of_the_draft_with_rules_has_rows():
    named = set(re.findall(r"\b\d(?:\.\d)*\b", " ".join(row.split("|")[1] for row in rows())))
    assert named >= {
        "1", "3.1", "3.2", "4", "4.1", "4.2", "4.3", "4.4", "4.5", "4.5.1", "4.5.2", "4.6.1", "4.6.2", "4.6.3", "4.6.4",
        "4.6.5", "4.6.6", "4.6.7", "5", "5.1", "5.1.1", "5.1.2", "5.2", "6", "8.1", "8.2", "8.3",
    }  # fmt: skip
