"""Modules import in one direction: there are no circles, those that exist only for types included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from .documents import ROOT
from .sources import texts_of

SOURCES = ROOT / "src"
CIRCLES = {
    # A connection has sessions and a session has links, as in the standard; and each knows whose it is.
    "headwater.amqp.protocol": "connection events large_delivery link negotiation session",
}
"""The circles that are there, by the package of their modules."""

Graph = Mapping[str, set[str]]


def _modules() -> dict[str, Path]:
    """Every module by its name; a package is its `__init__`."""
    paths = (SOURCES / "headwater").rglob("*.py")
    return {".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def _imports(name: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """The modules that one imports anywhere in its text: for types and within functions, too."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in texts_of(path).imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        else:
            start = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                found = f"{source}.{alias.name}"
                if found in modules or source in modules:
                    yield found if found in modules else source


@cache
def _graph() -> Graph:
    modules = _modules()
    return {name: set(_imports(name, path, modules)) for name, path in modules.items()}


def _reached(start: str, graph: Graph) -> set[str]:
    """All that can be come to from a module, over one import or more."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _circles(graph: Graph) -> set[frozenset[str]]:
    """The largest sets of modules each of which can be come to from each."""
    reached = {name: _reached(name, graph) for name in graph}
    return {
        frozenset(other for other in reached[name] if name in reached[other]) for name in graph if name in reached[name]
    }


def test_no_modules_import_each_other_but_those_that_are_listed():
    known = {
        frozenset(f"{package}.{name}" for name in circle.split())
        for package, circles in CIRCLES.items()
        for circle in circles.split(",")
    }
    assert {tuple(sorted(circle)) for circle in _circles(_graph())} == {tuple(sorted(circle)) for circle in known}


def test_imports_for_types_and_within_functions_count():
    graph = _graph()
    assert "headwater.client" in graph["headwater.cli.logs"]
    assert "headwater.storage.memory" in graph["headwater.server.app"]


def test_a_circle_is_found():
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"d"}, "e": {"a"}}
    assert _circles(graph) == {frozenset("abc"), frozenset("d")}
