"""Divides the time of a report into buckets of a round length."""

from __future__ import annotations

from typing import NamedTuple

from .words import DAY, HOUR, MINUTE, SECOND

BUCKETS_MAX = 200
STEPS = (100, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE,
         30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY, 28 * DAY, 364 * DAY, 3640 * DAY)  # fmt: skip
_WHOLE = 0.95
"""Data that covers this share of a bucket counts as covering it."""
_STRAYS = 3
"""If all events span this many times more than all but one in a hundred, the remaining ones are outliers."""


class Axis(NamedTuple):
    """The time range shown, in ms."""

    first_ms: int
    last_ms: int
    bucket_ms: int

    @property
    def begin_ms(self) -> int:
        """The start of the first bucket."""
        unit = min(self.bucket_ms, DAY)  # weeks begin with the first day: half a first week would look like a change
        return self.first_ms // unit * unit

    @property
    def last_is_part(self) -> bool:
        """Whether the last bucket extends beyond the data. If so, its count does not indicate a change."""
        covered = (self.last_ms - self.begin_ms) % self.bucket_ms + 1
        return covered < _WHOLE * self.bucket_ms

    @property
    def buckets(self) -> int:
        """The number of buckets."""
        return (self.last_ms - self.begin_ms) // self.bucket_ms + 1


def axis(first_ms: int, low_ms: int, high_ms: int, last_ms: int) -> Axis:
    """The axis for events between `first_ms` and `last_ms`, nearly all of which are between `low_ms` and `high_ms`."""
    if last_ms - first_ms > _STRAYS * max(high_ms - low_ms, MINUTE):
        margin = max((high_ms - low_ms) // 20, SECOND)
        first_ms, last_ms = max(first_ms, low_ms - margin), min(last_ms, high_ms + margin)
    span = last_ms - first_ms
    return Axis(first_ms, last_ms, next((step for step in STEPS if span < step * BUCKETS_MAX), STEPS[-1]))
