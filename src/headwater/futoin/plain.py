"""Values of a message as JSON: what MessagePack and CBOR can say besides is refused, and bounded by the message's size.

CBOR's references let a few bytes stand for very many values; a value that is larger than the message that it came in is
such a case.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from .errors import invalid
from .message import PLAIN_BYTES

DEPTH_MAX = 200
_FAR_NUMBER = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{300}")
"""What a number looks like that may be beyond what can be decoded."""
_validate = msgspec.json.Decoder(msgspec.Raw).decode
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""What MessagePack has integers for."""


def json_text(value: object, size_max: int) -> bytes:
    """The value as JSON. Raises FutoInError (InvalidRequest) if it is none, or larger than `size_max`."""
    _Walk(size_max).check(value, 0)
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
        if len(text) > PLAIN_BYTES and b"\\u" not in text and not _FAR_NUMBER.search(text):
            if not text.isascii():
                text.decode()
            _validate(text)  # which builds nothing, and so looks at neither UTF-8, nor surrogates, nor large numbers
        else:
            msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
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


class _Walk:
    """One walk through a value, with what it may still cost."""

    def __init__(self, size_max: int) -> None:
        self._left = size_max

    def check(self, value: object, depth: int) -> None:
        self._left -= 1 + (len(value) if isinstance(value, str) else 0)
        if self._left < 0 or depth > DEPTH_MAX:
            raise invalid("a value is larger, or nested deeper, than its message can say")
        if isinstance(value, dict):
            for key, each in value.items():
                if not isinstance(key, str):
                    raise invalid("a key of a map is not a string")
                self.check(key, depth + 1)
                self.check(each, depth + 1)
        elif isinstance(value, list):
            for each in value:
                self.check(each, depth + 1)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise invalid("a number is not finite")
        elif value is not None and not isinstance(value, str | int):
            raise invalid(f"a value is not JSON-encodable ({type(value).__name__}); say dates and the like as text")
