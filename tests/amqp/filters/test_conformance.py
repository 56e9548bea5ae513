"""The conformance page of the source filters names tests that exist, and every test is named there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from headwater.amqp.filters import FILTERS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/conformance/amqp-filters.md").read_text(encoding="utf-8")
_PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_row_names_tests_that_exist():
    rows = [line for line in PAGE.partition("## ")[2].splitlines() if line.startswith("| ") and "---" not in line]
    rows = [row for row in rows if not row.endswith("| Proof |")]
    assert len(rows) > 80
    for row in rows:
        proofs = _PROOF.findall(row)
        assert proofs, row
        for path, name in proofs:
            assert name in names_in(ROOT / path), (path, name)


def test_every_test_of_a_language_is_named():
    named = set(_PROOF.findall(PAGE))
    for module in ("event_streams", "offsets", "properties", "selector", "soundness", "source", "sql", "totality"):
        path = f"tests/amqp/filters/test_{module}.py"
        assert {(path, name) for name in names_in(ROOT / path)} <= named


def test_every_filter_is_named():
    assert all(f"`{name}`" in PAGE for name in FILTERS)
