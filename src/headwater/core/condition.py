"""The append condition: what must not have happened for an append to succeed (DCB)."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidPosition
from .limits import SEQUENCE_NUMBER_MAX, show
from .query import Query


@dataclass(frozen=True, slots=True)
class AppendCondition:
    """Fails the append if an event numbered above `after` matches the query.

    `requires_match` is the seed specification's extra rule for an expected highest sequence number: the append also
    fails if no event up to `after` matches, so `after` must be at least 1.
    """

    fail_if_events_match: Query
    after: int = 0
    requires_match: bool = False


def check_condition(condition: AppendCondition) -> None:
    """Raises InvalidPosition unless `after` is a valid sequence number, or 0 (without `requires_match`)."""
    after, lowest = condition.after, 1 if condition.requires_match else 0
    if not isinstance(after, int) or isinstance(after, bool) or not lowest <= after <= SEQUENCE_NUMBER_MAX:
        problem = f"expected {lowest} to {SEQUENCE_NUMBER_MAX}, got {show(after)}"
        raise InvalidPosition(problem, "condition.after")
