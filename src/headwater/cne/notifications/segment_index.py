"""Indexes to find the addresses a pattern may match, and the patterns that may match an address, without a full scan.

An address has *marks*: each of its segments with its position, counted from the start of the address and from the start
of its resource. Each pattern segment without a wildcard names marks, one of which every matching address has: that
segment there, or a dot there, which may stand for it; and for a segment of the place, that there is no place. So one
segment of a pattern, the most selective one, finds the candidates. `Pattern` decides whether they match.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Generic, NamedTuple, TypeVar

from .addresses import OWN, Address, Pattern

FEW = 16
"""Up to this number, patterns are checked one by one, because indexing them costs more."""

Mark = tuple[str, int, str]
_WHOLE, _RESOURCE = "whole", "resource"
_NO_PLACE: Mark = ("no place", 0, "")
T = TypeVar("T")


def marks_of(address: Address) -> Iterator[Mark]:
    """The marks of an address."""
    for index, segment in enumerate((*address.place, *address.resource)):
        yield _WHOLE, index, segment
    for index, segment in enumerate(address.resource):
        yield _RESOURCE, index, segment
    if not address.place:
        yield _NO_PLACE


def telling(pattern: Pattern) -> Iterator[tuple[Mark, ...]]:
    """The marks of each pattern segment without a wildcard; every matching address has one of them.

    The most selective marks likely come first: the last ones of the place, then the last ones of the resource.
    """
    place, resource = pattern.address
    for index in reversed(range(len(place))):
        if _tells(place[index]):
            yield (_WHOLE, index, place[index]), (_WHOLE, index, OWN), _NO_PLACE
    for index in reversed(range(len(resource))):
        if _tells(segment := resource[index]):
            marks: tuple[Mark, ...] = ((_RESOURCE, index, segment), (_RESOURCE, index, OWN))
            if not pattern.is_anywhere:
                at = len(place) + index
                marks = (*marks, (_WHOLE, at, segment), (_WHOLE, at, OWN))
            yield marks


def _tells(segment: str) -> bool:
    return segment != OWN and "*" not in segment


class AddressIndex:
    """Addresses by mark."""

    def __init__(self) -> None:
        self._filed: dict[Mark, set[str]] = {}

    def add(self, address: Address, text: str) -> None:
        """Add an address under its text."""
        for mark in marks_of(address):
            self._filed.setdefault(mark, set()).add(text)

    def remove(self, address: Address, text: str) -> None:
        """Remove an address."""
        for mark in marks_of(address):
            self._filed[mark].discard(text)
            if not self._filed[mark]:
                del self._filed[mark]

    def candidates(self, pattern: Pattern) -> Collection[str] | None:
        """The texts of the addresses that the pattern may match; None means possibly all."""
        best: list[set[str]] | None = None
        least = 0
        for marks in telling(pattern):
            found = [self._filed[mark] for mark in marks if mark in self._filed]
            size = sum(map(len, found))
            if best is None or size < least:
                best, least = found, size
        return None if best is None else set().union(*best)


class _Entry(NamedTuple, Generic[T]):
    number: int
    pattern: Pattern
    value: T


class PatternIndex(Generic[T]):
    """Values by name, each with a pattern, in insertion order."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[T]] = {}
        self._next = 0
        self._filed: dict[Mark, set[str]] | None = None
        """Names by mark, built once there are many."""
        self._marks: dict[str, tuple[Mark, ...]] = {}
        """The marks that each name is indexed under."""
        self._any: set[str] = set()
        """Names of patterns with only wildcards."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> tuple[Pattern, T] | None:
        """The pattern and value added under that name."""
        found = self._entries.get(name)
        return None if found is None else (found.pattern, found.value)

    def values(self) -> Iterator[T]:
        """All values."""
        return (entry.value for entry in self._entries.values())

    def add(self, name: str, pattern: Pattern, value: T) -> None:
        """Add a value, or replace the one of the same name."""
        self.remove(name)
        self._entries[name] = _Entry(self._next, pattern, value)
        self._next += 1
        if self._filed is not None:
            self._file(self._filed, name, pattern)
        elif len(self._entries) > FEW:
            self._filed = {}
            for each, entry in self._entries.items():
                self._file(self._filed, each, entry.pattern)

    def remove(self, name: str) -> None:
        """Remove a value. Does nothing if there is no value with that name."""
        if self._entries.pop(name, None) is None or self._filed is None:
            return
        self._any.discard(name)
        for mark in self._marks.pop(name, ()):
            self._filed[mark].discard(name)
            if not self._filed[mark]:
                del self._filed[mark]

    def candidates(self, addresses: Collection[Address]) -> list[tuple[Pattern, T]]:
        """The values whose pattern may match one of the addresses, in insertion order."""
        if self._filed is None:
            return [(entry.pattern, entry.value) for entry in self._entries.values()]
        names = set(self._any)
        for address in addresses:
            for mark in marks_of(address):
                names |= self._filed.get(mark, _NONE)
        found = sorted([self._entries[name] for name in names])
        return [(entry.pattern, entry.value) for entry in found]

    def _file(self, filed: dict[Mark, set[str]], name: str, pattern: Pattern) -> None:
        """Index a name under its pattern's most selective segment, which the fewest other patterns have."""
        marks = min(telling(pattern), key=lambda marks: len(filed.get(marks[0], _NONE)), default=())
        if not marks:
            self._any.add(name)
        else:
            self._marks[name] = marks
        for mark in marks:
            filed.setdefault(mark, set()).add(name)


_NONE: frozenset[str] = frozenset()
