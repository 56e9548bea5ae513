"""Builds comparison nodes: comparisons with an offset become ranges of numbers, and comparisons of constants are
decided at once.

An offset in a filter may be any text (event streams 5.1.1: its syntax is opaque, its order is lexicographic), so a text
that is not one of our offsets is still a bound: `greatest_not_above` finds its place among the numbers.
"""

from __future__ import annotations

from typing import Any

from . import syntax
from .evaluation import evaluator
from .fields import DELIVERY_ANNOTATIONS, OFFSET, OFFSET_DIGITS
from .syntax import Constant, Field, Node, Not, OffsetRange
from .values import MIRRORED

EARLIEST = "@earliest"
"""The reserved comparand smaller than every offset."""
LATEST = "@latest"
"""The reserved comparand greater than every offset that exists when the link attaches."""
_OFFSET = Field(DELIVERY_ANNOTATIONS, OFFSET)


def comparison(operator: str, left: Node, right: Node, latest: int) -> Node:
    """The node of `left operator right`."""
    if left == _OFFSET and isinstance(right, Constant):
        return _offset_comparison(operator, right.value, latest)
    if right == _OFFSET and isinstance(left, Constant):
        return _offset_comparison(MIRRORED[operator], left.value, latest)
    return folded(syntax.Compare(operator, left, right))


def folded(node: syntax.Compare | syntax.Arithmetic | syntax.Sign | syntax.Call) -> Node:
    """The constant value of a node that contains only constants; otherwise the node."""
    if isinstance(node, syntax.Compare):
        parts: tuple[Node, ...] = (node.left, node.right)
    elif isinstance(node, syntax.Arithmetic):
        parts = (node.first, *[operand for _, operand in node.rest])
    else:
        parts = (node.operand,) if isinstance(node, syntax.Sign) else node.arguments
    if all([isinstance(part, Constant) for part in parts]):
        return Constant(evaluator(node, _no_clock)(_NO_FIELDS))
    return node


def _offset_comparison(operator: str, comparand: object, latest: int) -> Node:
    if comparand is None:
        return Constant(None)
    if not isinstance(comparand, str):  # different kinds are unequal and unordered
        return Constant(operator == "<>")
    if comparand == EARLIEST:
        return Constant(operator in (">", ">=", "<>"))
    if comparand == LATEST:  # greater than every present offset, but less than later ones
        if operator in ("=", "<>"):
            return Constant(operator == "<>")
        return _within(latest, None) if operator in (">", ">=") else _within(0, latest)
    below, is_equal = greatest_not_above(comparand)
    if operator in ("=", "<>"):
        equal = _within(below - 1, below) if is_equal else Constant(False)
        return equal if operator == "=" else _complement(equal)
    if operator in (">", ">="):
        return _within(below - (is_equal and operator == ">="), None)
    return _within(0, below - (is_equal and operator == "<"))


def greatest_not_above(text: str) -> tuple[int, bool]:
    """The greatest number whose offset is not above a text in text order (-1 if there is none), and whether they are
    equal.
    """
    digits = text[:OFFSET_DIGITS]
    for place, char in enumerate(digits):
        if "0" <= char <= "9":
            continue
        rest = OFFSET_DIGITS - place
        if char > "9":
            return int(digits[:place] + "9" * rest), False
        return int(digits[:place] + "0" * rest) - 1, False
    if len(digits) < OFFSET_DIGITS:  # every offset with this prefix is longer, and so above it
        return int(digits.ljust(OFFSET_DIGITS, "0")) - 1, False
    return int(digits), len(text) == OFFSET_DIGITS


def _within(after: int, upto: int | None) -> Node:
    """The range; a constant if it contains all numbers (they begin with 1) or none."""
    after = max(after, 0)
    if upto is not None:
        return OffsetRange(after, upto) if after < upto else Constant(False)
    return OffsetRange(after, None) if after else Constant(True)


def _complement(node: Node) -> Node:
    return Constant(not node.value) if isinstance(node, Constant) else Not(node)


def _no_clock() -> int:
    raise AssertionError("UTC() is not a constant")


_NO_FIELDS: Any = None
"""Used to evaluate constants, which contain no fields."""
