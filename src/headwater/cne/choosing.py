"""Which subscriptions, or publishers, are to go where all of them are to: the caller's own, if it is known who calls.

An address is no caller: on a node, all consumers have that of the loopback. So a caller of whom nothing else is known
says which endpoint it is about, unless all of that address have the same host and port to deliver to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import urlsplit

from .errors import Refused
from .exchange import Exchange
from .host import is_address
from .records import Record

R = TypeVar("R", bound=Record)


def chosen(exchange: Exchange, owner: str, records: Iterable[R]) -> list[R]:
    """The caller's own; of these, those of `EndpointUri` if it is given: a whole URI, an origin, or HOST:PORT.

    Raises Refused (400) where they may be those of several callers.
    """
    own = [record for record in records if record.owner == owner]
    given = exchange.parameter("EndpointUri")
    if given is not None:
        return [record for record in own if given == record.endpoint or given.lower() in _origins(record.endpoint)]
    callers = {_origins(record.endpoint) or record.id for record in own}
    if is_address(owner) and len(callers) > 1:
        problem = f"those of {len(callers)} callers may be from your address"
        raise Refused(400, f"{problem}; say ?EndpointUri=HOST:PORT, delete them one by one by their ids, or log in")
    return own


def _origins(endpoint: str) -> tuple[str, ...]:
    """`http://host:port` and `host:port` of an endpoint; nothing where there is none."""
    try:
        parts = urlsplit(endpoint.lower())
    except ValueError:
        return ()
    place = parts.netloc.rpartition("@")[2]
    return (f"{parts.scheme}://{place}", place) if place else ()
