"""Readers that currently receive the events of a log over protocols without links: subscriptions and pushes.

Their components update this list once per batch that they send; operators read it on demand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from types import MappingProxyType

from .local import LocalLog
from .quoting import cut

WANTS_CHARS_MAX = 1024


class Waiting(StrEnum):
    """What a reader waits for before it is sent more."""

    EVENTS = "events"
    """It has been sent all events so far."""
    READING = "reading"
    """It has not yet read what was sent."""
    ANSWERS = "answers"
    """It has not yet answered what was sent."""


class Reader:
    """One reader. Its component calls it on the event loop."""

    def __init__(
        self,
        protocol: str,
        log: LocalLog,
        end: Callable[[str], None],
        *,
        user: str = "",
        peer: tuple[str, int | None] = ("", None),
        wants: str | None = None,
        component: str | None = None,
        partition: int | None = None,
        position: int | None = 0,
    ) -> None:
        """`end` is called, on the loop, with the reason for ending the reader, which its peer gets."""
        self.protocol, self.log, self.end = protocol, log, end
        self.user, self.peer, self.component, self.partition = user, peer, component, partition
        self.wants = None if wants is None else cut(wants, WANTS_CHARS_MAX)
        self.position = position
        """All matching events up to this number were sent to it; None if not known."""
        self.events = 0
        self.started_at = self.waits_since = time.time_ns() // 1_000_000
        self.sent_at: int | None = None
        self.waits_for = Waiting.EVENTS

    def waits(self, waits_for: Waiting) -> None:
        """From now on it waits for `waits_for`."""
        self.waits_for, self.waits_since = waits_for, time.time_ns() // 1_000_000

    def sent(self, position: int | None, events: int) -> None:
        """`events` more events were sent, so it has received all matching events up to `position`."""
        self.position = position
        if events:
            self.events += events
            self.sent_at = time.time_ns() // 1_000_000


class Readers:
    """The readers of one server, on one event loop."""

    def __init__(self) -> None:
        self._by_number: dict[int, Reader] = {}
        self._counted = 0

    @property
    def by_number(self) -> Mapping[int, Reader]:
        """Readers by the server's number for them, in order of arrival; a view."""
        return MappingProxyType(self._by_number)

    def add(self, reader: Reader) -> Callable[[], None]:
        """Add a reader until the returned callable is called; it may be called more than once."""
        self._counted += 1
        number = self._counted
        self._by_number[number] = reader
        return lambda: self._remove(number)

    @contextmanager
    def having(self, reader: Reader) -> Iterator[Reader]:
        """Add a reader for the duration of the block."""
        remove = self.add(reader)
        try:
            yield reader
        finally:
            remove()

    def _remove(self, number: int) -> None:
        self._by_number.pop(number, None)
