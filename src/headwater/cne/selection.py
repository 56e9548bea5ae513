"""Which subscriptions, or publishers, are to go where all of them are to: the caller's own, if it is known who calls.

An address is no caller: on a node, all consumers have that of the loopback. So a caller of whom nothing else is known
says which endpoint it is about, unless all of that address have the same host and port to deliver to, or a 409 says it.
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
    """The caller's own; of these, those of `EndpointUri` if it is given: a whole URI, an origin, or HOST:PORT.

    Where they may be those of several callers, they are those of the oldest unused one of `conflicts`. A consumer whose
    address has changed finds its subscriptions by its 409s: subscriptions of the same origin are its own, if their
    owner is known by an address only.

    Raises RequestRefused (400) where there is none.
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
    problem = f"those of {len(callers)} callers may be from your address"
    raise RequestRefused(400, f"{problem}; say ?EndpointUri=HOST:PORT, delete them one by one by their ids, or log in")
