"""Converts a message's values to JSON: values that JSON lacks are refused, and the size is bounded by the message's.

CBOR's references allow a few bytes to represent very many values, and so a value that is larger than its message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from ...formats.embedding import DEPTH_MAX, is_embeddable
from ..errors import invalid

_STEPS = 2**16
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""The range of MessagePack's integers."""


def json_text(value: object, size_max: int) -> bytes:
    """The value as JSON. Raises FutoInError (InvalidRequest) if it is not JSON, or larger than `size_max`."""
    walk = Walk(value, size_max)
    while not walk.go_on(_STEPS):
        pass
    return encoded_json(value)


def encoded_json(value: object) -> bytes:
    """A walked value as JSON. Raises FutoInError (InvalidRequest) if it has no JSON form."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, UnicodeEncodeError):
        raise invalid("a value is not JSON-encodable") from None


def checked_json(text: bytes) -> bytes:
    """The text itself, if it is JSON that events can carry unchanged. Raises FutoInError (InvalidRequest)."""
    if not is_embeddable(text):
        raise invalid(
            "a value must be portable JSON: it is malformed, or contains a number out of the range of a double such as "
            f"1e400, half of a surrogate pair, or more than {DEPTH_MAX} nested brackets"
        )
    return text


def portable(value: Any) -> Any:
    """The value, with integers too large for MessagePack as floating-point numbers, as in JavaScript."""
    if isinstance(value, int) and not INT_MIN <= value <= INT_MAX:
        return float(value) if abs(value) < 10**308 else math.copysign(1.7976931348623157e308, value)
    if isinstance(value, list):
        return [portable(each) for each in value]
    if isinstance(value, dict):
        return {key: portable(each) for key, each in value.items()}
    return value


class Walk:
    """A walk through a value, some values at a time, with its remaining budget."""

    def __init__(self, value: object, size_max: int) -> None:
        self._left = size_max
        self._open: list[Iterator[object]] = [iter((value,))]
        """The rest of each array and map that the walk is in."""

    def go_on(self, steps: int) -> bool:
        """Check about that many values. Returns whether the walk is complete. Raises FutoInError (InvalidRequest) if
        one is not JSON.
        """
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
                raise invalid(
                    f"a value is not JSON-encodable ({type(value).__name__}); convert dates and similar values to text"
                )
        return False

    def _check_keys(self, value: dict[object, object]) -> None:
        for key in value:
            if not isinstance(key, str):
                raise invalid("a key of a map is not a string")
            self._pay(1 + len(key))

    def _pay(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0 or len(self._open) > DEPTH_MAX + 1:
            raise invalid(f"a value is too large for its message, or has more than {DEPTH_MAX} nested brackets")


_END = object()
