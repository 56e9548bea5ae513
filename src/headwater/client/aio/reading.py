"""A read over HTTP by a task: pages are decoded as they arrive, so any read takes constant memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ...core.errors import EventLogError
from ...core.event import SequencedEvent
from ...formats.clients.retry import Attempts
from ..protocol.pages import PagedRead
from ..protocol.request import UnderWay
from ..protocol.terms import PASSING
from .primitives import Pages
from .transport import Stream, Transport


class RemoteReading(Pages):
    """Iterate it for the events. If the connection breaks, it resumes there, up to the same head.

    It also resumes if you continue after an error: only `close` and the last event end it.
    """

    def __init__(self, transport: Transport, read: PagedRead) -> None:
        """Call `begin` before use."""
        self._transport, self._read = transport, read
        self._attempts: Attempts | None = None
        self._stream: Stream | None = None
        self._under_way = UnderWay()
        self._is_over = False
        self.head = 0
        """The number of the last durable event when the read began."""

    async def begin(self) -> Self:
        """Send the request. Raises the same errors as `core.EventLog.read`."""
        self._stream = await self._opened()
        assert self._read.head is not None, "the answer has begun"
        self.head = self._read.head
        return self

    async def next_page(self) -> Sequence[SequencedEvent]:
        """The next events, as many as arrived at once; empty at the end."""
        while not self._is_over:
            try:
                stream = self._stream = self._stream or await self._opened()
                while not self._is_over and (piece := await stream.read()):
                    events = self._read.receive_data(piece)
                    self._is_over = self._is_over or self._read.has_ended
                    if events:
                        if self._attempts is not None:
                            self._attempts.succeeded()
                        if self._is_over:
                            self._drop_stream()
                        return events
                self._is_over = self._is_over or self._read.receive_end()
                self._drop_stream()
            except PASSING as error:
                broken, self._stream = self._stream, None
                if broken is not None:  # otherwise it was closed in the meantime
                    broken.give_up(error)
                    await self._wait_after(error)
                elif not self._is_over:
                    raise
            except BaseException:
                self._drop_stream()
                raise
        self._drop_stream()  # the read was closed while it connected
        return ()

    @property
    def has_waited(self) -> bool:
        """Whether the server was unreachable or busy for a while."""
        return self._attempts is not None

    async def rest(self) -> list[SequencedEvent]:
        """All events not read yet."""
        events = list(self._page)
        while page := await self.next_page():
            events += page
        return events

    def close(self) -> None:
        """Stop reading. Not needed after the last event."""
        self._is_over = True
        self._under_way.close()
        self._drop_stream()

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    async def _opened(self) -> Stream:
        """A streamed answer whose head has arrived. Raises one of PASSING if the read was closed in the meantime."""
        while True:
            try:
                stream = await self._transport.open(self._read.request(self._under_way))
                try:
                    self._read.begin(stream.answer)
                except OSError as error:
                    stream.give_up(error)
                    raise
                except BaseException:
                    stream.close()
                    raise
                return stream
            except PASSING as error:
                if not self._is_over:
                    await self._wait_after(error)
                if self._is_over:
                    raise

    async def _wait_after(self, error: OSError | EventLogError) -> None:
        if self._attempts is None:
            self._attempts = self._transport.terms.attempts()
        await self._transport.wait_after(self._attempts, error)
