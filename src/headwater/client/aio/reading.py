"""A read over HTTP by a task: pages, decoded as they come, so that a read of any length takes constant memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Self

from ...core.errors import EventLogError
from ...core.event import SequencedEvent
from ...formats.retrying import Attempts
from ..pages import PagedRead
from ..terms import PASSING, ConnectionLost
from .transport import Stream, Transport


class RemoteReading(AsyncIterator[SequencedEvent]):
    """Iterate it for the events. If the connection breaks in the middle, it goes on there, up to the same head."""

    def __init__(self, transport: Transport, read: PagedRead) -> None:
        """Of no use before `begin`."""
        self._transport, self._read = transport, read
        self._attempts: Attempts | None = None
        self._stream: Stream | None = None
        self._page: Iterator[SequencedEvent] = iter(())
        self.head = 0
        """The number of the last durable event when the read began."""

    async def begin(self) -> Self:
        """Ask the server. Raises as `core.EventLog.read`."""
        self._stream = await self._opened()
        assert self._read.head is not None, "the answer has begun"
        self.head = self._read.head
        return self

    async def __anext__(self) -> SequencedEvent:
        while True:
            for event in self._page:
                return event
            if not (events := await self.next_page()):
                raise StopAsyncIteration
            self._page = iter(events)

    async def next_page(self) -> Sequence[SequencedEvent]:
        """The events that came next, as many as came at once; empty at the end."""
        while (stream := self._stream) is not None:
            try:
                while piece := await stream.read():
                    if events := self._read.receive_data(piece):
                        if self._attempts is not None:
                            self._attempts.succeeded()
                        return events
                if self._read.is_between_pages:
                    return ()
                raise ConnectionLost("the answer ends in the middle of a page")
            except OSError as error:
                stream.give_up(error)
                await self._wait_after(error)
                self._stream = await self._opened()
            except BaseException:
                self.close()
                raise
        return ()

    async def rest(self) -> list[SequencedEvent]:
        """All events that were not read yet."""
        events = list(self._page)
        while page := await self.next_page():
            events += page
        return events

    def close(self) -> None:
        """Read no further. Not needed after the last event."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    async def _opened(self) -> Stream:
        while True:
            try:
                return self._begun(await self._transport.open(self._read.request()))
            except PASSING as error:
                await self._wait_after(error)

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

    async def _wait_after(self, error: OSError | EventLogError) -> None:
        if self._attempts is None:
            self._attempts = self._transport.terms.attempts()
        await self._transport.wait_after(self._attempts, error)
