"""Shortens performatives that exceed the peer's frame size: error descriptions, and lists of unsettled deliveries."""

from __future__ import annotations

from copy import copy
from itertools import islice
from typing import Any

from .performatives import (
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    ErrorCondition,
    Performative,
    Rejected,
    encode_performative,
)


def fitted(performative: Performative, bytes_max: int) -> bytearray:
    """The performative in at most `bytes_max` bytes; empty if nothing can be left out.

    The description of an error is truncated, and its map is left out. An attach names only some of its unsettled
    deliveries, and is marked accordingly (2.7.3: incomplete-unsettled). The performative itself is not changed."""
    given: Any = copy(performative)
    while True:
        body = encode_performative(given)
        if len(body) <= bytes_max:
            return body
        if isinstance(given, Attach) and given.unsettled:
            given.unsettled = dict(islice(given.unsettled.items(), len(given.unsettled) // 2)) or None
            given.incomplete_unsettled = True
        elif isinstance(given, Detach | End | Close) and (error := _shorter(given.error)) is not None:
            given.error = error
        elif (
            isinstance(given, Disposition)
            and isinstance(given.state, Rejected)
            and (error := _shorter(given.state.error)) is not None
        ):
            given.state = Rejected(error)
        else:
            return bytearray()


def _shorter(error: object) -> ErrorCondition | None:
    if not isinstance(error, ErrorCondition):
        return None
    if error.info is not None:
        return ErrorCondition(error.condition, error.description)
    if error.description:
        return ErrorCondition(error.condition, error.description[: len(error.description) // 2])
    return None
