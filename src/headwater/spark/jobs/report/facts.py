"""The facts in a report of a log: plain values, from which the page is made. They are small regardless of the log's
size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class TypeFacts(NamedTuple):
    """The events of one type."""

    type: str
    events: int
    bytes: int
    """The size of their payloads."""
    first_ms: int
    last_ms: int


class TagFacts(NamedTuple):
    """The tags with one key."""

    key: str
    tags: int
    values: int
    top: Sequence[tuple[str, int]]
    """The most frequent values, and their counts."""


class ConsumerFacts(NamedTuple):
    """A registered consumer."""

    name: str
    acknowledged: int
    behind: int
    seen_ms: int


class Span(NamedTuple):
    """A resource in one state."""

    from_ms: int
    to_ms: int
    state: str


class Resource(NamedTuple):
    """A resource with states, and its spans in them."""

    name: str
    spans: Sequence[Span]


class Sizes(NamedTuple):
    """The sizes of payloads, in bytes."""

    total: int
    median: int
    p99: int
    largest: int
    counts: Sequence[tuple[int, int]]
    """Pairs of a size, and the count of payloads smaller than it, but not than the previous one; the list is short."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A log at one moment. Times are ms since 1970 UTC."""

    log: str
    query: str | None
    made_ms: int
    head: int
    first_retained: int
    stored_bytes: int
    created_ms: int
    settings: Sequence[tuple[str, str]]
    """The notable settings, in words."""
    axis: str
    """The meaning of times: `time` (the events' own) or `recorded_at`."""
    events: int
    """The number of events examined; the same holds for all of the following."""
    first_ms: int
    last_ms: int
    outside: int
    """Events before `first_ms` or after `last_ms`, or without a time: outliers that would make the charts empty."""
    bucket_ms: int
    series: Sequence[tuple[str, Sequence[int]]]
    """Events by bucket, for the most frequent types, and for all others together under the name ''."""
    types: Sequence[TypeFacts]
    """The most frequent types."""
    types_total: int
    tags: Sequence[TagFacts]
    sizes: Sizes
    week: Sequence[Sequence[int]]
    """Events by day of the week, Monday first, and hour, UTC."""
    partitions: Sequence[int]
    sources: Sequence[tuple[str, int]]
    sources_total: int
    consumers: Sequence[ConsumerFacts]
    missing: int
    """Numbers without an event between the first and the last one; -1 if only some events were examined."""
    gaps: Sequence[tuple[int, int]]
    """The first gaps: first and last missing number."""
    resources: Sequence[Resource] = ()
    resources_total: int = 0
