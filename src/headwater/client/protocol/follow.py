"""The state of a subscription: its cursor, its next request, and the events of its stream. No I/O.

It catches up by reads, a page each, and follows by Server-Sent Events. It restarts at its cursor when the connection
breaks, or when the stream is ahead of it: if you leave an iteration in the middle of a piece, you find the rest when
you return.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...core.event import SequencedEvent
from ...core.log import PAGE_EVENTS
from ...core.query import Query
from ...formats import envelope
from ...formats.clients.answer import Answer
from . import wire
from .identity import check_same, incarnation_of
from .pages import PagedRead
from .problems import UnexpectedAnswer, another_form, check_uncoded
from .request import Request
from .routes import EVENT_STREAM, LogRoutes
from .terms import ConnectionLost

HEARTBEAT_S = 15.0
"""How often a server sends a heartbeat, in seconds, unless asked for another interval."""
HEARTBEAT_S_MIN = 1.0
"""The shortest interval to request. In a busy log, a server reports its position once a second."""
HEARTBEATS = 3
"""A stream is silent after this many heartbeat intervals without one, or after its client's timeout."""
UNASKED_SILENCE_S = 20.0
"""The silence limit if the interval may not have reached the server: one default heartbeat interval and a margin."""


class Message(NamedTuple):
    """One block of the stream. A block without data only reports how far the cursor moved."""

    id: int | None
    data: bytes


class HeartbeatMissing(ConnectionLost):
    """A stream delivers neither events nor heartbeats, because it is dead or a proxy buffers it."""


class EventStreamParser:
    """Cuts Server-Sent Events (HTML Living Standard, 9.2) into messages; a block may arrive in any number of pieces.

    Every line ends in a line feed and no message has several lines of data, because the server writes them so.
    """

    def __init__(self) -> None:
        self._cut_block = b""

    def receive_data(self, piece: bytes) -> list[Message]:
        """The messages completed so far."""
        *blocks, self._cut_block = (self._cut_block + piece).split(b"\n\n")
        return [_message(block) for block in blocks]

    @property
    def is_within_data(self) -> bool:
        """Whether the last byte is within a line of data."""
        return self._cut_block.startswith(b"data:", self._cut_block.rfind(b"\n") + 1)


def _message(block: bytes) -> Message:
    id, data = None, b""
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data = value
        elif name == b"id" and value.isdigit():
            id = int(value)
    return Message(id, data)


class Follower:
    """The requests of a subscription, given its cursor, which its owner keeps."""

    def __init__(
        self, routes: LogRoutes, query: Query, after: int | None, partition: int | None, timeout_s: float
    ) -> None:
        """An answer is awaited for `timeout_s`. If that is short, it requests more frequent heartbeats."""
        self._routes, self._query, self._partition = routes, query, partition
        self._starts_anywhere = after is None
        self._reached = after or 0
        """The cursor after the last piece. If the owner's cursor differs, an iteration was left there."""
        self._parser = EventStreamParser()
        self._checked: PagedRead | None = None
        self._heartbeat_s = max(HEARTBEAT_S_MIN, min(HEARTBEAT_S, timeout_s / HEARTBEATS))
        self.silence_s = max(timeout_s, HEARTBEATS * self._heartbeat_s)
        """Give up a stream after this many seconds without data."""
        self.has_spoken = self.has_moved = self.is_alive = False
        """Whether the stream delivered anything complete; whether its last piece had a number, of an event or
        heartbeat; whether it was a sign of life: a number, or unfinished data. Comments do not count, proxies send them
        too.
        """

    def is_ahead(self, cursor: int) -> bool:
        """Whether more was received than returned, so that the stream must restart."""
        return self._reached != cursor

    def check(self) -> PagedRead:
        """An empty read that checks the position and the query."""
        self._checked = self._read(self._reached, 0)
        return self._checked

    def catch_up(self, cursor: int) -> PagedRead:
        """The read of the next page."""
        return self._read(cursor, PAGE_EVENTS)

    def caught_up(self, cursor: int, events: Sequence[SequencedEvent], head: int) -> int:
        """The cursor after that read, calculated from its events."""
        seen = events[-1].sequence_number if len(events) == PAGE_EVENTS else head
        self._reached = max(cursor, seen)
        return self._reached

    def follow(self, cursor: int) -> Request[None]:
        """The request for the stream of later events."""
        self._parser, self.has_spoken, self.has_moved = EventStreamParser(), False, False
        heartbeat_s = self._heartbeat_s if self._heartbeat_s < HEARTBEAT_S else None
        return self._routes.subscribe(self._query, cursor, self._partition, heartbeat_s)

    def may_wait_longer(self) -> bool:
        """Whether to wait longer for the next stream after a silent one, because a proxy may not have passed on the
        heartbeat interval. Once.
        """
        is_short = self.silence_s < UNASKED_SILENCE_S
        self.silence_s = max(self.silence_s, UNASKED_SILENCE_S)
        return is_short

    def begin(self, answer: Answer) -> None:
        """Process the head of the stream. Raises PositionOfOtherIncarnation, UnexpectedAnswer, and ConnectionLost for
        another media type, which a proxy must have sent."""
        check_uncoded(EVENT_STREAM, answer)
        came = answer.fields.get(b"content-type", b"")
        if came.partition(b";")[0].strip().lower() != EVENT_STREAM.encode():
            raise ConnectionLost(str(UnexpectedAnswer(answer.status, another_form(EVENT_STREAM, came, b""))))
        check_same(self._routes.name, self._reached, self._incarnation, incarnation_of(answer))

    def receive_data(self, cursor: int, piece: bytes) -> tuple[int, Sequence[SequencedEvent]]:
        """Process data of the stream. Returns the cursor after it, and the events in it."""
        messages = self._parser.receive_data(piece)
        texts = [message.data for message in messages if message.data and (message.id or 0) > cursor]
        numbers = [message.id for message in messages if message.id is not None]
        self.has_spoken, self.has_moved = self.has_spoken or bool(messages), bool(numbers)
        self.is_alive = self.has_moved or self._parser.is_within_data
        self._reached = max([cursor, *numbers])
        return self._reached, [envelope.decode_event(text) for text in texts]

    def _read(self, cursor: int, limit: int) -> PagedRead:
        after = None if self._starts_anywhere and cursor == 0 else cursor
        asked = wire.ReadBody(wire.query_json(self._query), after=after, limit=limit, partition=self._partition)
        return PagedRead(self._routes, asked, self._incarnation)

    @property
    def _incarnation(self) -> str | None:
        """The incarnation of the log at the start."""
        return None if self._checked is None else self._checked.incarnation
