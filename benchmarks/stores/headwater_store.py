"""Headwater in this process: the storage engine under the core's log, as a program that embeds it uses it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from headwater.core import ALL, AppendCondition, AppendRequest, AsyncLog, Event, Query, SequencedEvent
from headwater.core.errors import AppendConditionFailed, EventLogError
from headwater.storage import Engine

from .store import AppendAsync, Conflict, Extent, Store


class HeadwaterStore(Store):
    """One log of an engine of its own: made, or opened where it is there."""

    def __init__(self, directory: Path, engine: Engine | None = None) -> None:
        """`engine`: one that is open, instead of that of the directory; it is closed with the store."""
        self._engine = engine or Engine(directory)
        self.log = self._engine.create("bench")

    def append(self, events: Sequence[Event], condition: AppendCondition | None = None) -> int:
        """See Store."""
        try:
            return self.log.append(events, condition).last
        except AppendConditionFailed as error:
            raise Conflict from error

    def append_all(self, batches: Sequence[Sequence[Event]], in_flight: int) -> int:
        """See Store."""
        return _Pipeline(in_flight).run(self, batches)

    async def serve(self, clients: Callable[[AppendAsync], Awaitable[None]]) -> None:
        """See Store."""
        log = AsyncLog(self.log)

        async def append(events: Sequence[Event], condition: AppendCondition | None) -> int:
            try:
                return (await log.append(events, condition)).last
            except AppendConditionFailed as error:
                raise Conflict from error

        try:
            await clients(append)
        finally:
            log.close()

    def read_tag(self, tag: str) -> Sequence[SequencedEvent]:
        """See Store."""
        return list(self.log.read(Query.where(tags=[tag])))

    def read_type(self, type: str, limit: int) -> Sequence[SequencedEvent]:
        """See Store."""
        return list(self.log.read(Query.where(types=[type]), backwards=True, limit=limit))

    def scan(self) -> Extent:
        """See Store."""
        events = size = last = 0
        for stored in self.log.read(ALL):
            events += 1
            size += len(stored.data)
            last = stored.sequence_number
        return Extent(events, size, last)

    def trim(self, below: int) -> int:
        """See Store."""
        return self.log.trim(below)

    def head(self) -> int:
        """See Store."""
        return self.log.head()

    def close(self) -> None:
        """See Store."""
        self._engine.close()


class _Pipeline:
    """Appends with a bounded number in flight, through the log's own `submit`."""

    def __init__(self, in_flight: int) -> None:
        self._in_flight = in_flight
        self._free = threading.Semaphore(in_flight)
        self._last = 0
        self._error: EventLogError | None = None

    def run(self, store: HeadwaterStore, batches: Sequence[Sequence[Event]]) -> int:
        for events in batches:
            self._free.acquire()
            store.log.submit(store.log.request(events, None, None, self._deliver))
        for _ in range(self._in_flight):
            self._free.acquire()
        if self._error is not None:
            raise self._error
        return self._last

    def _deliver(self, requests: list[AppendRequest]) -> None:
        for request in requests:
            self._error = self._error or request.error
            if request.result is not None:
                self._last = max(self._last, request.result.last)
            self._free.release()
