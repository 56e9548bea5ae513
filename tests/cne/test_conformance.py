"""The conformance page names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/conformance/cne.md").read_text()


def test_every_row_names_tests_that_exist():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    rows = [row for row in rows if not row.endswith("| Proof |")]
    assert len(rows) > 50
    for row in rows:
        proofs = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert proofs, row
        for path, name in proofs:
            tree = ast.parse((ROOT / path).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (path, name)
