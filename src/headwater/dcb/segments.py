"""What a log is kept in: its segments, page by page."""

from __future__ import annotations

import asyncio

from ..core.access import Right
from ..http import Exchange
from ..http.errors import InvalidParameter
from ..http.exchange import whole_number
from .host import Host
from .wire import SegmentsOut

LIMIT, LIMIT_MAX = 100, 1000


async def list_segments(host: Host, exchange: Exchange) -> None:
    """GET /logs/{log}/segments"""
    opened = await host.log(exchange, Right.READ)
    parameters = exchange.parameters("after", "limit")
    after, limit = whole_number(parameters, "after") or 0, whole_number(parameters, "limit")
    if limit is not None and not 1 <= limit <= LIMIT_MAX:
        raise InvalidParameter("limit", f"{limit} given, 1 to {LIMIT_MAX} is allowed")
    limit = limit or LIMIT
    found = await asyncio.to_thread(opened.log.segments, after, limit + 1)
    more = found[limit - 1].first if len(found) > limit else None
    log = opened.log
    await exchange.answer_json(
        200, SegmentsOut(found[:limit], log.first_retained, log.head(), opened.view.incarnation, more)
    )
