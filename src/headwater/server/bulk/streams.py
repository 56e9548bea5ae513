"""Streams of the bulk process to its readers: reports to the server, and streams that it wants to end.

A stream that ends within a second is reported once, with its number of events. Longer ones are reported every second
while they progress; stalled ones are reported at the next check.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque

import msgspec

from ...core.quoting import cut
from ...core.readers import WANTS_CHARS_MAX
from ...flight.server import backend
from ...flight.wire import Ticket
from .link import Link

TELL_S = 1.0
"""The minimum time between two reports of one running stream."""


class About(msgspec.Struct, frozen=True, array_like=True):
    """The reader, and what it is reading."""

    user: str
    peer: str
    log: str
    wants: str | None
    """The query, as text."""
    partition: int | None


class Sending(backend.Sending):
    """One stream."""

    def __init__(self, sendings: Sendings, number: int, user: str, peer: str, ticket: Ticket) -> None:
        self._sendings, self.number = sendings, number
        self._user, self._peer, self._ticket = user, peer, ticket
        self._is_over = False
        self.untold = 0
        """Events not reported yet."""
        self.told_at = time.monotonic()
        self.is_told = False
        """Whether the server knows about the stream."""
        self.end_reason: str | None = None

    def sent(self, events: int) -> None:
        self._sendings.add(self, events)

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._sendings.over(self)

    def forget(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._sendings.forgotten.append(self)

    def about(self) -> About:
        """The reader, and what it is reading."""
        ticket, query = self._ticket, self._ticket.query
        text = query if query is None or isinstance(query, str) else msgspec.json.encode(query).decode()
        wants = None if text is None else cut(text, WANTS_CHARS_MAX)
        return About(self._user, self._peer, ticket.log, wants, ticket.partition)


class Sendings:
    """All streams of one process. Any thread may call it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._active: dict[int, Sending] = {}
        self.forgotten: deque[Sending] = deque()
        """Streams whose reader left, which must be reported."""

    def begin(self, user: str, peer: str, ticket: Ticket) -> Sending:
        """Begin a stream."""
        sending = Sending(self, next(self._numbers), user, peer, ticket)
        with self._lock:
            self._active[sending.number] = sending
        return sending

    def add(self, sending: Sending, events: int) -> None:
        """Count sent events, and report them if it is time."""
        with self._lock:
            sending.untold += events
        if time.monotonic() - sending.told_at >= TELL_S:
            self._tell(sending, is_end=False)

    def over(self, sending: Sending) -> None:
        """Record the end of the stream."""
        with self._lock:
            self._active.pop(sending.number, None)
        self._tell(sending, is_end=True)

    def look(self) -> None:
        """Report streams whose readers left, and streams that the server does not know about yet."""
        while self.forgotten:
            self.over(self.forgotten.popleft())
        now = time.monotonic()
        with self._lock:
            found = [each for each in self._active.values() if not each.is_told and now - each.told_at >= TELL_S]
        for sending in found:
            self._tell(sending, is_end=False)

    def end(self, number: int, reason: str) -> None:
        """End a stream at its next batch, because the server has requested it."""
        with self._lock:
            sending = self._active.get(number)
        if sending is not None:
            sending.end_reason = reason

    def _tell(self, sending: Sending, *, is_end: bool) -> None:
        """Report to the server. The first report of a running stream identifies the reader."""
        with self._lock:
            events, sending.untold, sending.told_at = sending.untold, 0, time.monotonic()
            about = None if is_end or sending.is_told else sending.about()
            is_news = bool(events) or about is not None or sending.is_told
            sending.is_told = sending.is_told or not is_end
        if is_news:
            self._link.tell("sent", sending.number, events, is_end, about)
