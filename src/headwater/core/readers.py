"""Who is sent the events of a log at this moment, by protocols that have no links: subscriptions, pushes.

Rooms keep what is here up to date, once for each batch that they send; it is looked at when an operator asks.
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
    """What must come before a reader is sent more."""

    EVENTS = "events"
    """It has been sent all there is."""
    READING = "reading"
    """It has not taken what was sent."""
    ANSWERS = "answers"
    """It has not answered what was sent."""


class Reader:
    """One of them. Its room calls it on the event loop."""

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
        """`end` is called, on the loop, with the reason for which it is to end, which its peer is told."""
        self.protocol, self.log, self.end = protocol, log, end
        self.user, self.peer, self.component, self.partition = user, peer, component, partition
        self.wants = None if wants is None else cut(wants, WANTS_CHARS_MAX)
        self.position = position
        """Up to this number it was sent what it wants; None: not known."""
        self.events = 0
        self.started_at = self.waits_since = time.time_ns() // 1_000_000
        self.sent_at: int | None = None
        self.waits_for = Waiting.EVENTS

    def waits(self, waits_for: Waiting) -> None:
        """From now on it waits for that."""
        self.waits_for, self.waits_since = waits_for, time.time_ns() // 1_000_000

    def sent(self, position: int | None, events: int) -> None:
        """So many events were sent, and all that it wants up to that number."""
        self.position = position
        if events:
            self.events += events
            self.sent_at = time.time_ns() // 1_000_000


class Readers:
    """Those of one server, on one event loop."""

    def __init__(self) -> None:
        self._by_number: dict[int, Reader] = {}
        self._counted = 0

    @property
    def by_number(self) -> Mapping[int, Reader]:
        """By what the server calls them, in the order in which they came; a view."""
        return MappingProxyType(self._by_number)

    def add(self, reader: Reader) -> Callable[[], None]:
        """One more, until what is answered is called; once or more often."""
        self._counted += 1
        number = self._counted
        self._by_number[number] = reader
        return lambda: self._remove(number)

    @contextmanager
    def having(self, reader: Reader) -> Iterator[Reader]:
        """One more, as long as the block runs."""
        remove = self.add(reader)
        try:
            yield reader
        finally:
            remove()

    def _remove(self, number: int) -> None:
        self._by_number.pop(number, None)
