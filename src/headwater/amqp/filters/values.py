"""Comparison, arithmetic and matching of message values (FILTEX 6, JMS 3.8.1.2).

Null makes unknown. Only values of the same kind compare: numbers of any width, including timestamps as milliseconds;
texts: strings, symbols and characters; booleans, with = and <> only; binaries. Different kinds are unequal and
unordered. A UUID compares with its text, since there are no UUID constants. A decimal, a list, a map or a described
value is comparable with nothing: the result is unknown. A failed computation is null, so nothing here ever raises: an
evaluation error (FILTEX 6) makes a predicate unknown, and the message is not delivered."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from enum import Enum
from itertools import groupby
from typing import Any
from uuid import UUID

from ..protocol.types import Decimal32, Decimal64, Decimal128

TEXT_CHARS_MAX = 16_384
"""The longest text of a message that LIKE, LOWER and UPPER process, and the longest result of +."""
SEARCH_CHARS_MAX = 32_768
"""The number of characters that all searching patterns of a source read in total. Each character takes about 0.15
us."""

_ANY_ONE = None
"""`_` in a piece of a pattern; every other element is the character itself."""


class Kind(Enum):
    """The kind of a value, for comparison."""

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
"""`NOT a op b` is `a NEGATED[op] b`, unless either is NaN or their kinds differ."""

_kinds: dict[type, Kind] = {}


def kind_of(value: object) -> Kind:
    """The kind of a value that is not None."""
    try:
        return _kinds[value.__class__]
    except KeyError:
        kind = _kinds[value.__class__] = _kind_of_class(value.__class__)
        return kind


def compare(operator: str, left: object, right: object) -> bool | None:
    """The result of the comparison; None if it is unknown."""
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
    """The result of + - * / %; division by zero is NaN.

    None if an operand is null or of an unsuitable kind, or the result is too large.
    """
    if left is None or right is None:
        return None
    kind = kind_of(left)
    if kind is not kind_of(right):
        return None
    if kind is Kind.NUMBER:
        try:
            return _ARITHMETIC[operator](left, right)
        except OverflowError:  # an integer that is too large for a double is compared with one
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
    """With the sign of the dividend, as in SQL."""
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


class Pattern:
    """A LIKE pattern: `%` is any run of characters, `_` any one, an escape takes the next literally.

    It matches in time linear in the text, without regular expressions: with a backtracking engine, a short pattern
    could cost minutes. A pattern is split at its `%` into pieces. The first and the last are anchored; the search for
    every other takes the leftmost match, which is always correct. A piece without `_` is found by `str.find`, one with
    `_` by shift-and: one step of a bit set per character.

    Raises ValueError if its escape has nothing to escape.

    `is_search`: it searches for a piece with `_`, and takes a step per character.
    """

    __slots__ = ("_first", "_last", "_middle", "_tail_chars", "chars_max", "is_search")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        pieces = _pieces(pattern, escape)
        self._first = _Piece(pieces[0])
        self._last = _Piece(pieces[-1]) if len(pieces) > 1 else None
        self._middle = [_Piece(piece) for piece in pieces[1:-1] if piece]
        self._tail_chars = len(pieces[-1])
        self.chars_max = TEXT_CHARS_MAX
        """The longest text that it examines. This is lower if many patterns search; see `filters.context`."""
        self.is_search = any(piece.is_mixed for piece in self._middle)

    @staticmethod
    def prefix(text: str) -> Pattern:
        """Matches texts that begin with this one."""
        return Pattern(_literally(text) + "%", "\\")

    @staticmethod
    def suffix(text: str) -> Pattern:
        """Matches texts that end with this one."""
        return Pattern("%" + _literally(text), "\\")

    def matches(self, text: str) -> bool | None:
        """Whether the whole text matches; unknown for a text of more than `chars_max` characters."""
        if len(text) > self.chars_max:
            return None
        first, last = self._first, self._last
        if last is None:
            return len(text) == first.chars and first.is_at(text, 0)
        end = len(text) - self._tail_chars
        if end < first.chars or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        at = first.chars
        for piece in self._middle:
            at = piece.end_of_first(text, at, end)
            if at < 0:
                return False
        return True


class _Piece:
    """The part between two `%`."""

    __slots__ = ("_any_one", "_literal", "_masks", "_runs", "chars", "is_mixed")

    def __init__(self, elements: list[str | None]) -> None:
        self.chars = len(elements)
        self._runs: list[tuple[int, str]] = []
        for _, group in groupby(enumerate(elements), key=lambda element: element[1] is _ANY_ONE):
            run = list(group)
            if run[0][1] is not _ANY_ONE:
                self._runs.append((run[0][0], "".join([char for _, char in run if char is not None])))
        self._literal = self._runs[0][1] if len(self._runs) == 1 and len(self._runs[0][1]) == self.chars else None
        self._any_one = sum(1 << place for place, char in enumerate(elements) if char is _ANY_ONE)
        self.is_mixed = bool(self._runs) and self._literal is None
        self._masks: dict[str, int] = {}
        for place, char in enumerate(elements):
            if char is not _ANY_ONE:
                self._masks[char] = self._masks.get(char, self._any_one) | 1 << place

    def is_at(self, text: str, at: int) -> bool:
        """Whether the piece is in the text at that position; the text must be long enough."""
        return all([text.startswith(run, at + place) for place, run in self._runs])

    def end_of_first(self, text: str, start: int, end: int) -> int:
        """Where the leftmost occurrence between the two positions ends, or -1."""
        if self._literal is not None:
            found = text.find(self._literal, start, end)
            return found + self.chars if found >= 0 else -1
        if not self._runs:
            return start + self.chars if start + self.chars <= end else -1
        state, any_one, accept, masks = 0, self._any_one, 1 << (self.chars - 1), self._masks
        for place in range(start, end):
            state = (state << 1 | 1) & masks.get(text[place], any_one)
            if state & accept:
                return place + 1
        return -1


def _pieces(pattern: str, escape: str | None) -> list[list[str | None]]:
    pieces: list[list[str | None]] = [[]]
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            literal = next(chars, None)
            if literal is None:
                raise ValueError(f"the pattern ends with its escape character {escape!r}")
            pieces[-1].append(literal)
        elif char == "%":
            pieces.append([])
        else:
            pieces[-1].append(_ANY_ONE if char == "_" else char)
    return pieces


def _literally(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
