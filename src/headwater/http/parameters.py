"""Values of query parameters that are no texts."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.limits import SEQUENCE_NUMBER_MAX, show
from .errors import InvalidParameter

DROPS_AT_MOST = "drops_at_most"
"""The parameter of requests that may lead to the dropping of events."""
_DIGITS_MAX = len(str(SEQUENCE_NUMBER_MAX))


def whole_number(parameters: Mapping[str, str], name: str) -> int | None:
    """The parameter as a whole number from 0, or None if it is not given. Raises InvalidParameter."""
    text = parameters.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise InvalidParameter(name, f"{show(text)} given, 0 to {SEQUENCE_NUMBER_MAX} is allowed")
    return int(text)


def drops_at_most(parameters: Mapping[str, str]) -> int:
    """How many events the request may drop: none, unless that parameter says so. Raises InvalidParameter."""
    return whole_number(parameters, DROPS_AT_MOST) or 0
