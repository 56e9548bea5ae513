"""LIKE, in time linear in the text: `%` is any run of characters, `_` any one, an escape takes the next literally.

Never a regular expression: a backtracking engine lets a short pattern cost a server minutes. A pattern is cut at its
`%` into pieces. The first and the last are anchored; every other is looked for, leftmost first, which is never wrong.
A piece without `_` is found by `str.find`, one with `_` by shift-and: one step of a bit set per character.
"""

from __future__ import annotations

from itertools import groupby

from .errors import TEXT_CHARS_MAX

_ANY_ONE = None
"""`_` in a piece; every other element is the character itself."""


class Pattern:
    """A LIKE pattern. Raises ValueError where its escape has nothing to escape.

    `is_search`: it looks for a piece with `_`, and costs a step per character.
    """

    __slots__ = ("_first", "_last", "_middle", "_tail_chars", "is_search")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        pieces = _pieces(pattern, escape)
        self._first = _Piece(pieces[0])
        self._last = _Piece(pieces[-1]) if len(pieces) > 1 else None
        self._middle = [_Piece(piece) for piece in pieces[1:-1] if piece]
        self._tail_chars = len(pieces[-1])
        self.is_search = any(piece.is_mixed for piece in self._middle)

    @staticmethod
    def prefix(text: str) -> Pattern:
        """What begins with the text."""
        return Pattern(_literally(text) + "%", "\\")

    @staticmethod
    def suffix(text: str) -> Pattern:
        """What ends with the text."""
        return Pattern("%" + _literally(text), "\\")

    def matches(self, text: str) -> bool | None:
        """Whether the whole text has the pattern; unknown for a text of more than 16,384 characters."""
        if len(text) > TEXT_CHARS_MAX:
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
    """What stands between two `%`."""

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
        """Whether the text has the piece at a place; the text must be long enough."""
        return all([text.startswith(run, at + place) for place, run in self._runs])

    def end_of_first(self, text: str, start: int, end: int) -> int:
        """Where the leftmost occurrence between the two places ends, or -1."""
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
