"""What a report says of a log: plain values, small whatever the log's size, that the page is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class TypeFacts(NamedTuple):
    """The events of one type."""

    type: str
    events: int
    bytes: int
    """Of their payloads."""
    first_ms: int
    last_ms: int


class TagFacts(NamedTuple):
    """The tags with one key."""

    key: str
    tags: int
    values: int
    top: Sequence[tuple[str, int]]
    """The values that come most often, and how often."""


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
    """What has states, and when it was in which."""

    name: str
    spans: Sequence[Span]


class Sizes(NamedTuple):
    """The sizes of payloads, in bytes."""

    total: int
    median: int
    p99: int
    largest: int
    counts: Sequence[tuple[int, int]]
    """Pairs of a size, and how many payloads are smaller than it, but not than the one before; none of them is long."""


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
    """What is to be said of them, in words."""
    axis: str
    """What times mean here: `time` (the events' own) or `recorded_at`."""
    events: int
    """That were looked at; so all of the following."""
    first_ms: int
    last_ms: int
    outside: int
    """Events before `first_ms` or after `last_ms`, or without a time: strays that would make the charts empty."""
    bucket_ms: int
    series: Sequence[tuple[str, Sequence[int]]]
    """Events by bucket, for the types that come most often, and for all others together under the name of ''."""
    types: Sequence[TypeFacts]
    """Those that come most often."""
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
    """Numbers without an event between the first and the last one; -1 where only some events were looked at."""
    gaps: Sequence[tuple[int, int]]
    """The first of them: first and last number that are not there."""
    resources: Sequence[Resource] = ()
    resources_total: int = 0
