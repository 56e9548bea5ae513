"""A read over HTTP: NDJSON, decoded piece by piece, so that a read of any length takes constant memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.event import SequencedEvent
from ..core.query import Query
from ..formats import envelope
from . import wire
from .connection import ConnectionLost
from .transport import PASSING, Attempts, Stream, Transport


class RemoteReading:
    """A `core.Reading`. If the connection breaks in the middle, it goes on where it was, up to the same head."""

    def __init__(
        self,
        transport: Transport,
        log: str,
        query: Query,
        from_: int | None = None,
        after: int | None = None,
        backwards: bool = False,
        limit: int | None = None,
        partition: int | None = None,
    ) -> None:
        self._transport, self._log = transport, log
        self._query, self._from, self._after = query, from_, after
        self._backwards, self._left, self._partition = backwards, limit, partition
        self._attempts = Attempts(transport)
        self._stream = self._opened()
        self.head = self._stream.number(b"headwater-head")
        """The number of the last durable event when the read began."""
        self._page: Iterator[SequencedEvent] = iter(())
        self._cut_line = b""

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self

    def __next__(self) -> SequencedEvent:
        event = next(self._page, None)
        if event is None:
            self._page = iter(self.next_page())
            event = next(self._page)
        return event

    def next_page(self) -> Sequence[SequencedEvent]:
        """The events that came next, as many as came at once; empty at the end."""
        while True:
            try:
                lines = self._next_lines()
            except OSError as error:
                self._stream.close()
                self._attempts.failed(error)
                self._cut_line = b""
                self._stream = self._opened()
                continue
            if not lines:
                return ()
            self._attempts.succeeded()
            if events := self._taken(envelope.decode_events(lines)):
                return events

    def close(self) -> None:
        """Read no further. Not needed after the last event."""
        self._stream.close()

    def _opened(self) -> Stream:
        body = wire.read_body(self._query, self._from, self._after, self._backwards, self._left, self._partition)
        while True:
            try:
                path = f"/logs/{self._log}/read"
                return self._transport.open("POST", path, body, log=self._log, accept="application/x-ndjson")
            except PASSING as error:
                self._attempts.failed(error)

    def _next_lines(self) -> bytes:
        """Whole lines; empty at the end."""
        while piece := self._stream.read():
            text = self._cut_line + piece
            end = text.rfind(b"\n") + 1
            self._cut_line = text[end:]
            if end:
                return text[:end]
        if self._cut_line:
            raise ConnectionLost("the answer ends in the middle of an event")
        return b""

    def _taken(self, events: list[SequencedEvent]) -> list[SequencedEvent]:
        """Note where to go on; leave out what was appended since the read began (seen only after a reconnection)."""
        if not self._backwards and events[-1].sequence_number > self.head:
            events = [event for event in events if event.sequence_number <= self.head]
        if events:
            self._from, self._after = None, events[-1].sequence_number
            self._left = None if self._left is None else self._left - len(events)
        return events
