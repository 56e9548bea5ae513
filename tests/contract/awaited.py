"""The asyncio client as an `EventLog`: its methods are awaited on an event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Self, TypeVar

from headwater.client import aio
from headwater.core import SequencedEvent

T = TypeVar("T")
Wait = Callable[[Awaitable[Any]], Any]


class LoopThread:
    """An event loop from its construction to `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="awaiting")
        self._thread.start()

    def wait(self, awaitable: Awaitable[T]) -> T:
        """What it comes to."""
        return asyncio.run_coroutine_threadsafe(_coroutine(awaitable), self._loop).result()

    def close(self) -> None:
        """Stop and wait for the end."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


class AwaitedLog:
    """Its methods are those of the log, each waited for."""

    def __init__(self, log: aio.RemoteLog, wait: Wait) -> None:
        self.name, self._log, self._wait = log.name, log, wait

    def read(self, *arguments: Any, **more: Any) -> AwaitedReading:
        return AwaitedReading(self._wait(self._log.read(*arguments, **more)), self._wait)

    def subscribe(self, *arguments: Any, **more: Any) -> AwaitedSubscription:
        return AwaitedSubscription(self._wait(self._log.subscribe(*arguments, **more)), self._wait)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method: Callable[..., Coroutine[Any, Any, Any]] = getattr(self._log, name)
        return lambda *arguments, **more: self._wait(method(*arguments, **more))


class AwaitedReading(Iterator[SequencedEvent]):
    def __init__(self, reading: aio.RemoteReading, wait: Wait) -> None:
        self._reading, self._wait = reading, wait
        self.head = reading.head

    def __next__(self) -> SequencedEvent:
        try:
            event: SequencedEvent = self._wait(anext(self._reading))
        except StopAsyncIteration:
            raise StopIteration from None
        return event


class AwaitedSubscription:
    def __init__(self, subscription: aio.RemoteSubscription, wait: Wait) -> None:
        self._subscription, self._wait = subscription, wait

    @property
    def cursor(self) -> int:
        return self._subscription.cursor

    @property
    def is_closed(self) -> bool:
        return self._subscription.is_closed

    def poll(self, timeout_s: float | None = 0.0) -> Any:
        return self._wait(self._subscription.poll(timeout_s))

    def __iter__(self) -> Iterator[SequencedEvent]:
        events = aiter(self._subscription)
        while True:
            try:
                yield self._wait(anext(events))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        async def close() -> None:
            self._subscription.close()

        self._wait(close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
