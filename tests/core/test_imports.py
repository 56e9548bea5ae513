"""The modules of the core stand one above the other: no circle, imports for the type checker included."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import headwater.core

CORE = Path(headwater.core.__file__).parent


def imported(path: Path) -> set[str]:
    """The siblings that a module imports, wherever in it."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module}


def test_the_core_has_no_import_circle() -> None:
    imports = {path.stem: imported(path) for path in CORE.glob("*.py")}
    assert list(TopologicalSorter(imports).static_order())[-1] == "__init__"
