"""Whether a payload may stand inside a JSON document as it is: one answer for CloudEvents, FutoIn and notifications.

One payload that some parser refuses would make it refuse the whole document, and all other events in that. So only what
every parser reads is embedded; other bytes go as base64.
"""

from __future__ import annotations

import math
import re

import msgspec

_FAR_MAX = 2**13
"""Numbers in one long text that look as if they may be beyond a double: each is looked at by itself."""
_HALF_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"
)
_OF_NUMBERS = bytes(
    ord("0") if each in b"0123456789." else ord("e") if each in b"eE" else each if each in b"+-" else ord(" ")
    for each in range(256)
)
"""Digits, exponents and signs as a table of bytes, to look for them at the speed of memory."""
_WITHOUT_PLUS = _OF_NUMBERS.replace(b"+", b"0")
"""The same, by which an exponent looks the same with a plus and without."""
_validate = msgspec.json.Decoder(msgspec.Raw).decode
_LONG_BYTES = 200
"""A shorter number with an exponent of two digits is no larger than a double."""
_FAR = b"e000", b"e+000", b"0" * _LONG_BYTES
"""How a number looks by that table that may be too large."""


def is_embeddable(text: bytes) -> bool:
    """Whether the text is JSON (RFC 8259) that every parser reads: UTF-8, no half surrogates (8.2), no number beyond
    a double (6), not nested endlessly. Names may be there twice (4): every parser takes one of them.
    """
    try:
        _validate(text)  # which builds nothing, and so looks at neither UTF-8, nor surrogates, nor large numbers
        if not text.isascii():
            text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if text.find(b"\\") >= 0:
        text = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        if _HALF_SURROGATE.search(text):
            return False
    found = text.translate(_WITHOUT_PLUS)  # and rfind is more than twice as fast as find
    if found.rfind(_FAR[0]) < 0 and (len(found) < _LONG_BYTES or found.rfind(_FAR[2]) < 0):
        return True
    return _numbers_fit(b'""'.join(text.split(b'"')[::2]))


def _numbers_fit(text: bytes) -> bool:
    """Whether a double is large enough for each number of JSON without texts."""
    found, left = text.translate(_OF_NUMBERS), _FAR_MAX
    for far in _FAR:
        end = 0
        while (at := found.find(far, end)) >= 0:
            start, end = found.rfind(b" ", 0, at) + 1, found.find(b" ", at)
            number = text[start:] if end < 0 else text[start:end]
            end, left = (len(text) if end < 0 else end), left - 1
            if left < 0 or not math.isfinite(float(number)):
                return False
    return True
