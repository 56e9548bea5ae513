"""A data source as most are written in Python: it reads the same log from the same server, and yields tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headwater.flight.client import BulkClient
from headwater.flight.wire import Ticket


@dataclass
class TicketPartition(InputPartition):
    """What one task reads."""

    ticket: bytes


class RowSource(DataSource):
    """Format `headwater-rows`, with the options url, log and minPartitions."""

    @classmethod
    def name(cls) -> str:
        return "headwater-rows"

    def schema(self) -> StructType:
        from headwater.spark.columns.schema import COLUMNS, select

        return select(tuple(COLUMNS))

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowReader(self.options["url"], self.options["log"], int(self.options["minPartitions"]))


class RowReader(DataSourceReader):
    """The same splits as those of the format `headwater`."""

    def __init__(self, url: str, log: str, splits_min: int) -> None:
        self.url, self.log, self.splits_min = url, log, splits_min

    def partitions(self) -> Sequence[InputPartition]:
        with BulkClient(self.url) as bulk:
            splits = bulk.plan(Ticket(self.log, schema="spark"), splits_min=self.splits_min)
        return [TicketPartition(msgspec.json.encode(split.ticket)) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        assert isinstance(partition, TicketPartition)
        ticket = msgspec.json.decode(partition.ticket, type=Ticket)
        with BulkClient(self.url) as bulk:
            for batch in bulk.read(ticket):
                columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                columns["attributes"] = [dict(pairs) for pairs in columns["attributes"]]
                yield from zip(*columns.values(), strict=True)
