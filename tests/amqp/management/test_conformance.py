"""The conformance page of management names tests that exist, and has rows for every part of both proposals."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/conformance/management.md").read_text(encoding="utf-8")
_PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NODE_OPERATIONS = ("QUERY", "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS", "GET-MGMT-NODES")


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def rows() -> list[str]:
    found = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    return [row for row in found if not row.endswith("| Proof |")]


def test_every_row_names_tests_that_exist() -> None:
    assert len(rows()) > 60
    for row in rows():
        proofs = _PROOF.findall(row)
        assert proofs, row
        for path, name in proofs:
            assert name in names_in(path), (path, name)


def test_every_operation_has_rows() -> None:
    rules = " ".join(row.split("|")[1] for row in rows())
    for operation in (*NODE_OPERATIONS, "CREATE", "READ", "UPDATE", "DELETE", "GET-EVENTS", "REGISTER"):
        assert operation in rules, operation


def test_every_part_has_rows() -> None:
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert len(parts) == 5
    assert all(part.count("\n| ") > 5 for part in parts)
