"""The modules of the package: each is parsed once in a process, and what the checks need of its tree is kept."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .documents import ROOT, text_of

SOURCES = sorted((ROOT / "src").rglob("*.py"))


class Texts(NamedTuple):
    """What a module says and imports; each text with its line."""

    docstring: str | None
    """Its own."""
    docstrings: list[tuple[int, str]]
    messages: list[tuple[int, str]]
    """What may reach a user: strings of several words that are no docstrings, with `{}` for a value in them."""
    imports: list[ast.Import | ast.ImportFrom]


@cache
def texts_of(path: Path) -> Texts:
    """Those of a module."""
    return parsed(text_of(path))


def parsed(source: str) -> Texts:
    """The texts of a source."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    return Texts(
        ast.get_docstring(tree),
        [
            (node.lineno, node.value.value)
            for node in nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ],
        [(line, text) for line, text in _literals(nodes) if text.count(" ") >= 2],
        [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)],
    )


def _literals(nodes: Iterable[ast.AST]) -> list[tuple[int, str]]:
    """Constants and f-strings that are neither a statement nor a part of another."""
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in joined for part in ast.walk(node) if part is not node}
    inner |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    found = []
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inner:
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
            found.append((node.lineno, text))
    return found
