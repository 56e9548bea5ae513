"""The append condition: what must not have happened for an append to go in (DCB)."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidPosition
from .limits import SEQUENCE_NUMBER_MAX, show
from .query import Query


@dataclass(frozen=True, slots=True)
class AppendCondition:
    """Fails the append if an event numbered above `after` matches the query.

    `requires_match` is the seed specification's extra rule for an expected highest sequence number: the append also
    fails if no event up to `after` matches; so `after` is at least 1 with it.
    """

    fail_if_events_match: Query
    after: int = 0
    requires_match: bool = False


def check_condition(condition: AppendCondition) -> None:
    """Raises InvalidPosition if `after` is no number that an event may have, nor 0 (without `requires_match`)."""
    after, lowest = condition.after, 1 if condition.requires_match else 0
    if not isinstance(after, int) or isinstance(after, bool) or not lowest <= after <= SEQUENCE_NUMBER_MAX:
        problem = f"{show(after)} given, {lowest} to {SEQUENCE_NUMBER_MAX} is allowed"
        raise InvalidPosition(problem, "condition.after")
