"""One process's work in a group, by tasks (see `protocol.share`): one sends heartbeats, one processes the batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Self

from ...core.errors import ConsumerFenced, EventLogError, LogNotFound
from ..protocol.request import Request
from ..protocol.share import GONE_S, Batch, Share
from .primitives import Closing, Event, wait
from .reading import RemoteReading
from .transport import Transport


class Work(Closing):
    """Iterate it for batches, within `async with`. A batch is acknowledged when you ask for the next one.

    At least once: if a partition moved to another worker meanwhile, that one may process the batch again. Blocking the
    event loop for longer than the lease prevents heartbeats.
    """

    def __init__(self, transport: Transport, share: Share) -> None:
        self._transport, self._share = transport, share
        self._changed = Event()
        self._is_closed = False
        self._error: EventLogError | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def worker(self) -> str:
        """Its name in the group."""
        return self._share.worker

    @property
    def partitions(self) -> dict[int, int]:
        """The partitions that it currently holds, with their epochs."""
        return self._share.partitions

    async def __aenter__(self) -> Self:
        self._beating = asyncio.create_task(self._beat(), name=f"work {self._share.group}")
        return self

    async def __aiter__(self) -> AsyncIterator[Batch]:
        with contextlib.suppress(LogNotFound):  # the log was deleted, so there are no more events
            while (batch := await self._next()) is not None:
                if batch.events:
                    yield batch
                await self.acknowledge(batch)

    async def acknowledge(self, batch: Batch, *, upto: int | None = None) -> bool:
        """Acknowledge a batch before asking for the next; False if another worker has its partition by now.

        `upto`: acknowledge its events up to that number; only later events are repeated after a crash. Raises
        InvalidInput for a number that is not in the batch.
        """
        try:
            await self._transport.call(self._share.done(batch, upto))
        except ConsumerFenced:
            self._share.lost(batch.partition, batch.epoch)
            return False
        return True

    async def close(self) -> None:
        """End it: other workers get its partitions at once, an iteration stops after its batch."""
        if self._is_closed:
            return
        self._is_closed = True
        self._changed.set()
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        if self._error is None:
            with contextlib.suppress(
                EventLogError, TimeoutError
            ):  # it is unreachable or has ended, so the lease expires
                async with asyncio.timeout(GONE_S):
                    await self._transport.call(self._share.leave())

    async def _beat(self) -> None:
        try:
            while True:
                self._share.hold(await self._transport.call(self._share.beat()))
                self._changed.set()
        except EventLogError as error:
            self._error = error
            self._changed.set()

    async def _next(self) -> Batch | None:
        assert self._beating is not None, "it is entered first"
        while True:
            self._changed.clear()
            if self._is_closed:
                return None
            if self._error is not None:
                raise self._error
            if (leaving := self._share.next_leaving()) is not None:
                await self._give_up(leaving)
            elif (found := self._share.next_read()) is None:
                await wait(self._changed, self._share.pause_s())
            else:
                held, read = found
                reading = await RemoteReading(self._transport, read).begin()
                batch = self._share.batch(held, await reading.rest(), reading.head)
                if batch is not None:
                    return batch

    async def _give_up(self, leaving: Request[None]) -> None:
        with contextlib.suppress(ConsumerFenced):  # it took too long, and another worker has the partition
            await self._transport.call(leaving)
