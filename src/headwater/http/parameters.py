"""Values of query parameters that are no texts."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.limits import SEQUENCE_NUMBER_MAX, show
from .errors import InvalidParameter

_DIGITS_MAX = len(str(SEQUENCE_NUMBER_MAX))


def whole_number(parameters: Mapping[str, str], name: str) -> int | None:
    """The parameter as a whole number from 0, or None if it is not given. Raises InvalidParameter."""
    text = parameters.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise InvalidParameter(name, f"{show(text)} given, 0 to {SEQUENCE_NUMBER_MAX} is allowed")
    return int(text)
