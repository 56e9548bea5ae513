"""Events: what a producer gives (`Event`) and what a reader gets (`SequencedEvent`).

Both are named tuples: a scan makes a million of them a second, and a named tuple is the one immutable record that
Python builds from columns at that speed. Checking lives in `limits`, not here, so that a stored event is never
checked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})
"""The attributes of an event that has none (shared, immutable)."""


class Encoding(IntEnum):
    """What `data` holds.

    `DATA`: the payload. If `envelope` is not empty, envelope + data is the AMQP message as it was received, without its
    delivery annotations.
    `AMQP`: such a message, whole, whose body is not a single data section.
    """

    DATA = 0
    AMQP = 1


class Event(NamedTuple):
    """An event as a producer gives it. The log checks it against `core.limits` when it is appended."""

    type: str
    """What happened: 1 to 200 characters, no control characters."""
    data: bytes = b""
    """The payload, opaque."""
    tags: tuple[str, ...] = ()
    """Each any text of 1 to 1,100 bytes without control characters, such as `key:value`; the log sorts them and drops
    repeats."""
    id: str = ""
    """Unique in the log together with `source`; empty = the log gives a UUIDv7."""
    source: str = ""
    """The CloudEvents source (URI reference), or empty."""
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    """The other CloudEvents context attributes, by name, in their canonical string form."""
    group_key: str = ""
    """Partitioning key: events with one key share a partition. Empty = none."""
    envelope: bytes = b""
    """The sections of an AMQP message that come before `data` (see `Encoding`)."""
    encoding: Encoding = Encoding.DATA


class SequencedEvent(NamedTuple):
    """An event as the log keeps it: the producer's fields, and what the log added (the first three)."""

    sequence_number: int
    """From 1 to 10**18 - 1, unique in the log, in commit order. There may be gaps."""
    recorded_at: int
    """When the log took it, in ms since 1970 UTC. Never goes back along the log."""
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
        """The producer's part, ready to be appended elsewhere (same id, same source)."""
        return Event(*self[3:])


class _FromTuple(tuple[Any, ...]):
    """Made as a tuple is, by no function of Python's: that takes half the time."""

    __slots__ = ()
    __new__ = tuple.__new__


class _Decoded(_FromTuple, SequencedEvent):
    """A SequencedEvent in all but how it is made; copied and pickled, it is one."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[SequencedEvent], tuple[Any, ...]]:
        return SequencedEvent, tuple(self)


_Decoded.__name__, _Decoded.__qualname__ = SequencedEvent.__name__, SequencedEvent.__qualname__
sequenced: Callable[[tuple[Any, ...]], SequencedEvent] = _Decoded
"""The event with these twelve fields, in their order: for whoever decodes a million of them a second."""


def tag_key(tag: str) -> str:
    """The key of a tag: all before the first colon (which may be nothing), or the whole tag where there is none."""
    return tag.partition(":")[0]
