"""Cuts a long JSON array of objects into short ones, so that no call to a decoder takes long.

No decoder can stop half way. So a boundary between two elements is guessed, and the text before it is validated as an
array of its own: if it is valid, the guess was right, because only JSON up to the end of an element becomes JSON with a
closing bracket. Validation is ten times as fast as decoding, and few guesses are wrong.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from random import randrange
from typing import NamedTuple

import msgspec

CUT_BYTES = 128 * 1024
"""Approximate length of a piece, which takes a few ms to process."""
_GUESS_BYTES = 4 * CUT_BYTES
"""How much may be validated without success before the piece length is doubled."""
_BETWEEN = rb"\}\s*+,\s*+(?=\{%b)"
_ANY = re.compile(_BETWEEN % b"")
_FIRST_NAME = re.compile(rb'\s*+\{(\s*+"[^"\\]{1,100}"\s*+:)')
_validate = msgspec.json.Decoder(msgspec.Raw).decode
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Piece(NamedTuple):
    """Some consecutive elements of an array."""

    text: bytes
    """An array of only these elements."""
    following: int
    """Where the next element begins."""


def cut(text: bytes, start: int, bytes_max: int = sys.maxsize) -> Piece | None:
    """The elements from `start` on, where one begins; None if the rest is short or has no next element.

    A piece is longer if an element is, but is not searched beyond `bytes_max`. After the piece, `text` need not be
    JSON.
    """
    if start + CUT_BYTES >= len(text):
        return None
    # Usually all elements have the same first member, and nothing inside them has it.
    name = _FIRST_NAME.match(text, start)
    guesses = (_between(name[1]), _ANY) if name else (_ANY,)
    wanted = CUT_BYTES
    while wanted <= bytes_max and start + wanted < len(text):
        at = start + wanted // 2 + randrange(wanted // 2)  # a place that no sender can have predicted
        for between in guesses:
            if (piece := _guessed(text, start, at, start + 2 * wanted, between)) is not None:
                return piece
        wanted *= 2
    return None


def _guessed(text: bytes, start: int, at: int, before: int, between: re.Pattern[bytes]) -> Piece | None:
    """The elements up to the first boundary from `at` on and before `before`, unless too much is tried without
    success.
    """
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
    """Whether it is JSON, except for errors in strings and numbers that only decoding finds."""
    try:
        _validate(text)
    except _NO_JSON:
        return False
    return True
