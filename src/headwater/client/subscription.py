"""A subscription over HTTP: it catches up by reads, a page each, and follows by Server-Sent Events.

It holds a cursor, and begins again at its cursor whenever the connection breaks, and where the stream is ahead of it:
whoever leaves an iteration in the middle of what came in one piece finds the rest when they return.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from urllib.parse import urlencode

from ..core.errors import LogNotFound
from ..core.event import SequencedEvent
from ..core.log import PAGE_EVENTS
from ..core.query import Query
from ..core.subscription import Subscription
from ..formats import envelope
from . import wire
from .connection import ConnectionLost
from .eventstream import EventStreamParser
from .reading import RemoteReading
from .transport import PASSING, Stream, Transport


class RemoteSubscription(Subscription):
    """A `core.Subscription`. Raises PositionTrimmed where a trim overtook its cursor, so that nothing is skipped."""

    def __init__(
        self, transport: Transport, log: str, query: Query, after: int | None = None, partition: int | None = None
    ) -> None:
        super().__init__(after or 0)
        self._transport, self._log = transport, log
        self._query, self._partition = query, partition
        self._starts_anywhere = after is None
        self._stream: Stream | None = None
        self._reached = self.cursor
        """The cursor as the last piece left it: another one is where an iteration over it was left."""
        self._parser = EventStreamParser()
        self._closing = threading.Event()
        self._attempts = transport.attempts(self._closing.wait)
        self._read(limit=0)  # what is wrong with the position or the query is said now

    def close(self) -> None:
        """End it, from any thread: a waiting iteration stops."""
        super().close()
        self._closing.set()
        self._drop_stream()

    def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_closed:
            try:
                return self._catch_up_or_follow(deadline)
            except LogNotFound:
                break  # it was deleted: nothing follows any more
            except PASSING as error:
                self._drop_stream()
                if not self.is_closed:
                    self._attempts.failed(self._transport.known(error))
        return None

    def _catch_up_or_follow(self, deadline: float | None) -> Sequence[SequencedEvent]:
        if self._reached != self.cursor:  # the stream is past what was given out
            self._drop_stream()
        if self._stream is None:
            if (events := self._catch_up()) or _left_s(deadline) == 0:
                return events
            self._follow()
        try:
            return self._await_events(deadline)
        except TimeoutError:
            return self._catch_up()  # what is durable by now is seen, though the stream may not have brought it yet

    def _catch_up(self) -> Sequence[SequencedEvent]:
        reading = self._read(limit=PAGE_EVENTS)
        events = list(reading)
        self._attempts.succeeded()
        seen = events[-1].sequence_number if len(events) == PAGE_EVENTS else reading.head
        self.cursor = self._reached = max(self.cursor, seen)
        return events

    def _read(self, limit: int) -> RemoteReading:
        after = None if self._starts_anywhere and self.cursor == 0 else self.cursor
        asked = wire.ReadBody(wire.query_json(self._query), after=after, limit=limit, partition=self._partition)
        return RemoteReading(self._transport, self._log, asked)

    def _follow(self) -> None:
        options = {"query": wire.encode(wire.query_json(self._query)).decode(), "after": str(self.cursor)}
        if self._partition is not None:
            options["partition"] = str(self._partition)
        path = f"/logs/{self._log}/subscribe?{urlencode(options)}"
        self._stream = self._transport.open("GET", path, log=self._log, accept="text/event-stream")
        self._parser = EventStreamParser()
        self._attempts.succeeded()
        if self.is_closed:  # by another thread, meanwhile
            self._drop_stream()

    def _await_events(self, deadline: float | None) -> Sequence[SequencedEvent]:
        """The events of the stream that come next. Raises TimeoutError at the deadline, ConnectionLost at its end."""
        while (stream := self._stream) is not None:
            try:
                piece = stream.read(_left_s(deadline))
            except TimeoutError:
                if deadline is None:  # no heartbeat either: the connection is dead
                    raise ConnectionLost("the subscription timed out: no event and no heartbeat came") from None
                raise
            if not piece:
                break
            messages = self._parser.receive_data(piece)
            texts = [message.data for message in messages if message.data and (message.id or 0) > self.cursor]
            self.cursor = max([self.cursor, *(message.id for message in messages if message.id is not None)])
            self._reached = self.cursor
            if texts:
                return [envelope.decode_event(text) for text in texts]
        raise ConnectionLost("the subscription ended")

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
