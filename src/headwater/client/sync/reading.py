"""A read over HTTP by a thread: pages, decoded as they come, so that a read of any length takes constant memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.errors import EventLogError
from ...core.event import SequencedEvent
from ...formats.retrying import Attempts
from ..pages import PagedRead
from ..terms import PASSING, ConnectionLost
from .transport import Stream, Transport

_NO_PAGE: Iterator[SequencedEvent] = iter(())


class RemoteReading:
    """A `core.Reading`. If the connection breaks in the middle, it goes on where it was, up to the same head."""

    def __init__(self, transport: Transport, read: PagedRead) -> None:
        self._transport, self._read = transport, read
        self._attempts: Attempts | None = None
        self._stream = self._opened()
        assert read.head is not None, "the answer has begun"
        self.head = read.head
        """The number of the last durable event when the read began."""
        self._page: Iterator[SequencedEvent] = _NO_PAGE
        self._is_last = False
        """Whether nothing follows the page."""

    def __iter__(self) -> Iterator[SequencedEvent]:
        if self._page is _NO_PAGE:
            self._page = iter(self.next_page())
        return self._page if self._is_last else self._events()

    def _events(self) -> Iterator[SequencedEvent]:
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
                while piece := self._stream.read():
                    if events := self._read.receive_data(piece):
                        if self._attempts is not None:
                            self._attempts.succeeded()
                        self._is_last = self._stream.is_over and self._read.is_between_pages
                        return events
                if not self._read.is_between_pages:
                    raise ConnectionLost("the answer ends in the middle of a page")
            except OSError as error:
                self._stream.give_up(error)
                self._wait_after(error)
                self._stream = self._opened()
            except BaseException:
                self._stream.close()
                raise
            else:
                self._is_last = True
                return ()

    def close(self) -> None:
        """Read no further. Not needed after the last event."""
        self._stream.close()

    def _opened(self) -> Stream:
        while True:
            try:
                return self._begun(self._transport.open(self._read.request()))
            except PASSING as error:
                self._wait_after(error)

    def _begun(self, stream: Stream) -> Stream:
        try:
            self._read.begin(stream.answer)
        except OSError as error:
            stream.give_up(error)
            raise
        except BaseException:
            stream.close()
            raise
        return stream

    def _wait_after(self, error: OSError | EventLogError) -> None:
        if self._attempts is None:
            self._attempts = self._transport.terms.attempts()
        self._transport.wait_after(self._attempts, error)
