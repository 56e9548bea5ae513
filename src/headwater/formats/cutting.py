"""A long JSON array of objects cut into short ones, so that no call into a decoder takes long.

No decoder stops half way. So a place is guessed where one element ends and another begins, and what lies before it is
validated as an array of its own: if it is one, the guess was right, because nothing but JSON up to the end of an
element is JSON with a bracket behind it. Validation is ten times as fast as decoding, and few guesses are wrong.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

CUT_BYTES = 128 * 1024
"""About the length of a piece: what is made of it takes a few ms."""
_GUESSES_MAX = 16
_BETWEEN = re.compile(rb"\}\s*+,\s*+(?=\{)")
_validate = msgspec.json.Decoder(msgspec.Raw).decode
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Piece(NamedTuple):
    """Some elements of an array."""

    text: bytes
    """An array of them alone."""
    following: int
    """Where the element after them begins."""


def cut(text: bytes, start: int) -> Piece | None:
    """The elements from `start` on, where one begins; None if what is left is short, or has no next element.

    A piece is longer where an element is. `text` need not be JSON behind it.
    """
    wanted = CUT_BYTES
    while start + wanted < len(text):
        for number, found in enumerate(_BETWEEN.finditer(text, start + wanted)):
            piece = b"[%b]" % text[start : found.start() + 1]
            if is_json_text(piece):
                return Piece(piece, found.end())
            if number == _GUESSES_MAX:
                break
        else:
            return None
        wanted *= 2
    return None


def is_json_text(text: bytes) -> bool:
    """Whether it is JSON, but for what only decoding finds in strings and numbers."""
    try:
        _validate(text)
    except _NO_JSON:
        return False
    return True
