"""What the package logs at `warning` or worse: the constant words of each line, found in its syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from .documents import name_of, text_of
from .sources import SOURCES

LEVELS = {"warning", "error", "exception", "critical"}
"""Methods of a logger. `log(level, ...)` is for the events of the server: see `headwater.server.monitoring`."""

_PLACEHOLDER = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]|\{\}")
_EDGES = " :;,.()'\""
_COMMON = {"log", "failed"}
"""Words that find too much alone."""


class LogLine(NamedTuple):
    """A line that the package can log."""

    place: str
    """The module, and the number of the line in it."""
    template: str
    """The message with placeholders; empty if it is no constant."""


def log_lines() -> Iterator[LogLine]:
    """All of them, in the order of modules."""
    for source in SOURCES:
        for line, template in templates(text_of(source)):
            yield LogLine(f"{name_of(source)}:{line}", template)


def templates(source: str) -> Iterator[tuple[int, str]]:
    """The messages that a module logs, each with its line in the source."""
    nodes = list(ast.walk(ast.parse(source)))
    constants = _constants(nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and _logs(node):
            for text in _texts(node.args[0], constants) or [""]:
                yield node.lineno, text


def _logs(call: ast.Call) -> bool:
    """Whether a call is one of a logger's."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in LEVELS
        and ast.unparse(call.func.value).endswith("logger")
    )


def _constants(nodes: list[ast.AST]) -> dict[str, list[str]]:
    """The texts that a module assigns to names."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).extend(_texts(node.value, {}))
    return found


def _texts(node: ast.expr, constants: dict[str, list[str]]) -> list[str]:
    """What an expression of a message may be."""
    match node:
        case ast.Constant(str(text)):
            return [text]
        case ast.JoinedStr(values):
            return ["".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in values)]
        case ast.BinOp(left=left):
            return _texts(left, constants)
        case ast.Name(name):
            return constants.get(name, [])
    return []


def words(template: str) -> str | None:
    """What a reader can search for: the first part without placeholders that has three words, or else the longest.

    None if no part has a word that says what happened.
    """
    parts = [shown for part in _PLACEHOLDER.split(template) if (shown := _shown(part.strip(_EDGES)))]
    return next((part for part in parts if len(part.split()) >= 3), max(parts, key=len, default=None))


def _shown(part: str) -> str:
    """A part up to its semicolon, or all of it if that says nothing; empty if no word says anything."""
    first = part.partition(";")[0]
    return next((text for text in (first, part) if set(re.findall("[a-z]{2,}", text.lower())) - _COMMON), "")
