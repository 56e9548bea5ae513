"""Comparing and computing with the values of messages (FILTEX 6, JMS 3.8.1.2).

Null makes unknown. Only like kinds compare: numbers of any width, a timestamp being its milliseconds; texts, be they
strings, symbols or characters; booleans, by = and <> only; binaries. Unlike kinds are different, and in no order. A
UUID compares with the text that it is written as, since no constant can say a UUID. A decimal, a list, a map, a
described value compare with nothing: unknown. What cannot be computed is null, so that nothing here ever fails: an
evaluation error (FILTEX 6) makes a predicate unknown, and the message is not delivered.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID

from ..protocol.types import Decimal32, Decimal64, Decimal128
from .errors import TEXT_CHARS_MAX


class Kind(Enum):
    """What a value is, as far as comparing goes."""

    NUMBER = 1
    TEXT = 2
    BOOLEAN = 3
    BINARY = 4
    UUID = 5
    OTHER = 6


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""`a op b` is `b MIRRORED[op] a`."""
NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
"""`NOT a op b` is `a NEGATED[op] b`, unless either is NaN or they are unlike."""

_kinds: dict[type, Kind] = {}


def kind_of(value: object) -> Kind:
    """The kind of a value that is not None."""
    try:
        return _kinds[value.__class__]
    except KeyError:
        kind = _kinds[value.__class__] = _kind_of_class(value.__class__)
        return kind


def compare(operator: str, left: object, right: object) -> bool | None:
    """What the comparison says; None is unknown."""
    if left is None or right is None:
        return None
    kind, other = kind_of(left), kind_of(right)
    if kind is Kind.OTHER or other is Kind.OTHER:
        return None
    if kind is not other:
        if {kind, other} != {Kind.TEXT, Kind.UUID}:
            return operator == "<>"
        left, right = str(left), str(right)
    elif kind is Kind.BOOLEAN and operator not in ("=", "<>"):
        return False
    return OPERATORS[operator](left, right)


def compute(operator: str, left: object, right: object) -> object:
    """The result of + - * / %; dividing by zero is NaN.

    None where an operand is null or not of a kind to compute with, or the result is too large.
    """
    if left is None or right is None:
        return None
    kind = kind_of(left)
    if kind is not kind_of(right):
        return None
    if kind is Kind.NUMBER:
        try:
            return _ARITHMETIC[operator](left, right)
        except OverflowError:  # an integer too large for a double meets one
            return None
    if kind is Kind.TEXT and operator == "+":
        joined = f"{left}{right}"
        return joined if len(joined) <= TEXT_CHARS_MAX else None
    return None


def signed(operator: str, value: object) -> object:
    """`-value` or `+value`, None unless it is a number."""
    if value is None or kind_of(value) is not Kind.NUMBER:
        return None
    return -value if operator == "-" else value  # type: ignore[operator]


def _kind_of_class(given: type) -> Kind:
    if issubclass(given, bool):
        return Kind.BOOLEAN
    if issubclass(given, int | float):
        return Kind.NUMBER
    if issubclass(given, str):
        return Kind.TEXT
    if issubclass(given, bytes) and not issubclass(given, Decimal32 | Decimal64 | Decimal128):
        return Kind.BINARY
    return Kind.UUID if issubclass(given, UUID) else Kind.OTHER


def _divided(left: float, right: float) -> float:
    return left / right if right else math.nan


def _remainder(left: float, right: float) -> float:
    """With the sign of the dividend, as SQL has it."""
    if not right or math.isnan(left) or math.isnan(right) or math.isinf(left):
        return math.nan
    if isinstance(left, int) and isinstance(right, int):
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return math.fmod(left, right)


_ARITHMETIC: dict[str, Callable[..., float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": _remainder,
}
