"""Whether a payload may stand inside a JSON document as it is: one answer for CloudEvents, FutoIn and notifications.

One payload that some parser refuses would make it refuse the whole document, and all other events in that. So only what
every parser reads is embedded; other bytes go as base64.
"""

from __future__ import annotations

import math
import re

import msgspec

from ..speedups import IS_NATIVE

if IS_NATIVE:
    from ..speedups._native import may_stand as may_stand_plain

DEPTH_MAX = 60
"""Brackets inside each other. Some parsers read 64 at most (System.Text.Json); a payload stands within four at most."""
_FAR_MAX = 2**13
"""Numbers in one long text that may be beyond a double: each is looked at by itself."""
_EXPONENTS_MAX = 2**10
"""What looks like an exponent in one long text; where there is more, all numbers are looked at."""
_HALF_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"
)
_KIND = bytes.maketrans(b"0123456789.+eE,:[]{} \t\r\n", b"0" * 12 + b"ee" + b" " * 10)
"""By it a byte of a number is a digit or begins an exponent, and what parts numbers is a space."""
_BRACKETS = bytes.maketrans(b"[{]}", b"(())")
_OTHERS = bytes(set(range(256)) - set(b'[{]}"'))
_SHORT_BYTES = 308
"""A whole number that is no longer fits a double, and building so little takes half the time of looking at it."""
_decode = msgspec.json.Decoder().decode
_validate = msgspec.json.Decoder(msgspec.Raw).decode
_LONG = b"0" * 200
"""A shorter number with an exponent of two digits is no larger than a double."""
_EXPONENT = b"e000"
_EXPONENT_ENDS = re.compile(rb"e0+(?: |\Z)")
"""In an identifier of hexadecimal digits, a quotation mark or a letter follows."""


def is_embeddable(text: bytes) -> bool:
    """Whether the text is JSON (RFC 8259) that every parser reads: UTF-8, no half surrogates (8.2), no number beyond
    a double (6), nothing deeper than DEPTH_MAX (9). Names may be there twice (4): every parser takes one of them.
    """
    try:
        if is_short := len(text) <= _SHORT_BYTES:
            _decode(text)
            if len(text) <= 2 * DEPTH_MAX:
                return True
        else:
            _validate(text)  # which builds nothing, and so looks at neither UTF-8, nor surrogates, nor large numbers
            if not text.isascii():
                text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if IS_NATIVE and (may := may_stand_plain(text, DEPTH_MAX)) is not None:
        return may
    return not _is_deep(text, DEPTH_MAX) if is_short else may_stand(text, DEPTH_MAX)


def may_stand(text: bytes, depth: int) -> bool:
    """The part of `is_embeddable` that a decoder does not find out about a text that it has read."""
    if text.find(b"\\") >= 0:
        text = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        if _HALF_SURROGATE.search(text):
            return False
    if _is_deep(text, depth):
        return False
    kinds = text.translate(_KIND)  # and rfind is more than twice as fast as find
    at = kinds.rfind(_EXPONENT) if kinds.find(b"e") >= 0 else -1
    if kinds.rfind(_LONG) < 0 and (at < 0 or not _may_be_far(kinds, at)):
        return True
    return _numbers_fit(b'""'.join(text.split(b'"')[::2]))


def _is_deep(text: bytes, depth: int) -> bool:
    """Whether more brackets than that are open at once in JSON."""
    if text.count(b"[") + text.count(b"{") <= depth:
        return False
    if text.find(b"\\") >= 0:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = text.translate(_BRACKETS, _OTHERS).replace(
        b'""', b""
    )  # quotation marks stay around texts with brackets only
    left = b"".join(left.split(b'"')[::2])
    while left and depth:  # each turn takes the innermost pairs away
        left, depth = left.replace(b"()", b""), depth - 1
    return bool(left)


def _may_be_far(kinds: bytes, at: int) -> bool:
    """Whether something in a text that looks like an exponent, the last of them there, is at the end of a number."""
    left = _EXPONENTS_MAX
    while at >= 0:
        left -= 1
        if left < 0 or _EXPONENT_ENDS.match(kinds, at):
            return True
        at = kinds.rfind(_EXPONENT, 0, at)
    return False


def _numbers_fit(text: bytes) -> bool:
    """Whether a double is large enough for each number of JSON without texts."""
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
