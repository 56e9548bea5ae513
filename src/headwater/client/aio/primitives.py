"""Waiting primitives of tasks. `sync.primitives` has the same names for threads, so that code can be shared."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import Event, sleep
from asyncio import to_thread as in_worker
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Self

from ...core.event import SequencedEvent

__all__ = ["Closing", "Event", "Pages", "Subscription", "in_worker", "places", "sleep", "wait"]

UNDER_WAY_MAX = 64
"""Requests whose answers are awaited at the same time. Further requests wait, which limits the connections of many
tasks. A streamed answer stops counting after it has begun; a long poll never counts.
"""


def places() -> asyncio.Semaphore | None:
    """Limits concurrent requests: each one takes a place. None is no limit."""
    return asyncio.Semaphore(UNDER_WAY_MAX)


async def wait(event: Event, timeout_s: float) -> None:
    """Wait at most `timeout_s` for the event to be set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


class Closing(ABC):
    """An async context manager that closes itself at the end."""

    @abstractmethod
    async def close(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


class Pages(AsyncIterator[SequencedEvent]):
    """The events of consecutive pages."""

    _page: Iterator[SequencedEvent] = iter(())

    @abstractmethod
    async def next_page(self) -> Sequence[SequencedEvent]:
        """The next events, as many as arrived at once; empty at the end."""

    async def __anext__(self) -> SequencedEvent:
        while True:
            for event in self._page:
                return event
            if not (events := await self.next_page()):
                raise StopAsyncIteration
            self._page = iter(events)


class Subscription(ABC):
    """Iterate it for the events; at the end of the log it waits for new ones, or until it is closed."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        """All events up to this number were examined, whether they matched or not; resume here after an interruption.
        During an iteration, it is the number of the event last returned.
        """
        self.is_closed = False

    @abstractmethod
    async def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        """The events after `cursor`, which moves past them; empty after `timeout_s` without any, None at the end."""

    async def poll(self, timeout_s: float | None = 0.0) -> Sequence[SequencedEvent]:
        """The next events, at most one page; empty if none arrive in `timeout_s` (None = wait forever)."""
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
    """An iteration over a subscription. It is not a generator, because an error would end a generator, as if the log
    were deleted.
    """

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
