"""Whether a payload can be embedded in a JSON document: one rule for CloudEvents, FutoIn and notifications.

A payload that some parser refuses would make it refuse the whole document, with all other events in it. So only text
that every parser reads is embedded; other bytes are sent as base64.
"""

from __future__ import annotations

import math
import re

import msgspec

DEPTH_MAX = 60
"""Nesting depth of brackets. Some parsers read at most 64 (System.Text.Json); a payload is nested in at most four."""
_FAR_MAX = 2**13
"""How many numbers in one long text may be too large for a double: each is checked individually."""
_EXPONENTS_MAX = 2**10
"""How many apparent exponents one long text may have; if there are more, all numbers are checked."""
_HALF_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"
)
_KIND = bytes.maketrans(b"0123456789.+eE,:[]{} \t\r\n", b"0" * 12 + b"ee" + b" " * 10)
"""Maps each byte of a number to a digit or to the start of an exponent, and separators of numbers to spaces."""
_BRACKETS = bytes.maketrans(b"[{]}", b"(())")
_OTHERS = bytes(set(range(256)) - set(b'[{]}"'))
_SHORT_BYTES = 308
"""A whole number up to this length fits a double, and building one this short takes half the time of checking it."""
_decode = msgspec.json.Decoder().decode
_validate = msgspec.json.Decoder(msgspec.Raw).decode
_LONG = b"0" * 200
"""A shorter number with a two-digit exponent is no larger than a double."""
_EXPONENT = b"e000"
_EXPONENT_ENDS = re.compile(rb"e0+(?: |\Z)")
"""In a hexadecimal identifier, a quotation mark or a letter follows."""


def is_embeddable(text: bytes) -> bool:
    """Whether the text is JSON (RFC 8259) that every parser reads.

    It is UTF-8, without lone surrogates (8.2), numbers beyond a double (6), or nesting deeper than DEPTH_MAX (9). Names
    may be repeated (4): every parser takes one of them.
    """
    try:
        if is_short := len(text) <= _SHORT_BYTES:
            _decode(text)
            if len(text) <= 2 * DEPTH_MAX:
                return True
        else:
            _validate(text)  # builds nothing, so it checks neither UTF-8, nor surrogates, nor large numbers
            if not text.isascii():
                text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return not _is_deep(text, DEPTH_MAX) if is_short else _may_stand(text)


def _may_stand(text: bytes) -> bool:
    """The part of `is_embeddable` that a decoder does not check in a text it has read."""
    if text.find(b"\\") >= 0:
        text = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        if _HALF_SURROGATE.search(text):
            return False
    if _is_deep(text, DEPTH_MAX):
        return False
    kinds = text.translate(_KIND)  # rfind is more than twice as fast as find
    at = kinds.rfind(_EXPONENT) if kinds.find(b"e") >= 0 else -1
    if kinds.rfind(_LONG) < 0 and (at < 0 or not _may_be_far(kinds, at)):
        return True
    return _numbers_fit(b'""'.join(text.split(b'"')[::2]))


def _is_deep(text: bytes, depth: int) -> bool:
    """Whether more than `depth` brackets are open at once in JSON."""
    if text.count(b"[") + text.count(b"{") <= depth:
        return False
    if text.find(b"\\") >= 0:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = text.translate(_BRACKETS, _OTHERS).replace(
        b'""', b""
    )  # quotation marks stay only around texts with brackets
    left = b"".join(left.split(b'"')[::2])
    while left and depth:  # each turn removes the innermost pairs
        left, depth = left.replace(b"()", b""), depth - 1
    return bool(left)


def _may_be_far(kinds: bytes, at: int) -> bool:
    """Whether an apparent exponent in a text, the last one of them, is at the end of a number."""
    left = _EXPONENTS_MAX
    while at >= 0:
        left -= 1
        if left < 0 or _EXPONENT_ENDS.match(kinds, at):
            return True
        at = kinds.rfind(_EXPONENT, 0, at)
    return False


def _numbers_fit(text: bytes) -> bool:
    """Whether each number fits a double, in JSON without texts."""
    kinds, left = text.translate(_KIND), _FAR_MAX
    for far in _EXPONENT, _LONG:
        end = 0
        while (at := kinds.find(far, end)) >= 0:
            start, end = kinds.rfind(b" ", 0, at) + 1, kinds.find(b" ", at)
            number = text[start:] if end < 0 else text[start:end]
            end, left = (len(text) if end < 0 else end), left - 1
            if left < 0 or not math.isfinite(float(number)):
                return False
    return True
