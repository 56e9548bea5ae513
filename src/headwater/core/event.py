"""Events: what a producer passes (`Event`) and what a reader gets (`SequencedEvent`).

Both are named tuples: a scan creates a million of them per second, and only a named tuple is an immutable record that
Python builds from columns at that speed. `limits` does the checks, so that a stored event is never checked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})
"""The attributes of an event that has none (shared, immutable)."""


class Encoding(IntEnum):
    """What `data` contains.

    `DATA`: the payload. If `envelope` is not empty, envelope + data is the AMQP message as it was received, without
    its delivery annotations.
    `AMQP`: a whole AMQP message whose body is not a single data section.
    """

    DATA = 0
    AMQP = 1


class Event(NamedTuple):
    """An event as a producer passes it. The log checks it against `core.limits` when it is appended."""

    type: str
    """What happened: 1 to 200 characters, no control characters."""
    data: bytes = b""
    """The payload, opaque."""
    tags: tuple[str, ...] = ()
    """Each is any text of 1 to 1,100 bytes without control characters, such as `key:value`; the log sorts and
    deduplicates them."""
    id: str = ""
    """Unique in the log together with `source`; empty = the log assigns a UUIDv7."""
    source: str = ""
    """The CloudEvents source (URI reference), or empty."""
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    """The other CloudEvents context attributes, by name, in their canonical string form."""
    group_key: str = ""
    """Partitioning key: events with the same key share a partition. Empty = none."""
    envelope: bytes = b""
    """The sections of an AMQP message that precede `data` (see `Encoding`)."""
    encoding: Encoding = Encoding.DATA


class SequencedEvent(NamedTuple):
    """An event as the log stores it: the producer's fields, and those the log added (the first three)."""

    sequence_number: int
    """From 1 to 10**18 - 1, unique in the log, in commit order. There may be gaps."""
    recorded_at: int
    """When the log accepted it, in ms since 1970 UTC. Never decreases along the log."""
    partition: int
    type: str
    data: bytes
    tags: tuple[str, ...]
    id: str
    source: str
    attributes: Mapping[str, str]
    group_key: str
    envelope: bytes
    encoding: Encoding

    @property
    def event(self) -> Event:
        """The producer's part, ready to append elsewhere (same id, same source)."""
        return Event(*self[3:])


class _FromTuple(tuple[Any, ...]):
    """Created by `tuple` itself, without a Python function: this takes half the time."""

    __slots__ = ()
    __new__ = tuple.__new__


class _Decoded(_FromTuple, SequencedEvent):
    """A SequencedEvent that is created faster; a copied or pickled one is a plain SequencedEvent."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[SequencedEvent], tuple[Any, ...]]:
        return SequencedEvent, tuple(self)


_Decoded.__name__, _Decoded.__qualname__ = SequencedEvent.__name__, SequencedEvent.__qualname__
sequenced: Callable[[tuple[Any, ...]], SequencedEvent] = _Decoded
"""The event with these twelve fields, in order: for code that decodes a million events per second."""


def tag_key(tag: str) -> str:
    """The key of a tag: the text before the first colon (may be empty), or the whole tag if it has none."""
    return tag.partition(":")[0]
