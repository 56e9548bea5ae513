"""Messages as filters see them, and short ways to ask a filter about one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater.amqp.filters import InvalidFilter, SourceFilter, format_offset, source_filter
from headwater.amqp.protocol.types import Described, Symbol, Timestamp, UByte, UInt, ULong

SQL = ULong(0x120)
EVENT_STREAMS_SQL = ULong(0x201)
SELECTOR = ULong(0x0000_468C_0000_0004)
NAME = Symbol("my-filter")
HEAD = 100
"""The head when the links of these tests attach."""
NOW = 1_750_000_000_000
"""The time of their clock."""
HEADER_DEFAULTS = {"durable": False, "priority": UByte(4), "first-acquirer": False, "delivery-count": UInt(0)}


class Message:
    """A message by its sections; the number of its event and when that was recorded are its delivery annotations."""

    def __init__(
        self,
        application_properties: Mapping[Any, object] | None = None,
        *,
        header: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
        message_annotations: Mapping[Any, object] | None = None,
        delivery_annotations: Mapping[Any, object] | None = None,
        footer: Mapping[Any, object] | None = None,
        number: int = 17,
        recorded_at: int = 1_000,
    ) -> None:
        self._application_properties = application_properties or {}
        self._header = HEADER_DEFAULTS | dict(header or {})
        self._properties = properties or {}
        self._message_annotations = message_annotations or {}
        self._delivery_annotations = {
            Symbol("event-streams-offset"): format_offset(number),
            Symbol("event-streams-timestamp"): Timestamp(recorded_at),
            **(delivery_annotations or {}),
        }
        self._footer = footer or {}

    def header(self) -> Mapping[str, object]:
        return self._header

    def properties(self) -> Mapping[str, object]:
        return self._properties

    def delivery_annotations(self) -> Mapping[Any, object]:
        return self._delivery_annotations

    def message_annotations(self) -> Mapping[Any, object]:
        return self._message_annotations

    def application_properties(self) -> Mapping[Any, object]:
        return self._application_properties

    def footer(self) -> Mapping[Any, object]:
        return self._footer


def described(descriptor: object, value: object) -> Described:
    """A filter; a plain number becomes the ulong that it is on the wire."""
    return Described(ULong(descriptor) if type(descriptor) is int else descriptor, value)


def filter_of(*filters: object) -> SourceFilter:
    """The source filter of these described filters together."""
    names = [NAME, *[Symbol(f"{NAME}-{number}") for number in range(2, len(filters) + 1)]]
    return source_filter(dict(zip(names, filters, strict=False)), latest=HEAD, now=lambda: NOW)


def passes(given: SourceFilter, message: Message, number: int = 17, recorded_at: int = 1_000) -> bool:
    """Whether a message of that event passes all of a source filter but its query."""
    return (
        given.after < number
        and (given.upto is None or number <= given.upto)
        and (given.recorded_from is None or given.recorded_from <= recorded_at)
        and (given.matches is None or given.matches(message))
    )


def sql(text: str, **fields: object) -> bool:
    """Whether the SQL filter passes a message with these application properties."""
    return sql_of(text, Message(fields))


def sql_of(text: str, message: Message) -> bool:
    """Whether the SQL filter passes a message."""
    return passes(filter_of(described(SQL, text)), message)


def selector(text: str, message: Message | None = None, **fields: object) -> bool:
    """Whether the message selector passes a message."""
    return passes(filter_of(described(SELECTOR, text)), message or Message(fields))


def value_of(text: str, **fields: object) -> str:
    """Whether a predicate is true, false or unknown."""
    if sql(text, **fields):
        return "true"
    return "false" if sql(f"NOT ({text})", **fields) else "unknown"


def refusal(*filters: object) -> InvalidFilter:
    """The error with which these filters are refused."""
    with pytest.raises(InvalidFilter) as caught:
        filter_of(*filters)
    return caught.value
