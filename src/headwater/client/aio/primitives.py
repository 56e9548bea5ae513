"""What a task waits with. `sync.primitives` has the same names for a thread, so that what uses them is written once."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import Event, sleep
from asyncio import to_thread as in_worker
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Self

from ...core.event import SequencedEvent

__all__ = ["Closing", "Event", "Pages", "Places", "Subscription", "in_worker", "sleep", "wait"]

UNDER_WAY_MAX = 64
"""Requests whose answers are awaited at the same time; more wait for them, so that a thousand tasks are no thousand
connections. An answer that is read piece by piece does not count once it has begun; one that waits does not at all."""


class Places(asyncio.Semaphore):
    """One for each request that may be under way."""

    def __init__(self) -> None:
        super().__init__(UNDER_WAY_MAX)


async def wait(event: Event, timeout_s: float) -> None:
    """Wait until the event is set, for so long at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


class Closing(ABC):
    """An async context manager of itself, that closes at the end."""

    @abstractmethod
    async def close(self) -> None:
        """Done with it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


class Pages(AsyncIterator[SequencedEvent]):
    """The events of pages that come one after the other."""

    _page: Iterator[SequencedEvent] = iter(())

    @abstractmethod
    async def next_page(self) -> Sequence[SequencedEvent]:
        """The events that came next, as many as came at once; empty at the end."""

    async def __anext__(self) -> SequencedEvent:
        while True:
            for event in self._page:
                return event
            if not (events := await self.next_page()):
                raise StopAsyncIteration
            self._page = iter(events)


class Subscription(ABC):
    """Iterate it for the events; it waits where the log has no more, until there are some or it is closed."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        """Everything up to this number was seen, whether it matched or not; where to resume after an interruption.
        While it is iterated, that is the event last given out."""
        self.is_closed = False

    @abstractmethod
    async def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        """The events after `cursor`, which moves over them; empty after `timeout_s` without any, None at the end."""

    async def poll(self, timeout_s: float | None = 0.0) -> Sequence[SequencedEvent]:
        """The events that follow, at most one page; empty if none come in `timeout_s` (None = wait for ever)."""
        return await self._next_events(timeout_s) or ()

    def __aiter__(self) -> AsyncIterator[SequencedEvent]:
        return _Following(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End it: a waiting iteration stops."""
        self.is_closed = True


class _Following(AsyncIterator[SequencedEvent]):
    """An iteration over a subscription. It is no generator: an error would end it, and the log look deleted."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._rest: Iterator[SequencedEvent] = iter(())
        self._reached = 0

    async def __anext__(self) -> SequencedEvent:
        subscription = self._subscription
        while True:
            for event in self._rest:
                subscription.cursor = event.sequence_number
                return event
            subscription.cursor = max(subscription.cursor, self._reached)
            if (events := await subscription._next_events(None)) is None:
                raise StopAsyncIteration
            self._rest, self._reached = iter(events), subscription.cursor
