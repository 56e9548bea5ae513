"""Writes: streams of batches that are appended one by one, appended as one, or staged."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as flight

from ..core.errors import Closed, InvalidPosition, TooLarge
from ..core.limits import APPEND_BYTES_MAX, APPEND_EVENTS_MAX
from .backend import Backend
from .schemas import check_appended
from .wire import AppendCommand, StageCommand, condition_of, encode

BATCH_BYTES_MAX = APPEND_BYTES_MAX
"""The largest batch that is taken, as it lies in memory."""


class Incoming:
    """The batches that a client sends, checked: also its buffers, because Arrow trusts their offsets."""

    def __init__(self, reader: flight.MetadataRecordBatchReader, stopping: threading.Event, log: str) -> None:
        self._reader, self._stopping, self._log = reader, stopping, log
        self.schema: pa.Schema = reader.schema
        check_appended(self.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises InvalidEvent, TooLarge, ArrowInvalid, Closed where the server stops."""
        for chunk in self._reader:
            if self._stopping.is_set():
                raise Closed(self._log)
            batch = chunk.data
            if batch is None:  # metadata alone, which says nothing to us
                continue
            if batch.nbytes > BATCH_BYTES_MAX:
                raise TooLarge(batch.nbytes, BATCH_BYTES_MAX, "bytes", "batch")
            batch.validate(full=True)
            yield batch


def append(backend: Backend, command: AppendCommand, incoming: Incoming, writer: flight.FlightMetadataWriter) -> None:
    """Append each batch as it comes and tell where it went; with a condition, all of them together at the end.

    Raises as EventLog.append. What was told of is durable, whatever becomes of the rest.
    """
    condition = condition_of(command.condition)
    if command.partition is not None:
        partitions = backend.extent(command.log).partitions
        if not 0 <= command.partition < partitions:
            raise InvalidPosition(f"{command.partition} given, 0 to {partitions - 1} is allowed", "partition")
    for batch in incoming if condition is None else _joined(incoming):
        appended = backend.append(
            command.log,
            batch,
            partition=command.partition,
            condition=condition,
            on_duplicate=command.on_duplicate,
        )
        writer.write(encode(appended))


def _joined(incoming: Incoming) -> Iterator[pa.RecordBatch]:
    """All batches as one. Raises TooLarge as soon as they are more than one append takes."""
    batches, rows, size = [], 0, 0
    for batch in incoming:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > APPEND_EVENTS_MAX:
            raise TooLarge(rows, APPEND_EVENTS_MAX, "events", "events")
        if size > BATCH_BYTES_MAX:
            raise TooLarge(size, BATCH_BYTES_MAX, "bytes", "events")
        batches.append(batch)
    yield pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], incoming.schema)


def stage(backend: Backend, command: StageCommand, incoming: Incoming, writer: flight.FlightMetadataWriter) -> None:
    """Lay the batches down as a stage, and tell its name. Of a stream that breaks off nothing is left.

    Raises LogNotFound, DiskFull, TooLarge, InvalidEvent.
    """
    staging = backend.stage(command.log, command.writer, command.batch, command.part, command.attempt, incoming.schema)
    try:
        for batch in incoming:
            staging.write(batch)
    except BaseException:
        staging.abort()
        raise
    writer.write(encode(staging.close()))
