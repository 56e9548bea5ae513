"""One process's work in a group, by threads (see `protocol.share`): one sends heartbeats, one processes the batches."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ...core.closing import Closing
from ...core.errors import ConsumerFenced, EventLogError, LogNotFound
from ..protocol.request import Request
from ..protocol.share import GONE_S, Batch, Share
from .reading import RemoteReading
from .transport import Transport


class Work(Closing):
    """Iterate it for batches, in one thread. A batch is acknowledged when you ask for the next one.

    At least once: if a partition moved to another worker meanwhile, that one may process the batch again.
    """

    def __init__(self, transport: Transport, share: Share) -> None:
        self._transport, self._share = transport, share
        self._changing = threading.Condition()
        self._is_closed = False
        self._error: EventLogError | None = None
        self._beating = threading.Thread(target=self._beat, name=f"work {share.group}", daemon=True)
        self._beating.start()

    @property
    def worker(self) -> str:
        """Its name in the group."""
        return self._share.worker

    @property
    def partitions(self) -> dict[int, int]:
        """The partitions it holds now, with their epochs."""
        with self._changing:
            return self._share.partitions

    def __iter__(self) -> Iterator[Batch]:
        with contextlib.suppress(LogNotFound):  # the log was deleted: there are no more events
            while (batch := self._next()) is not None:
                if batch.events:
                    yield batch
                self.acknowledge(batch)

    def acknowledge(self, batch: Batch, *, upto: int | None = None) -> bool:
        """Acknowledge a batch before asking for the next; False if another worker has its partition by now.

        `upto`: acknowledge its events up to that number; only later events are repeated after a crash. Raises
        InvalidInput for a number that is not in the batch.
        """
        with self._changing:
            request = self._share.done(batch, upto)
        try:
            self._transport.call(request)
        except ConsumerFenced:
            with self._changing:
                self._share.lost(batch.partition, batch.epoch)
            return False
        return True

    def close(self) -> None:
        """End it, from any thread: other workers get its partitions at once, an iteration stops after its batch."""
        with self._changing:
            if self._is_closed:
                return
            self._is_closed = True
            self._changing.notify_all()
        for _ in range(2):  # the first ends a waiting heartbeat; a heartbeat sent after it has joined again
            if self._error is not None:
                break
            try:
                self._transport.call(self._share.leave())
            except EventLogError:
                break  # the server is away, or the log is gone: the lease expires
            self._beating.join(GONE_S)

    def _beat(self) -> None:
        while not self._is_closed:
            with self._changing:
                request = self._share.beat()
            try:
                holding = self._transport.call(request)
            except EventLogError as error:
                with self._changing:
                    self._error = error
                    self._changing.notify_all()
                return
            with self._changing:
                self._share.hold(holding)
                self._changing.notify_all()

    def _next(self) -> Batch | None:
        while True:
            with self._changing:
                if self._is_closed:
                    return None
                if self._error is not None:
                    raise self._error
                leaving, found = self._share.next_leaving(), None
                if leaving is None and (found := self._share.next_read()) is None:
                    self._changing.wait(self._share.pause_s())
            if leaving is not None:
                self._give_up(leaving)
            if found is not None:
                held, read = found
                reading = RemoteReading(self._transport, read).begin()
                events = reading.rest()
                with self._changing:
                    batch = self._share.batch(held, events, reading.head)
                if batch is not None:
                    return batch

    def _give_up(self, leaving: Request[None]) -> None:
        with contextlib.suppress(ConsumerFenced):  # it took too long: another worker has the partition
            self._transport.call(leaving)
