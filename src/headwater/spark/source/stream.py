"""Streams: the events in micro-batches, each a range of numbers per log, which Spark stores in its checkpoint.

The reader lives in one process of the driver; only `read` runs elsewhere. `commit` is not used: Spark calls it one
batch late, and never for the last one, so it is no basis for trimming a log; archivers acknowledge themselves. A named
stream reports its progress to the server, for operators, when the next batch is planned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ...core.errors import LogNotFound, PositionOfOtherIncarnation, PositionTrimmed, TooLarge
from ...core.extent import Extent
from ...flight.client import BulkClient
from ...flight.wire import Ticket
from ..archive.snapshot import Archive
from ..archive.steps import Steps, events_left
from ..clients import client_of
from ..pipeline.progress import BEHIND
from .options import ReadOptions, stream_options, with_schema
from .plan import Plan, Range, planned, route, shares, slices
from .position_reports import PositionReports
from .positions import (
    Consumed,
    LogRecreated,
    Offset,
    OffsetUnreadable,
    check_named,
    decode_offset,
    encode_offset,
    end_so_far,
    extents,
    first_retained,
    start_after,
)
from .slices import read_slice

NUMBERS_MAX = 1024
"""How many numbers are searched for the first remaining event."""


def lag(client: BulkClient, reached: Offset, there: Mapping[str, Extent]) -> dict[str, float]:
    """The backlog after the planned batches: how many events are left, and the age of the oldest.

    Events are counted before `query` and `partitions` leave any out. Trimmed events do not count.
    """
    left = {
        log: extent
        for log, extent in there.items()
        if log in reached and reached[log].incarnation == extent.incarnation and reached[log].position < extent.head
    }
    recorded = [
        found for log, extent in left.items() if (found := _recorded(client, log, reached[log].position, extent))
    ]
    seconds = max(0.0, time.time() - min(recorded) / 1000) if recorded else 0.0
    return {
        "events": sum(events_left(client, log, reached[log].position, extent) for log, extent in left.items()),
        "seconds": round(seconds, 3),
    }


def _recorded(client: BulkClient, log: str, after: int, extent: Extent) -> int | None:
    """When the first event after that number was recorded, in ms since 1970; None if it is not among the next ones."""
    upto = min(extent.head, after + NUMBERS_MAX)
    ticket = Ticket(log, after, upto, columns=("recorded_at",), incarnation=extent.incarnation)
    try:
        batch = next(client.read(ticket), None)
    except (PositionTrimmed, PositionOfOtherIncarnation, LogNotFound):  # the next batch reports it
        return None
    return None if batch is None or not batch.num_rows else batch.column(0)[0].cast("int64").as_py()


class Limits(NamedTuple):
    """What one trigger may read; None = no limit. Events are counted before `query` and `partitions` leave any out."""

    events_max: int | None = None
    events_min: int | None = None
    bytes_max: int | None = None


class Backlog(NamedTuple):
    """The events of a log that the stream has yet to read: those in (after, upto]."""

    after: int
    upto: int

    @property
    def events(self) -> int:
        """How many, apart from gaps in the numbers."""
        return max(0, self.upto - self.after)


def default_limit(options: ReadOptions) -> ReadLimit:
    """One of the limits in the options. Spark cannot combine them; the others are applied here anyway."""
    if options.trigger_events_max is not None:
        return ReadMaxRows(options.trigger_events_max)
    if options.trigger_bytes_max is not None:
        return ReadMaxBytes(options.trigger_bytes_max)
    if options.trigger_events_min is not None:
        return ReadMinRows(options.trigger_events_min)
    return ReadAllAvailable()


def limits_of(options: ReadOptions, limit: ReadLimit) -> Limits:
    """The limits of a trigger; those of the engine take precedence. If it requests everything, there are none."""
    if isinstance(limit, ReadAllAvailable):
        return Limits()
    given = Limits(options.trigger_events_max, options.trigger_events_min, options.trigger_bytes_max)
    if isinstance(limit, ReadMaxRows):
        return given._replace(events_max=limit.max_rows)
    if isinstance(limit, ReadMinRows):
        return given._replace(events_min=limit.min_rows)
    if isinstance(limit, ReadMaxBytes):
        return given._replace(bytes_max=limit.max_bytes)
    return given


def admit_events(backlogs: Mapping[str, Backlog], events_max: int | None) -> dict[str, Backlog]:
    """At most that many events, split among the logs in proportion to their backlogs; at least one per non-empty
    backlog, so that no log starves beside a busy one.
    """
    total = sum(backlog.events for backlog in backlogs.values())
    if events_max is None or total <= events_max:
        return dict(backlogs)
    parts = shares(events_max, [backlog.events for backlog in backlogs.values()])
    return {
        log: backlog._replace(upto=min(backlog.upto, backlog.after + part))
        for (log, backlog), part in zip(backlogs.items(), parts, strict=True)
    }


logger = logging.getLogger("headwater.spark")
FEWER = 16
"""The factor by which a range with too many splits is shortened."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what the options select, from the start of a new query or from its checkpoint."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        """Checks nothing yet: Spark would replace an error raised here by another."""
        self._given, self._schema = given, schema
        self._frozen: dict[str, Extent] | None = None
        self._triggered_s: float | None = None
        self._reports: PositionReports | None = None
        self._reached: Offset | None = None
        """The planned position, once this process has planned a batch."""
        self._lost: set[str] = set()
        """Logs that are gone, to warn once for each."""

    @cached_property
    def options(self) -> ReadOptions:
        """The parsed options. Raises InvalidOption, InvalidInput (columns that are not ours)."""
        return with_schema(stream_options(self._given), self._schema)

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Raises InvalidOption, LogNotFound."""
        return planned(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What Spark passes back to `latestOffset`, except when it wants everything."""
        return default_limit(self.options)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on, ignore later events and logs."""
        self._frozen = self._there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself if there is nothing, or not enough yet.

        Raises LogRecreated, LogNotFound (one that was read is gone), DataLoss, OffsetUnreadable.
        """
        found = planned(lambda: self._latest(start, limit))
        self._reached = decode_offset(found)
        return found

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the stream may read, to the heads or its end, and its lag: shown in progress as the latest offset."""
        there = planned(
            lambda: {log: replace(extent, head=self._upto(log, extent)) for log, extent in self._there().items()}
        )
        heads = encode_offset({log: Consumed(extent.incarnation, extent.head) for log, extent in there.items()})
        return heads | ({} if self._reached is None else {BEHIND: lag(self._client, self._reached, there)})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The slices of a batch. A repeated batch, after a crash, has the same events."""
        return planned(lambda: self._planned(start, end), lambda _: self.options.archive is not None)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a slice."""
        return read_slice(self.options, self.options.query, self.options.partitions, partition)

    @property
    def _client(self) -> BulkClient:
        return client_of(self.options.address)

    def _there(self, consumed: Offset | None = None) -> dict[str, Extent]:
        return extents(self._client, self.options, consumed)

    def _archive(self) -> Archive | None:
        return Archive(self.options.archive) if self.options.archive is not None else None

    def _initial(self) -> dict[str, Any]:
        there = self._there()
        check_named(self.options, there)
        archive = self._archive()
        found = {
            log: Consumed(extent.incarnation, start_after(self._client, self.options, log, extent, archive))
            for log, extent in there.items()
        }
        return encode_offset(found)

    def _latest(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        consumed = decode_offset(start)
        there = self._there(consumed)
        self._check_gone(consumed, there)
        self._report(consumed, there)
        if (frozen := self._frozen) is not None:
            there = {
                log: replace(extent, head=min(extent.head, max(frozen[log].head, _position(consumed, log, extent))))
                for log, extent in there.items()
                if log in frozen
            }
        backlogs = {}
        for log, extent in there.items():
            after = self._after(log, consumed.get(log), extent)
            backlogs[log] = Backlog(after, max(after, self._upto(log, extent)))
        limits = limits_of(self.options, limit)
        if limits.events_min is not None and self._should_wait(backlogs, limits.events_min):
            return start
        admitted = {
            log: self._over_gap(log, backlog, backlogs[log].upto, there[log])
            for log, backlog in admit_events(backlogs, limits.events_max).items()
        }
        if limits.bytes_max is not None:
            admitted = self._admit_bytes(admitted, there, limits.bytes_max)
        if any(backlog.events for backlog in admitted.values()):
            self._triggered_s = time.monotonic()
        reached = {log: Consumed(there[log].incarnation, backlog.upto) for log, backlog in admitted.items()}
        return encode_offset({**consumed, **reached})

    def _upto(self, log: str, extent: Extent) -> int:
        """How far the stream may read now: to the end in its options, or to the head before that exists."""
        if self.options.end.of(log) == "latest":
            return extent.head
        return min(extent.head, end_so_far(self._client, self.options, log, extent, self._archive()))

    def _report(self, consumed: dict[str, Consumed], there: dict[str, Extent]) -> None:
        """Report what Spark has finished to the server, if the stream has a name. Recreated logs are left out."""
        if self.options.stream_name is None:
            return
        if self._reports is None:
            self._reports = PositionReports(self.options.stream_name)
        positions = {
            log: at.position
            for log, at in consumed.items()
            if log in there and at.incarnation == there[log].incarnation and at.position <= there[log].head
        }
        self._reports.tell(self._client, positions)

    def _check_gone(self, consumed: dict[str, Consumed], there: dict[str, Extent]) -> None:
        """A missing log keeps its place in the offset, so that a new one of the same name is recognised as another."""
        for log in consumed:
            if log not in there:
                self._lose(log)

    def _lose(self, log: str) -> None:
        """Handle a log that is gone. Raises LogNotFound unless it matched a pattern and the options allow it."""
        if not self.options.may_lose(log):
            raise LogNotFound(log)
        if log not in self._lost:
            self._lost.add(log)
            logger.warning("log %r was deleted with its unread events; the stream continues", log)

    def _after(self, log: str, at: Consumed | None, extent: Extent) -> int:
        """The number after which the stream resumes in a log; a new log is read from its start."""
        if at is None:
            needs_archive = extent.first_retained > 1
            return first_retained(log, extent, self._archive() if needs_archive else None) - 1
        after = at.position
        if at.incarnation != extent.incarnation:
            self._warn_of_recreated(log, extent, at)
            after = max(after, extent.first_retained - 1)
        elif after > extent.head:
            raise OffsetUnreadable(f"log {log!r}: the checkpoint is at {after}, but the log's head is {extent.head}")
        if not self.options.fails_on_loss and self.options.archive is None:
            after = max(after, extent.first_retained - 1)  # otherwise a limit would be spent on missing events
        return after

    def _warn_of_recreated(self, log: str, extent: Extent, at: Consumed) -> None:
        """Raises LogRecreated, unless the options allow it."""
        error = LogRecreated(log, extent.incarnation, at.incarnation)
        if self.options.fails_on_loss:
            raise error
        logger.warning("a recreated log is read from its start: %s", error)

    def _should_wait(self, backlogs: dict[str, Backlog], events_min: int) -> bool:
        """Whether there is too little yet. Events that exist when a query starts, or up to its end, never wait."""
        if self._frozen is not None or self._triggered_s is None:
            return False
        waited_ms = (time.monotonic() - self._triggered_s) * 1000
        enough = sum(backlog.events for backlog in backlogs.values()) >= events_min
        return not enough and waited_ms < self.options.trigger_delay_ms

    def _admit_bytes(
        self, backlogs: dict[str, Backlog], there: dict[str, Extent], bytes_max: int
    ) -> dict[str, Backlog]:
        parts = shares(bytes_max, [backlog.events for backlog in backlogs.values()])
        return {
            log: backlog._replace(upto=self._upto_within(log, backlog, there[log], part))
            for (log, backlog), part in zip(backlogs.items(), parts, strict=True)
        }

    def _upto_within(self, log: str, backlog: Backlog, extent: Extent, bytes_max: int) -> int:
        """The number reached by about that many bytes, and at least one event."""
        if not backlog.events:
            return backlog.upto
        if backlog.after + 1 < extent.first_retained and (archive := self._archive()) is not None:
            files = archive.files(log, backlog.after, backlog.upto)
            bytes_each = max(1, sum(file.bytes for file in files) // max(1, sum(file.events for file in files)))
            return min(backlog.upto, backlog.after + max(1, bytes_max // bytes_each))
        upto = backlog.upto
        while True:
            ticket = Ticket(log, backlog.after, upto, incarnation=extent.incarnation)
            try:
                splits = self._client.plan(ticket, split_bytes=bytes_max)
            except TooLarge:
                if (events := upto - backlog.after) == 1:
                    raise
                upto = backlog.after + max(1, events // FEWER)  # only the first split matters
                continue
            return splits[0].ticket.upto or upto if splits else upto

    def _over_gap(self, log: str, admitted: Backlog, upto: int, extent: Extent) -> Backlog:
        """The same count of numbers, starting at the next event, if the batch would otherwise be empty: a restored log
        skips 10^12 numbers.
        """
        if admitted.upto >= upto or admitted.after + 1 < extent.first_retained:
            return admitted
        steps = Steps(self._client, log, extent.incarnation)
        return admitted._replace(upto=steps.end(admitted.after, upto, admitted.events))

    def _planned(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        consumed = decode_offset(start)
        routed: list[tuple[str, Extent, Archive | None, Range]] = []
        wanted = {log: at for log, at in decode_offset(end).items() if consumed.get(log) != at}
        for log, at in wanted.items():
            self._client.expect(log, at.incarnation, at.position)
        there = self._client.heads(list(wanted))
        for log, at in wanted.items():
            if (extent := there.get(log)) is None:  # it was deleted since the end of this batch was fixed
                self._lose(log)
                continue
            if extent.incarnation != at.incarnation:  # recreated since this batch was fixed, before a restart
                self._warn_of_recreated(log, extent, at)
                continue
            after = self._after(log, consumed.get(log), extent)
            archive = self._archive() if after + 1 < extent.first_retained else None
            ranges = route(self.options, log, after, at.position, extent, archive, prefers_archive=False)
            routed += [(log, extent, archive, range) for range in ranges]
        parts = shares(self.options.splits_min, [range.upto - range.after for *_, range in routed])
        found: list[InputPartition] = []
        for (log, extent, archive, range), splits_min in zip(routed, parts, strict=True):
            options = self.options
            plan = Plan(options, log, extent.incarnation, options.query, options.partitions, splits_min)
            found += slices(self._client, plan, range, archive)
        return found


def _position(consumed: Offset, log: str, extent: Extent) -> int:
    """How far this incarnation of the log was consumed: a replica may not have had all of it."""
    at = consumed.get(log)
    return at.position if at is not None and at.incarnation == extent.incarnation else 0
