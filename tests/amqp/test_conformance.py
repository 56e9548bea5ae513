"""The conformance page of AMQP itself names tests that exist, and has rows for each part of the standard."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/conformance/amqp.md").read_text(encoding="utf-8")
_PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def rows() -> list[str]:
    found = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    return [row for row in found if not row.endswith("| Proof |")]


def test_every_row_names_tests_that_exist() -> None:
    assert len(rows()) > 50
    for row in rows():
        proofs = _PROOF.findall(row)
        assert proofs, row
        assert all(name in names_in(path) for path, name in proofs), row


def test_every_part_of_the_standard_has_rows() -> None:
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert {number for part in parts for number in re.findall(r"part (\d)", part.splitlines()[0])} == set("12345")
    assert all(part.count("\n| ") > 2 for part in parts)
