"""What histograms have in common: what is asked of them, and the times at which their buckets begin."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import msgspec

from ..core.errors import InvalidInput
from ..core.limits import show
from ..core.query import Query
from ..formats import jsontext
from ..http import Exchange
from .large import check_query
from .queries import query_of
from .wire import EventHistogramIn, HistogramIn

BUCKETS, BUCKETS_MAX = 60, 300
TYPES, TYPES_MAX = 5, 20
"""Types that each bucket names."""
HISTOGRAM_S_MAX = 1.0
"""CPU time for all buckets."""

Given = TypeVar("Given", HistogramIn, EventHistogramIn)


class Asked(NamedTuple, Generic[Given]):
    """A question for a histogram, checked but for its times."""

    given: Given
    query: Query
    buckets: int
    types_max: int | None
    """Types that each bucket names, at most; None: it is not asked by type."""


async def asked(exchange: Exchange, decoder: msgspec.json.Decoder[Given]) -> Asked[Given]:
    """The question in the body of a request. Raises InvalidInput, MalformedJson."""
    body = await exchange.json_body()
    check_query(body)
    given = jsontext.decode(decoder, body)
    query = query_of(given.query, "query")
    buckets = _checked(given.buckets, BUCKETS, BUCKETS_MAX, "buckets", 1)
    types_max = _checked(given.types_max, TYPES, TYPES_MAX, "types_max", 0) if given.by_type else None
    return Asked(given, query, buckets, types_max)


def borders(begin: int, end: int, buckets: int) -> list[int]:
    """The times at which buckets begin, and where the last one ends; no bucket is shorter than a ms."""
    count = min(buckets, end - begin)
    return [begin + (end - begin) * index // count for index in range(count + 1)]


def _checked(given: int | None, default: int, most: int, name: str, least: int) -> int:
    if given is None:
        return default
    if not least <= given <= most:
        raise InvalidInput(f"{show(given)} given, {least} to {most} is allowed", name)
    return given
