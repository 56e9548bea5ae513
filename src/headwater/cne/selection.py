"""Selects the subscriptions or publishers that a DELETE of all removes: the caller's own, if the caller is known.

An address does not identify a caller: on a node, all consumers use the loopback address. So a caller known only by its
address must name its endpoint, unless all of that address deliver to the same host and port, or a 409 identifies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..core.loop.slices import Slices
from .conflicts import Conflicts, origins
from .errors import RequestRefused
from .exchange import Exchange
from .host import is_address
from .notifications.records import Record

R = TypeVar("R", bound=Record)


async def chosen(exchange: Exchange, owner: str, records: Sequence[R], conflicts: Conflicts | None = None) -> list[R]:
    """The caller's own records; if `EndpointUri` (a whole URI, an origin, or HOST:PORT) is given, only those for it.

    If they may belong to several callers, those of the oldest unused 409 in `conflicts` are chosen. A consumer whose
    address has changed finds its subscriptions by its 409s: subscriptions of the same origin are its own, if their
    owner is known by an address only.

    Raises RequestRefused (400) if there is no such 409.
    """
    callers_known = conflicts.callers(owner) if conflicts is not None and is_address(owner) else set()
    own, callers, slices = list[tuple[R, tuple[str, ...]]](), set(callers_known), Slices()
    for record in records:
        await slices.pause()
        if record.owner == owner or is_address(record.owner):
            places = origins(record.endpoint)
            if record.owner == owner or places in callers_known:
                own.append((record, places))
                callers.add(places or (record.id,))
    given = exchange.parameter("EndpointUri")
    if given is not None:
        return [record for record, places in own if given == record.endpoint or given.lower() in places]
    if not is_address(owner) or len(callers) <= 1:
        return [record for record, _ in own]
    if conflicts is not None and (origin := conflicts.take(owner)) is not None:
        return [record for record, places in own if places == origin]
    problem = f"the records of {len(callers)} callers may share your address"
    raise RequestRefused(400, f"{problem}; give ?EndpointUri=HOST:PORT, delete them one by one by their ids, or log in")
