"""Values of a message as JSON: what MessagePack and CBOR can say besides is refused, and bounded by the message's size.

CBOR's references let a few bytes stand for very many values; a value that is larger than the message that it came in is
such a case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ..errors import invalid
from .message import PLAIN_BYTES

DEPTH_MAX = 200
_FAR_MAX = 2**13
"""Numbers in one long text that look as if they may be beyond what can be decoded: each is looked at by itself."""
_HALF_SURROGATE = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"
)
_OF_NUMBERS = bytes(
    ord("0") if each in b"0123456789." else ord("e") if each in b"eE" else each if each in b"+-" else ord(" ")
    for each in range(256)
)
"""Digits, exponents and signs as a table of bytes, to look for them at the speed of memory."""
_validate = msgspec.json.Decoder(msgspec.Raw).decode
_LONG_BYTES = 300
_FAR = b"e000", b"e+000", b"0" * _LONG_BYTES
"""How a number looks by that table that may be too large."""
_STEPS = 2**16
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""What MessagePack has integers for."""


def json_text(value: object, size_max: int) -> bytes:
    """The value as JSON. Raises FutoInError (InvalidRequest) if it is none, or larger than `size_max`."""
    walk = Walk(value, size_max)
    while not walk.go_on(_STEPS):
        pass
    return encoded_json(value)


def encoded_json(value: object) -> bytes:
    """A value that was walked through, as JSON. Raises FutoInError (InvalidRequest) if there is none."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, UnicodeEncodeError):
        raise invalid("a value is not JSON-encodable") from None


def checked_json(text: bytes) -> bytes:
    """The text itself, if it is JSON in every detail. Raises FutoInError (InvalidRequest)."""
    if not is_json(text):
        raise invalid("a value is not well-formed JSON")
    return text


def is_json(text: bytes) -> bool:
    """Whether the text is JSON (RFC 8259) that can be decoded: UTF-8, no half surrogates, not nested endlessly."""
    try:
        if len(text) <= PLAIN_BYTES:
            msgspec.json.decode(text)
            return True
        if not text.isascii():
            text.decode()
        _validate(text)  # which builds nothing, and so looks at neither UTF-8, nor surrogates, nor large numbers
        if b"\\" in text:
            text = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
            if b"\\u" in text and _HALF_SURROGATE.search(text):
                return False
        return not _looks_far(text) or _numbers_fit(b'""'.join(text.split(b'"')[::2]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _looks_far(text: bytes) -> bool:
    found = text.translate(_OF_NUMBERS)
    return any(far in found for far in _FAR)


def _numbers_fit(text: bytes) -> bool:
    """Whether all numbers of JSON without texts can be decoded. Raises msgspec.DecodeError for some that cannot."""
    found, left = text.translate(_OF_NUMBERS), _FAR_MAX
    for far in _FAR:
        end = 0
        while (at := found.find(far, end)) >= 0:
            start, end = found.rfind(b" ", 0, at) + 1, found.find(b" ", at)
            number = text[start:] if end < 0 else text[start:end]
            end, left = (len(text) if end < 0 else end), left - 1
            if left < 0 or (len(number) < _LONG_BYTES and not math.isfinite(float(number))):
                return False
            if len(number) >= _LONG_BYTES:
                msgspec.json.decode(number)
    return True


def portable(value: Any) -> Any:
    """The value with integers that MessagePack has no room for as floating-point numbers, as JavaScript has them."""
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        return float(value) if abs(value) < 10**308 else math.copysign(1.7976931348623157e308, value)
    if isinstance(value, list):
        return [portable(each) for each in value]
    if isinstance(value, dict):
        return {key: portable(each) for key, each in value.items()}
    return value


class Walk:
    """One walk through a value, some values at a time, with what it may still cost."""

    def __init__(self, value: object, size_max: int) -> None:
        self._left = size_max
        self._open: list[Iterator[object]] = [iter((value,))]
        """What is left of each array and map that the walk is in."""

    def go_on(self, steps: int) -> bool:
        """Look at about so many values; whether that was all. Raises FutoInError (InvalidRequest) if one is no JSON."""
        inside = self._open
        for _ in range(steps):
            value = next(inside[-1], _END)
            if value is _END:
                inside.pop()
                if not inside:
                    return True
                continue
            self._pay(1 + (len(value) if isinstance(value, str) else 0))
            if isinstance(value, dict):
                self._check_keys(value)
                inside.append(iter(value.values()))
            elif isinstance(value, list):
                inside.append(iter(value))
            elif isinstance(value, float):
                if not math.isfinite(value):
                    raise invalid("a number is not finite")
            elif value is not None and not isinstance(value, str | int):
                raise invalid(f"a value is not JSON-encodable ({type(value).__name__}); say dates and the like as text")
        return False

    def _check_keys(self, value: dict[object, object]) -> None:
        for key in value:
            if not isinstance(key, str):
                raise invalid("a key of a map is not a string")
            self._pay(1 + len(key))

    def _pay(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0 or len(self._open) > DEPTH_MAX + 1:
            raise invalid("a value is larger, or nested deeper, than its message can say")


_END = object()
