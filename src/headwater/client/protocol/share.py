"""The state of a group's worker: its partitions, its next read, and its acknowledgements. No I/O.

It sends heartbeats one after the other, beside its reads; each waits for a change of its partitions. It reads its
partitions in turn, a batch each, and acknowledges a batch when asked for the next: if it dies, another worker gets the
unacknowledged events. It gives up a reassigned partition between two batches.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

from ...core.errors import InvalidInput
from ...core.event import SequencedEvent
from ...core.query import Query
from ...core.workers import LEASE_MS_MAX, LEASE_MS_MIN, WAIT_MS_MAX
from . import wire
from .pages import PagedRead
from .request import Request
from .routes import LogRoutes

BATCH_EVENTS, BATCH_EVENTS_MAX = 100, 10_000
"""The size of a batch: by default, and at most."""
DRY_TURNS = 8
"""After this many batches of other partitions, a partition without more events is checked again."""
IDLE_S_MIN, IDLE_S_MAX = 0.02, 1.0
"""How long a worker pauses if none of its partitions has more: at first, and at most."""
GONE_S = 10.0
"""How long signing off may take."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some events of one partition, in order. They are acknowledged together, or one after the other."""

    partition: int
    epoch: int
    """Higher than the epoch of the previous holder: a worker's writes elsewhere can be fenced by it."""
    events: Sequence[SequencedEvent]
    upto: int
    """All events up to this number are in it, or do not match."""

    def __iter__(self) -> Iterator[SequencedEvent]:
        return iter(self.events)


class Share:
    """The partitions of one worker, and its requests."""

    def __init__(
        self,
        routes: LogRoutes,
        group: str,
        worker: str | None,
        query: Query,
        lease_s: float,
        start: str | None,
        batch_events: int,
    ) -> None:
        """Raises InvalidInput."""
        lease_ms = round(1000 * lease_s)
        if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
            allowed = f"{LEASE_MS_MIN / 1000:g} to {LEASE_MS_MAX / 1000:g} s"
            raise InvalidInput(f"expected {allowed}, got {lease_s:g} s", "lease_s")
        if start not in (None, "earliest", "latest"):
            raise InvalidInput(f"expected 'earliest' or 'latest', got {start!r}", "start")
        if not 1 <= batch_events <= BATCH_EVENTS_MAX:
            raise InvalidInput(f"expected 1 to {BATCH_EVENTS_MAX}, got {batch_events}", "batch_events")
        self.group, self.worker = group, worker or f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
        self._routes, self._query, self._start = routes, query, start
        self._lease_ms, self._batch_events = lease_ms, batch_events
        self._version: int | None = None
        self._held: dict[int, wire.HeldPartition] = {}
        self._dry: dict[int, int] = {}
        """Partitions without more events at their last read, and how many turns of others come before them."""
        self._read: PagedRead | None = None
        """The last read: the log must keep its incarnation."""
        self.idle_s = IDLE_S_MIN

    @property
    def partitions(self) -> dict[int, int]:
        """The partitions it holds, with their epochs."""
        return {each.partition: each.epoch for each in self._held.values()}

    def beat(self) -> Request[wire.Holding]:
        """The heartbeat; the answer waits for a change, for half of its lease at most."""
        wait_ms = 0 if self._version is None else min(WAIT_MS_MAX, self._lease_ms // 2)
        body = wire.BeatBody(self._lease_ms, wait_ms, self._version, self._start)
        return self._routes.beat(self.group, self.worker, body)

    def hold(self, holding: wire.Holding) -> None:
        """Take the answer to a heartbeat. It keeps its own progress in partitions held before under the same epoch."""
        held = {}
        for told in holding.partitions:
            known = self._held.get(told.partition)
            if known is not None and known.epoch == told.epoch:
                told.after = max(told.after, known.after)
            else:
                self._dry.pop(told.partition, None)
            held[told.partition] = told
        self._version, self._held = holding.version, held

    def next_leaving(self) -> Request[None] | None:
        """The request to give up one of the reassigned partitions; None if there is none."""
        for held in self._held.values():
            if held.is_leaving:
                del self._held[held.partition]
                return self._done(held.partition, held.epoch, held.after, gives_up=True)
        return None

    def next_read(self) -> tuple[wire.HeldPartition, PagedRead] | None:
        """The partition whose turn it is, and the read of its next batch; None if none has more."""
        for held in self._held.values():
            if self._dry.get(held.partition):
                self._dry[held.partition] -= 1
            else:
                query, limit = wire.query_json(self._query), self._batch_events
                asked = wire.ReadBody(query, after=held.after, limit=limit, partition=held.partition)
                self._read = PagedRead(self._routes, asked, self._read.incarnation if self._read else None)
                return held, self._read
        self._dry.clear()
        return None

    def batch(self, held: wire.HeldPartition, events: Sequence[SequencedEvent], head: int) -> Batch | None:
        """The events read of a partition as a batch; None if there are none."""
        is_full = len(events) == self._batch_events
        self._dry[held.partition] = 0 if is_full else DRY_TURNS
        upto = events[-1].sequence_number if is_full else max(head, held.after)
        if held.partition in self._held:  # the next partition goes first
            self._held[held.partition] = self._held.pop(held.partition)
        if upto == held.after:
            return None
        self.idle_s = IDLE_S_MIN
        return Batch(held.partition, held.epoch, events, upto)

    def done(self, batch: Batch, upto: int | None) -> Request[None]:
        """The acknowledgement of a batch, or of its events up to that number. Raises InvalidInput for a number not in
        it.
        """
        if upto is None:
            upto = batch.upto
        elif not batch.events or not batch.events[0].sequence_number <= upto <= batch.upto:
            allowed = f"{batch.events[0].sequence_number} to {batch.upto}" if batch.events else "none"
            raise InvalidInput(f"expected a number of this batch, {allowed}, got {upto}", "upto")
        held = self._held.get(batch.partition)
        if held is not None and held.epoch == batch.epoch:
            held.after = upto = max(held.after, upto)  # an earlier event of it changes nothing
        return self._done(batch.partition, batch.epoch, upto)

    def lost(self, partition: int, epoch: int) -> None:
        """Another worker has the partition already."""
        held = self._held.get(partition)
        if held is not None and held.epoch == epoch:
            del self._held[partition]

    def pause_s(self) -> float:
        """How long to wait before looking again."""
        pause_s, self.idle_s = self.idle_s, min(2 * self.idle_s, IDLE_S_MAX)
        return pause_s

    def leave(self) -> Request[None]:
        """The worker ends."""
        return self._routes.leave(self.group, self.worker, self._version)

    def _done(self, partition: int, epoch: int, upto: int, *, gives_up: bool = False) -> Request[None]:
        return self._routes.done(self.group, self.worker, wire.DoneBody(partition, epoch, upto, gives_up))
