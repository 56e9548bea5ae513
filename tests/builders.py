"""Small builders and checks that the tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from headwater.core import AppendCondition, Event, EventLog, Query, SequencedEvent
from headwater.core.errors import EventLogError

_E = TypeVar("_E", Event, SequencedEvent)


def event(type: str = "OrderPlaced", *tags: str, data: bytes = b"", **fields: Any) -> Event:
    """An event of that type with those tags."""
    return Event(type, data, tags, **fields)


WHOLE_MESSAGE = b"\0Sw@"
"""A message whose body is null."""


def around(data: bytes) -> bytes:
    """The envelope of a message that has no more than these data."""
    return b"\0Su\xb0" + len(data).to_bytes(4)


def as_message(given: _E) -> _E:
    """The event, with a message that every receiver can decode where it is one."""
    if given.encoding:
        return given._replace(data=b"\0Sw\xb0" + len(given.data).to_bytes(4) + given.data, envelope=b"")
    return given._replace(envelope=around(given.data)) if given.envelope else given


def fill(log: EventLog, count: int, *tags: str) -> None:
    """Append so many events `E1`, `E2`, ..., each by a call of its own."""
    for number in range(1, count + 1):
        log.append([event(f"E{number}", *tags)])


def unless(*, types: Iterable[str] = (), tags: Iterable[str] = (), after: int = 0, **more: Any) -> AppendCondition:
    """The condition that nothing of these types and tags comes after that number."""
    return AppendCondition(Query.where(types=tuple(types), tags=tuple(tags)), after, **more)


def numbers(events: Iterable[SequencedEvent]) -> list[int]:
    """The sequence numbers of events."""
    return [each.sequence_number for each in events]


def answer_of(error: EventLogError) -> tuple[object, ...]:
    """All that an error says: its type, its data and its message."""
    return type(error), vars(error), str(error)


@contextmanager
def refusal(expected: EventLogError) -> Iterator[None]:
    """The block must raise just this error, with the same data and message."""
    with pytest.raises(type(expected)) as caught:
        yield
    assert answer_of(caught.value) == answer_of(expected)
