"""A subscription over HTTP by a task: see `following`. What is received before it is asked for is bounded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Self

from ...core.errors import EventLogError, LogNotFound
from ...core.event import SequencedEvent
from ...core.query import Query
from ..following import Follower
from ..routes import LogRoutes
from ..terms import PASSING, ConnectionLost
from .reading import RemoteReading
from .transport import Stream, Transport


class RemoteSubscription:
    """Iterate it for the events; it waits where the log has no more, until there are some or it is closed.

    Raises PositionTrimmed where a trim overtook its cursor, so that nothing is skipped. An async context manager.
    """

    def __init__(
        self, transport: Transport, routes: LogRoutes, query: Query, after: int | None, partition: int | None
    ) -> None:
        """Of no use before `begin`."""
        self.cursor = after or 0
        """Everything up to this number was seen, whether it matched or not; where to resume after an interruption.
        While it is iterated, that is the event last given out."""
        self.is_closed = False
        self._transport = transport
        self._follower = Follower(routes, query, after, partition)
        self._stream: Stream | None = None
        self._closing = asyncio.Event()
        self._attempts = transport.terms.attempts()

    async def begin(self) -> Self:
        """Find out what is wrong with the position or the query. Raises as `core.EventLog.read`."""
        await (await RemoteReading(self._transport, self._follower.check()).begin()).next_page()
        return self

    async def poll(self, timeout_s: float | None = 0.0) -> Sequence[SequencedEvent]:
        """The events that follow, at most one page; empty if none come in `timeout_s` (None = wait for ever)."""
        return await self._next_events(timeout_s) or ()

    async def __aiter__(self) -> AsyncIterator[SequencedEvent]:
        while (events := await self._next_events(None)) is not None:
            reached = self.cursor
            for event in events:
                self.cursor = event.sequence_number
                yield event
            self.cursor = max(self.cursor, reached)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, from any task: a waiting iteration stops."""
        self.is_closed = True
        self._closing.set()
        self._drop_stream()

    async def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_closed:
            try:
                return await self._catch_up_or_follow(deadline)
            except LogNotFound:
                break  # it was deleted: nothing follows any more
            except PASSING as error:
                self._give_up(error)
                if not self.is_closed:
                    await self._wait_after(error)
        return None

    async def _wait_after(self, error: OSError | EventLogError) -> None:
        pause_s = self._transport.targets.pause_s(self._attempts, error)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closing.wait()

    async def _catch_up_or_follow(self, deadline: float | None) -> Sequence[SequencedEvent]:
        if self._follower.is_ahead(self.cursor):
            self._drop_stream()
        if self._stream is None:
            if (events := await self._catch_up()) or _left_s(deadline) == 0:
                return events
            await self._follow()
        try:
            return await self._await_events(deadline)
        except TimeoutError:
            return await self._catch_up()  # what is durable by now, though the stream may not have brought it yet

    async def _catch_up(self) -> Sequence[SequencedEvent]:
        reading = await RemoteReading(self._transport, self._follower.catch_up(self.cursor)).begin()
        events = await reading.rest()
        self._attempts.succeeded()
        self.cursor = self._follower.caught_up(self.cursor, events, reading.head)
        return events

    async def _follow(self) -> None:
        self._stream = await self._transport.open(self._follower.follow(self.cursor))
        self._follower.begin(self._stream.answer)
        self._attempts.succeeded()
        if self.is_closed:  # by another task, meanwhile
            self._drop_stream()

    async def _await_events(self, deadline: float | None) -> Sequence[SequencedEvent]:
        """The events of the stream that come next. Raises TimeoutError at the deadline, ConnectionLost at its end."""
        while (stream := self._stream) is not None:
            try:
                piece = await stream.read(_left_s(deadline))
            except TimeoutError:
                if deadline is None:  # no heartbeat either: the connection is dead
                    raise ConnectionLost("the subscription timed out: no event and no heartbeat came") from None
                raise
            if not piece:
                break
            self.cursor, events = self._follower.receive_data(self.cursor, piece)
            if events:
                return events
        raise ConnectionLost("the subscription ended")

    def _give_up(self, error: OSError | EventLogError) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.give_up(error)

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
