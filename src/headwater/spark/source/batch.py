"""Batch reads: the archived and the active part of each log as one table, without gap or duplicate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ...core.errors import LogNotFound
from ...core.extent import Extent
from ...flight.client import BulkClient
from ..archive.snapshot import Archive
from ..clients import client_of
from .options import ReadOptions
from .plan import Plan, planned, route, shares, slices
from .positions import DataLoss, check_named, check_order, end_upto, extents, sequence_number_at, start_after
from .pushdown import Scope
from .slices import read_slice


class BatchReader(DataSourceReader):
    """Reads what the options select. It is pickled before `partitions` is called, and holds no connection."""

    def __init__(self, options: ReadOptions) -> None:
        """Sends no request yet."""
        self.options = options
        self.scope = Scope(options.query, options.partitions)

    def partitions(self) -> list[InputPartition]:
        """The slices of all logs, each log's in order. Heads are read once, and so fixed for the whole read.

        Raises InvalidOption, LogNotFound, DataLoss, and the errors of BulkClient.
        """
        client = client_of(self.options.address)
        # The archiver may have advanced between our requests to the log and to the table, which take time.
        return planned(lambda: self._planned(client), self._has_moved)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a slice."""
        return read_slice(self.options, self.scope.query, self.scope.partitions, partition)

    def _planned(self, client: BulkClient) -> list[InputPartition]:
        if self.scope.is_empty:
            return []
        there = extents(client, self.options)  # before the archive is opened: see `route`
        if not there:
            raise LogNotFound(", ".join(self.options.logs))
        check_named(self.options, there)
        archive = Archive(self.options.archive) if self.options.archive is not None else None
        wanted = {log: extent for log, extent in there.items() if self.scope.logs is None or log in self.scope.logs}
        bounds = {log: self._bounds(client, log, extent, archive) for log, extent in wanted.items()}
        splits = shares(self.options.splits_min, [max(0, upto - after) for after, upto in bounds.values()])
        found: list[InputPartition] = []
        for (log, (after, upto)), splits_min in zip(bounds.items(), splits, strict=True):
            if after < upto:
                found += self._slices(client, log, wanted[log], archive, after, upto, splits_min)
        return found

    def _bounds(self, client: BulkClient, log: str, extent: Extent, archive: Archive | None) -> tuple[int, int]:
        """What to read of a log: the events in (after, upto]."""
        scope = self.scope
        after = start_after(client, self.options, log, extent, archive)
        upto = end_upto(client, self.options, log, extent, archive)
        check_order(self.options, log, after, upto)
        after, upto = max(after, scope.first - 1), min(upto, scope.last)
        if scope.from_ms is not None:
            after = max(after, sequence_number_at(client, log, extent, archive, scope.from_ms) - 1)
        if scope.before_ms is not None:
            upto = min(upto, sequence_number_at(client, log, extent, archive, scope.before_ms) - 1)
        return after, upto

    def _slices(
        self, client: BulkClient, log: str, extent: Extent, archive: Archive | None, after: int, upto: int, least: int
    ) -> list[InputPartition]:
        partitions = self.scope.partitions
        if partitions is not None and partitions != self.options.partitions:  # a filter may name a missing one
            count = client.info(log).settings.partitions
            partitions = tuple([partition for partition in partitions if 0 <= partition < count])
            if not partitions:
                return []
        ranges = list(route(self.options, log, after, upto, extent, archive, prefers_archive=True))
        parts = shares(least, [range.upto - range.after for range in ranges])
        found: list[InputPartition] = []
        for range, splits_min in zip(ranges, parts, strict=True):
            plan = Plan(self.options, log, extent.incarnation, self.scope.query, partitions, splits_min)
            found += slices(client, plan, range, archive)
        return found

    def _has_moved(self, loss: DataLoss) -> bool:
        """Whether the archive now contains the missing events."""
        if self.options.archive is None:
            return False
        return Archive(self.options.archive).next_number(loss.log) > loss.last


class FilteringReader(BatchReader):
    """Applies the Spark filters that it can itself; only on request.

    Spark refuses it in sessions without filter pushdown, and keeps the filters for all uses of a loaded frame.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """The filters left for Spark to apply."""
        left = []
        for filter in filters:
            self.scope, is_exact = self.scope.narrowed(filter)
            if not is_exact:
                left.append(filter)
        return left


def reader_of(options: ReadOptions) -> BatchReader:
    """The reader for the options."""
    return FilteringReader(options) if options.pushes_filters else BatchReader(options)
