"""Which subscriptions, or publishers, are to go where all of them are to: the caller's own, if it is known who calls.

An address is no caller: on a node, all consumers have that of the loopback. So a caller of whom nothing else is known
says which endpoint it is about, unless all of that address have the same host and port to deliver to, or a 409 says it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .conflicts import Conflicts, origins
from .errors import RequestRefused
from .exchange import Exchange
from .host import is_address
from .notifications.records import Record

R = TypeVar("R", bound=Record)


def chosen(exchange: Exchange, owner: str, records: Iterable[R], conflicts: Conflicts | None = None) -> list[R]:
    """The caller's own; of these, those of `EndpointUri` if it is given: a whole URI, an origin, or HOST:PORT.

    Where they may be those of several callers, they are those of the oldest unused one of `conflicts`. A consumer whose
    address has changed finds its subscriptions by its 409s: subscriptions of the same origin are its own, if their
    owner is known by an address only.

    Raises RequestRefused (400) where there is none.
    """
    conflicting = conflicts.callers(owner) if conflicts is not None and is_address(owner) else set()
    own = [
        record
        for record in records
        if record.owner == owner or (is_address(record.owner) and origins(record.endpoint) in conflicting)
    ]
    given = exchange.parameter("EndpointUri")
    if given is not None:
        return [record for record in own if given == record.endpoint or given.lower() in origins(record.endpoint)]
    callers = {origins(record.endpoint) or (record.id,) for record in own} | conflicting
    if not is_address(owner) or len(callers) <= 1:
        return own
    if conflicts is not None and (origin := conflicts.take(owner)) is not None:
        return [record for record in own if origins(record.endpoint) == origin]
    problem = f"those of {len(callers)} callers may be from your address"
    raise RequestRefused(400, f"{problem}; say ?EndpointUri=HOST:PORT, delete them one by one by their ids, or log in")
