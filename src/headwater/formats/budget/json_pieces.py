"""A long JSON array of objects cut into short ones, so that no call into a decoder takes long.

No decoder stops half way. So a place is guessed where one element ends and another begins, and what lies before it is
validated as an array of its own: if it is one, the guess was right, because nothing but JSON up to the end of an
element is JSON with a bracket behind it. Validation is ten times as fast as decoding, and few guesses are wrong.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from random import randrange
from typing import NamedTuple

import msgspec

CUT_BYTES = 128 * 1024
"""About the length of a piece: what is made of it takes a few ms."""
_GUESS_BYTES = 4 * CUT_BYTES
"""So much is validated in vain before a piece is made twice as long."""
_BETWEEN = rb"\}\s*+,\s*+(?=\{%b)"
_ANY = re.compile(_BETWEEN % b"")
_FIRST_NAME = re.compile(rb'\s*+\{(\s*+"[^"\\]{1,100}"\s*+:)')
_validate = msgspec.json.Decoder(msgspec.Raw).decode
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Piece(NamedTuple):
    """Some elements of an array."""

    text: bytes
    """An array of them alone."""
    following: int
    """Where the element after them begins."""


def cut(text: bytes, start: int, bytes_max: int = sys.maxsize) -> Piece | None:
    """The elements from `start` on, where one begins; None if what is left is short, or has no next element.

    A piece is longer where an element is, but not looked for beyond `bytes_max`. `text` need not be JSON behind it.
    """
    if start + CUT_BYTES >= len(text):
        return None
    # Most often all elements have their first member in common, and what is inside them has not.
    name = _FIRST_NAME.match(text, start)
    guesses = (_between(name[1]), _ANY) if name else (_ANY,)
    wanted = CUT_BYTES
    while wanted <= bytes_max and start + wanted < len(text):
        at = start + wanted // 2 + randrange(wanted // 2)  # a place that nobody can have prepared
        for between in guesses:
            if (piece := _guessed(text, start, at, start + 2 * wanted, between)) is not None:
                return piece
        wanted *= 2
    return None


def _guessed(text: bytes, start: int, at: int, before: int, between: re.Pattern[bytes]) -> Piece | None:
    """The elements up to the first end of one from `at` on and before `before`, unless too much is tried in vain."""
    tried = 0
    for found in between.finditer(text, at, before):
        piece = b"[%b]" % text[start : found.start() + 1]
        if is_json_text(piece):
            return Piece(piece, found.end())
        tried += len(piece)
        if tried > _GUESS_BYTES:
            break
    return None


@lru_cache(maxsize=64)
def _between(name: bytes) -> re.Pattern[bytes]:
    return re.compile(_BETWEEN % re.escape(name))


def is_json_text(text: bytes) -> bool:
    """Whether it is JSON, but for what only decoding finds in strings and numbers."""
    try:
        _validate(text)
    except _NO_JSON:
        return False
    return True
