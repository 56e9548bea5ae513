"""The append condition: what must not have happened for an append to go in (DCB)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .query import Query


@dataclass(frozen=True, slots=True)
class AppendCondition:
    """Fails the append if an event numbered above `after` matches the query.

    `requires_match` is the seed specification's extra rule for an expected highest sequence number: the append also
    fails if no event up to `after` matches.
    """

    fail_if_events_match: Query
    after: int = 0
    requires_match: bool = False


class ConditionFailure(StrEnum):
    """Why a condition failed."""

    NO_MATCH_EXPECTED = "no_match_expected"
    """`after` is 0 and an event matches."""
    NEWER_MATCH = "newer_match"
    """An event above `after` matches."""
    NO_MATCH_FOUND = "no_match_found"
    """`requires_match` is set and nothing up to `after` matches."""
