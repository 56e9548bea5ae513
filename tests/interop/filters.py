"""Source filters, as requests name them."""

from __future__ import annotations

from typing import Any

from .driving import symbol


def after(offset: str, descriptor: int | str = 0x200) -> list[dict[str, Any]]:
    """Event Stream Extensions, 5.2.1: what is above that offset."""
    name = "amqp:event-streams-delivery-annotations-filter"
    return [{"name": name, "descriptor": descriptor, "map": {"event-streams-offset": symbol(offset)}}]


EARLIEST = after("@earliest")


def event_streams_sql(text: str, descriptor: int | str = 0x201) -> list[dict[str, Any]]:
    """Event Stream Extensions, 5.2.2."""
    return [{"name": "amqp:event-streams-sql-filter", "descriptor": descriptor, "value": text}]


def sql(text: str, descriptor: int | str = 0x120) -> list[dict[str, Any]]:
    """AMQP Filter Expressions, section 6."""
    return [{"name": "amqp:sql-filter", "descriptor": descriptor, "value": text}]


def selector(text: str, descriptor: int | str = 0x468C_0000_0004) -> list[dict[str, Any]]:
    """Apache's selector."""
    return [{"name": "apache.org:selector-filter:string", "descriptor": descriptor, "value": text}]


def query(text: str) -> list[dict[str, Any]]:
    """Our own: a query that the log's index answers."""
    return [{"name": "headwater:query-filter", "descriptor": "headwater:query-filter", "value": text}]
