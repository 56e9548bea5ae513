"""A memoizing cache that bounds the size of its keys, not only their number.

A peer may send a key that is a thousand times longer than any key that repeats. A cache that bounds only the number of
entries would keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

CHARS_MAX = 2048
"""Limit for the total size of all texts in the arguments. Longer arguments are not cached."""

P = ParamSpec("P")
T = TypeVar("T")


def remembered(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator that caches the newest `most` results. Arguments: texts, bytes, tuples of them, or small values."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known: dict[tuple[object, ...], T] = {}
        changing = Lock()

        @wraps(function)
        def answer(*arguments: P.args, **named: P.kwargs) -> T:
            if not named:
                try:
                    return known[arguments]
                except KeyError:
                    pass  # the common case is the other branch
            made = function(*arguments, **named)
            if not named and size_of(arguments, CHARS_MAX) <= CHARS_MAX:
                with changing:
                    if len(known) >= most:
                        del known[next(iter(known))]
                    known[arguments] = made
            return made

        return answer

    return decorate


def size_of(value: object, enough: int) -> int:
    """The size of a key: the number of characters in its texts, plus its elements.

    Stops counting once above `enough`.
    """
    if isinstance(value, str | bytes):
        return len(value)
    if not isinstance(value, tuple):
        return 0
    size = len(value)
    for each in value:
        if size > enough:
            break
        size += size_of(each, enough)
    return size
