"""Finds the numbers that match a query by walks over postings, driven by the rarest term; other terms are bisected.

The cost of walking one item over one range of postings is the count of its rarest term there, whatever the counts of
the other terms.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...core.query import Query, QueryItem
from .postings import PARTITION, TYPE, Numbers, Postings, tag_terms

LOOKS_MIN = 16
"""The minimum number of candidates that each item of a query checks before a pause, so that every page makes
progress."""


LISTED_MAX = 8192
"""The maximum number of candidates to list for one page; larger queries are walked."""


class SkipMarker(int):
    """A number in a walk that is not a match but marks progress: all matches below it have been returned."""


class PostingsPiece(NamedTuple):
    """Postings restricted to `low` to `high`."""

    postings: Postings
    low: int
    high: int


def matching(
    pieces: Sequence[PostingsPiece],
    query: Query,
    partition: int | None = None,
    *,
    backwards: bool = False,
    looks_max: int | None = None,
) -> Iterator[int]:
    """The matching numbers, ascending (or descending), each once. The pieces are ascending and disjoint.

    After about `looks_max` numbers without a match, the last one is a `SkipMarker`: continue in another call.
    """
    items = query.items if query.items is not None else (QueryItem(),)
    pause = None if looks_max is None else max(LOOKS_MIN, looks_max // max(1, len(items)))
    for piece in reversed(pieces) if backwards else pieces:
        walks = [walk for item in items if (walk := _walk_item(piece, item, partition, backwards, pause)) is not None]
        if walks and pause is not None and _is_probed(query, partition):
            for number in walks[0] if len(walks) == 1 else _distinct(heapq.merge(*walks, reverse=backwards)):
                yield number
                if number.__class__ is SkipMarker:
                    return
        elif len(walks) == 1:
            yield from walks[0]
        elif walks:
            yield from _distinct(heapq.merge(*walks, reverse=backwards))


def listed(
    pieces: Sequence[PostingsPiece], query: Query, partition: int | None, count: int, *, backwards: bool = False
) -> list[int] | None:
    """The first `count` matches, as from `matching`; None if that takes more than looking up terms.

    It takes more if an event must have several terms, or if there are so many terms that merging their numbers is
    better.
    """
    terms = _single_terms(query, partition)
    if terms is None or len(terms) * count > LISTED_MAX:
        return None
    found: list[int] = []
    left, is_one = count, len(terms) == 1
    for postings, low, high in reversed(pieces) if backwards else pieces:
        if not (parts := postings.values_of(terms)):
            continue
        base = postings.base
        for at, values in enumerate(parts):
            start = bisect_left(values, low - base) if low > postings.first else 0
            if backwards:
                end = bisect_right(values, high - base, start)
                parts[at] = values[max(end - left, start) : end][::-1]
            else:
                parts[at] = part = values[start : start + left]
                if part and part[-1] + base > high:
                    parts[at] = part[: bisect_right(part, high - base)]
        few = parts[0] if is_one or len(parts) == 1 else sorted(set().union(*parts), reverse=backwards)[:left]
        found += [value + base for value in few] if base else few
        left = count - len(found)
        if not left:
            break
    return found


def _single_terms(query: Query, partition: int | None) -> list[tuple[str, str]] | None:
    """The terms, if one of them is enough to match; None if an event must have several."""
    if query.items is None or partition is not None:
        return None
    terms: list[tuple[str, str]] = []
    for item in query.items:
        of_tags = tag_terms(item)
        if not of_tags:
            terms += [(TYPE, type) for type in item.types]
        elif item.types or len(of_tags) > 1:
            return None
        else:
            terms += of_tags
    return terms


def first_match(pieces: Sequence[PostingsPiece], query: Query) -> int | None:
    """The lowest matching number, or None."""
    return next(matching(pieces, query), None)


def _is_probed(query: Query, partition: int | None) -> bool:
    """Whether some item has more than one term, so that numbers without a match are checked."""
    items = query.items or ()
    return any(len(item.tags) + len(item.exact_tags) + bool(item.types) + (partition is not None) > 1 for item in items)


def _walk_item(
    piece: PostingsPiece, item: QueryItem, partition: int | None, backwards: bool, pause: int | None
) -> Iterator[int] | None:
    """The matches of one item in one piece; None if there are clearly none."""
    postings, low, high = piece
    required: list[Numbers] = []
    for kind, tag in tag_terms(item):
        numbers = postings.numbers(kind, tag)
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
        union = _distinct(heapq.merge(*[_walk(each, low, high, backwards) for each in types], reverse=backwards))
        return _probed(union, required, [], pause)
    return _probed(_walk(required[0], low, high, backwards), required[1:], types, pause)


def _walk(numbers: Numbers, low: int, high: int, backwards: bool) -> Iterator[int]:
    values, base = numbers.values, numbers.base
    start, end = bisect_left(values, low - base), bisect_right(values, high - base)
    for index in range(end - 1, start - 1, -1) if backwards else range(start, end):
        yield values[index] + base


def _probed(
    walk: Iterator[int], required: Sequence[Numbers], any_of: Sequence[Numbers], pause: int | None
) -> Iterator[int]:
    """The numbers of the walk that are in all of `required` and one of `any_of` (if any); see `matching`."""
    if not required and not any_of:
        return walk
    return _probing(walk, required, any_of, pause)


def _probing(
    walk: Iterator[int], required: Sequence[Numbers], any_of: Sequence[Numbers], pause: int | None
) -> Iterator[int]:
    looks = 0
    for number in walk:
        if all([each.has(number) for each in required]) and (not any_of or any(each.has(number) for each in any_of)):
            yield number
        elif pause is not None and (looks := looks + 1) >= pause:
            yield SkipMarker(number)
            looks = 0


def _distinct(ordered: Iterable[int]) -> Iterator[int]:
    previous = None
    for number in ordered:
        if number.__class__ is SkipMarker:
            yield number
        elif number != previous:
            yield number
            previous = number
