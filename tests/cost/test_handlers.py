"""Each handler of each door has a line that says what its work grows with; and no line is of none."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from . import doors, handlers
from .handlers import Line

TABLES: dict[str, tuple[Callable[[], set[str]], Mapping[str, Line]]] = {
    "routes": (doors.routes, handlers.ROUTES),
    "operations": (doors.operations, handlers.OPERATIONS),
    "functions": (doors.functions, handlers.FUNCTIONS),
    "frames": (doors.frames, handlers.FRAMES),
    "calls": (doors.calls, handlers.CALLS),
    "jobs": (doors.jobs, handlers.JOBS),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_handler_has_a_line(name: str) -> None:
    there, lines = TABLES[name]
    assert there() - set(lines) == set(), "say in tests/cost/handlers.py what the work of these grows with"
    assert set(lines) - there() == set(), "there are none of these"


@pytest.mark.parametrize("name", TABLES)
def test_lines_name_tests_that_are_there(name: str) -> None:
    for handler, line in TABLES[name][1].items():
        assert line.grows_with and line.bound, handler
        if line.test:
            file, _, test = line.test.partition("::")
            tree = ast.parse((Path(__file__).parent / file).read_text())
            assert test in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, line.test
