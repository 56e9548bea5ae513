"""Which numbers match a query: walks over postings, driven by the rarest term, the others probed by bisection.

The walk of one item over one range of postings costs as much as its rarest term has numbers there, whatever the
others have.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..core.query import Query, QueryItem
from .postings import KEY, PARTITION, TAG, TYPE, Numbers, Postings


class Piece(NamedTuple):
    """Postings to be looked at only from `low` to `high`."""

    postings: Postings
    low: int
    high: int


def matching(
    pieces: Sequence[Piece], query: Query, partition: int | None = None, *, backwards: bool = False
) -> Iterator[int]:
    """The numbers that match, ascending (or descending), each once. The pieces are ascending and disjoint."""
    items = query.items if query.items is not None else (QueryItem(),)
    for piece in reversed(pieces) if backwards else pieces:
        walks = [walk for item in items if (walk := _walk_item(piece, item, partition, backwards)) is not None]
        if len(walks) == 1:
            yield from walks[0]
        elif walks:
            yield from _distinct(heapq.merge(*walks, reverse=backwards))


def first_match(pieces: Sequence[Piece], query: Query) -> int | None:
    """The lowest number that matches, or None."""
    return next(matching(pieces, query), None)


def _walk_item(piece: Piece, item: QueryItem, partition: int | None, backwards: bool) -> Iterator[int] | None:
    """The matches of one item in one piece; None if it is plain that there are none."""
    postings, low, high = piece
    required: list[Numbers] = []
    for tag in item.tags:
        numbers = postings.numbers(TAG if ":" in tag else KEY, tag)
        if numbers is None or not numbers.reaches(low):
            return None
        required.append(numbers)
    if partition is not None:
        numbers = postings.numbers(PARTITION, str(partition))
        if numbers is None:
            return None
        required.append(numbers)
    types: list[Numbers] = []
    for type in item.types:
        numbers = postings.numbers(TYPE, type)
        if numbers is not None and numbers.reaches(low):
            types.append(numbers)
    if item.types and not types:
        return None
    if len(types) == 1:
        required.append(types.pop())
    required.sort(key=len)
    if not required and not types:  # every event of the piece, as for Query.all()
        return iter(range(high, low - 1, -1) if backwards else range(low, high + 1))
    if types and (not required or sum(map(len, types)) < len(required[0])):
        union = _distinct(heapq.merge(*(_walk(each, low, high, backwards) for each in types), reverse=backwards))
        return _probed(union, required, [])
    return _probed(_walk(required[0], low, high, backwards), required[1:], types)


def _walk(numbers: Numbers, low: int, high: int, backwards: bool) -> Iterator[int]:
    values, base = numbers.values, numbers.base
    start, end = bisect_left(values, low - base), bisect_right(values, high - base)
    if backwards:
        return (values[index] + base for index in range(end - 1, start - 1, -1))
    return (values[index] + base for index in range(start, end))


def _probed(walk: Iterator[int], required: Sequence[Numbers], any_of: Sequence[Numbers]) -> Iterator[int]:
    """Those of the walk that all of `required` have, and one of `any_of` (if there are any)."""
    if not required and not any_of:
        return walk
    return (
        number
        for number in walk
        if all(each.has(number) for each in required) and (not any_of or any(each.has(number) for each in any_of))
    )


def _distinct(ordered: Iterable[int]) -> Iterator[int]:
    previous = None
    for number in ordered:
        if number != previous:
            yield number
            previous = number
