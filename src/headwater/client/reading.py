"""A read over HTTP: pages of MessagePack, decoded as they come, so that a read of any length takes constant memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.errors import InvalidInput
from ..core.event import SequencedEvent
from ..core.limits import SEQUENCE_NUMBER_MAX
from ..formats.packed import MEDIA_TYPE, PageParser
from . import wire
from .connection import ConnectionLost
from .problems import UnexpectedAnswer
from .transport import PASSING, Stream, Transport


class RemoteReading:
    """A `core.Reading`. If the connection breaks in the middle, it goes on where it was, up to the same head."""

    def __init__(self, transport: Transport, log: str, asked: wire.ReadBody) -> None:
        """`asked` becomes what is left to read."""
        self._transport, self._log, self._asked = transport, log, asked
        self._attempts = transport.attempts()
        self._stream = self._opened()
        self.head = self._stream.number(b"headwater-head")
        """The number of the last durable event when the read began."""
        if asked.backwards:
            self._begin_at_head()
        self._parser = PageParser()
        self._page: Iterator[SequencedEvent] = iter(())

    def __iter__(self) -> Iterator[SequencedEvent]:
        while True:
            yield from self._page
            if not (events := self.next_page()):
                return
            self._page = iter(events)

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
                events = self._received()
            except OSError as error:
                self._stream.close()
                self._attempts.failed(self._transport.known(error))
                self._parser = PageParser()
                self._stream = self._opened()
                continue
            if not events:
                return ()
            self._attempts.succeeded()
            if events := self._taken(events):
                return events

    def close(self) -> None:
        """Read no further. Not needed after the last event."""
        self._stream.close()

    def _begin_at_head(self) -> None:
        """Whatever is asked for again lies below the head of the first answer, which may have grown since."""
        asked = self._asked
        above = asked.after if asked.from_ is None else asked.from_ + 1
        if self.head < SEQUENCE_NUMBER_MAX and (above is None or above > self.head + 1):
            asked.from_, asked.after = None, self.head + 1

    def _opened(self) -> Stream:
        body = wire.encode(self._asked)
        while True:
            try:
                path = f"/logs/{self._log}/read"
                return self._transport.open("POST", path, body, log=self._log, accept=MEDIA_TYPE)
            except PASSING as error:
                self._attempts.failed(self._transport.known(error))

    def _received(self) -> list[SequencedEvent]:
        """The events of whole pages; none at the end."""
        while piece := self._stream.read():
            try:
                events = self._parser.receive_data(piece)
            except InvalidInput as error:
                self._stream.close()
                raise UnexpectedAnswer(self._stream.status, error.problem) from None
            if events:
                return events
        if not self._parser.is_between_pages:
            raise ConnectionLost("the answer ends in the middle of a page")
        return []

    def _taken(self, events: list[SequencedEvent]) -> list[SequencedEvent]:
        """Note where to go on; leave out what was appended since the read began (seen only after a reconnection)."""
        if not self._asked.backwards and events[-1].sequence_number > self.head:
            events = [event for event in events if event.sequence_number <= self.head]
        if events:
            asked = self._asked
            asked.from_, asked.after = None, events[-1].sequence_number
            asked.limit = None if asked.limit is None else asked.limit - len(events)
        return events
