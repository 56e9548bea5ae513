"""Reads one slice in a task, from the log or its archive, as batches that Spark can use directly."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ...core.errors import LogNotFound, PositionOfOtherIncarnation, PositionTrimmed
from ...core.extent import Extent
from ...core.query import Query
from ...flight.client import BulkClient
from ...flight.wire import Ticket
from ..archive.slices import ArchivedSlice, Piece, read_archived
from ..archive.snapshot import Archive
from ..clients import client_of_task
from ..columns.payload_schema import MALFORMED, PAYLOAD
from ..columns.schema import arrow_schema
from ..session.python_workers import settle
from . import segment_sharing
from .options import ReadOptions
from .plan import LogSlice, route
from .positions import LogRecreated

logger = logging.getLogger("headwater.spark")
TRIMS_MAX = 5
"""How often a slice is located again because the log was trimmed in the meantime."""


def read_slice(
    options: ReadOptions, query: Query, partitions: tuple[int, ...] | None, slice: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The events of a slice, in order. Raises the errors of BulkClient, ArchiveUnreadable, DataLoss."""
    settle()
    batches = _read(options, query, partitions, slice)
    return batches if options.typed is None else typed(batches, options.typed)


def typed(batches: Iterable[pa.RecordBatch], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Rows of that schema, built from the columns of a log, with payloads as columns."""
    # Its constants alone make Arrow import pandas: a quarter of a second.
    from ..columns.payload_reader import PayloadReader

    shape = to_arrow_schema(schema, timezone="UTC")
    reader = PayloadReader(shape.field(PAYLOAD).type)
    for batch in batches:
        payloads, malformed = reader.read(batch.column("data"))
        made = {PAYLOAD: payloads, MALFORMED: malformed}
        columns = [made[name] if name in made else batch.column(name) for name in shape.names]
        yield pa.record_batch(columns, schema=shape)


def _read(
    options: ReadOptions, query: Query, partitions: tuple[int, ...] | None, slice: InputPartition
) -> Iterator[pa.RecordBatch]:
    if isinstance(slice, ArchivedSlice):
        return read_archived(slice, options.columns, query, partitions)
    if isinstance(slice, LogSlice):
        return _read_log(client_of_task(options.address), options, query, slice.ticket)
    return iter(())  # without any, Spark makes one of its own


def _read_log(client: BulkClient, options: ReadOptions, query: Query, ticket: Ticket) -> Iterator[pa.RecordBatch]:
    """The ticket's events; those trimmed since planning come from the archive."""
    try:
        yield from _read_whole(client, options, query, ticket)
    except LogNotFound as error:
        if not options.may_lose(ticket.log):
            raise
        logger.warning("%s; the rest of its events in this batch are lost", error)
    except PositionOfOtherIncarnation as error:
        recreated = LogRecreated(ticket.log, error.incarnation, ticket.incarnation or "")
        if options.fails_on_loss:
            raise recreated from error
        logger.warning("%s; the rest of its events in this batch are lost", recreated)


def _read_whole(client: BulkClient, options: ReadOptions, query: Query, ticket: Ticket) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(options.columns)
    has_number = "sequence_number" in (ticket.columns or ())
    trims = 0
    while True:
        try:
            for batch in segment_sharing.read(client, ticket) if options.borrows else client.read(ticket):
                yield pa.record_batch([batch.column(name) for name in schema.names], schema=schema)
                if has_number and batch.num_rows:
                    ticket = replace(ticket, after=batch.column("sequence_number")[-1].as_py())
            return
        except PositionTrimmed:
            trims += 1
            if not has_number or trims > TRIMS_MAX:
                raise
        extent = client.head(ticket.log)
        archive = Archive(options.archive) if options.archive is not None else None
        left = _left_of(options, ticket, extent, archive)
        if left is None:
            return
        archived, ticket = left
        if archived is not None:
            partitions = None if ticket.partition is None else (ticket.partition,)
            yield from read_archived(archived, options.columns, query, partitions)
            if ticket.after == ticket.upto:
                return


def _left_of(
    options: ReadOptions, ticket: Ticket, extent: Extent, archive: Archive | None
) -> tuple[ArchivedSlice | None, Ticket] | None:
    """The part of a ticket in the archive, and the ticket for the rest; None if nothing is left. Raises DataLoss."""
    assert ticket.after is not None and ticket.upto is not None
    archived = None
    for after, upto, is_archived in route(
        options, ticket.log, ticket.after, ticket.upto, extent, archive, prefers_archive=False
    ):
        if not is_archived:
            return archived, replace(ticket, after=after)
        assert archive is not None
        pieces = tuple([Piece(file.path) for file in archive.files(ticket.log, after, upto)])
        archived = ArchivedSlice(ticket.log, after, upto, pieces)
    return None if archived is None else (archived, replace(ticket, after=ticket.upto))
