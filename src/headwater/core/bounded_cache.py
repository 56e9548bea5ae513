"""Answers that are remembered for what comes again and again: a cache whose keys are bounded in size, not only number.

What a peer has written may be a thousand times as long as anything that comes again, and a cache that counts only how
many there are keeps all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

CHARS_MAX = 2048
"""Of all texts in the arguments together. For longer ones the answer is made each time."""

P = ParamSpec("P")
T = TypeVar("T")


def remembered(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator: the newest so many answers are remembered. Arguments are texts, bytes, tuples of them, or small."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known: dict[tuple[object, ...], T] = {}
        changing = Lock()

        @wraps(function)
        def answer(*arguments: P.args, **named: P.kwargs) -> T:
            if not named:
                try:
                    return known[arguments]
                except KeyError:
                    pass  # the common case is the other one
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
    """How large a key is: characters of its texts, and its elements; it is not looked on behind `enough`."""
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
