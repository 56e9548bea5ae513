"""Writes: streams of batches that are appended one by one, appended as one, or staged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.flight as flight

from ...core.access import User
from ...core.errors import Closed, InvalidEvent, InvalidInput, InvalidPosition, TooLarge
from ...core.limits import APPEND_BYTES_MAX, APPEND_EVENTS_MAX
from ...core.mark import check_writer
from ...core.shared_bytes import SharedBytes
from ...formats.arrow.schema import check_plain, check_schema
from ..wire import END, AppendCommand, StageCommand, condition_of, encode
from .backend import Backend
from .memory import WriteMemory

BATCH_BYTES_MAX = APPEND_BYTES_MAX
"""The largest batch accepted, by its size in memory."""
SCHEMA_BYTES_MAX = 1024 * 1024
"""The largest schema, including column metadata."""


class Incoming:
    """The batches that a client sends, checked. Buffers are checked too, because Arrow trusts their offsets."""

    def __init__(
        self,
        context: flight.ServerCallContext,
        reader: flight.MetadataRecordBatchReader,
        stopping: threading.Event,
        command: AppendCommand | StageCommand,
        memory: SharedBytes,
        took: Callable[[str], None],
    ) -> None:
        """`memory` is the budget of all streams; a batch counts until the next one is requested. `took`: see
        BulkServer.
        """
        self._memory = WriteMemory(memory, command.log, stopping, BATCH_BYTES_MAX)
        self._context, self._reader, self._stopping, self._command = context, reader, stopping, command
        self._took = took
        try:
            self.schema: pa.Schema = reader.schema
        except pa.ArrowException as error:
            raise _unreadable(error, "schema") from None
        if (size := self.schema.serialize().size) > SCHEMA_BYTES_MAX:
            raise TooLarge(size, SCHEMA_BYTES_MAX, "bytes", "schema")
        check_schema(self.schema)
        check_plain(self.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises InvalidEvent, TooLarge, Overloaded; Closed if the server stops; FlightCancelledError if the client
        disconnected."""
        try:
            yield from self._batches()
        finally:
            self._memory.done()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        index, has_ended = 0, False
        while (chunk := self._next(index)) is not None:
            if self._stopping.is_set():
                raise Closed(self._command.log)
            metadata, batch = chunk.app_metadata, chunk.data
            if has_ended:
                raise InvalidInput("data follows the end marker", f"batches[{index}]")
            has_ended = self._command.marks_end and metadata is not None and metadata.to_pybytes() == END
            if batch is None:
                continue
            try:
                batch.validate(full=True)
            except pa.ArrowInvalid as error:
                raise _unreadable(error, f"batches[{index}]") from None
            self._memory.read(batch.nbytes, f"batches[{index}]")
            yield batch
            del batch, chunk
            index += 1
        # The reader cannot tell the end of a stream from the loss of its client.
        if self._context.is_cancelled() or (self._command.marks_end and not has_ended):
            raise flight.FlightCancelledError("the stream was cut off")

    def _next(self, index: int) -> flight.FlightStreamChunk | None:
        self._memory.before()
        try:
            chunk = self._reader.read_chunk()
            self._took(self._context.peer())
            return chunk
        except StopIteration:
            return None
        except flight.FlightError:
            raise
        except (pa.ArrowException, OSError) as error:
            if self._context.is_cancelled():
                raise flight.FlightCancelledError("the stream was cut off") from None
            raise _unreadable(error, f"batches[{index}]") from None


def _unreadable(error: BaseException, where: str) -> InvalidEvent:
    return InvalidEvent(f"the Arrow data cannot be read: {str(error).partition(chr(10))[0][:200]}", where)


def append(backend: Backend, command: AppendCommand, incoming: Incoming, writer: flight.FlightMetadataWriter) -> None:
    """Append each batch as it arrives and send its position; with a condition, append all of them together at the end.

    Raises the same errors as EventLog.append. Acknowledged batches are durable, regardless of what happens to the rest.
    """
    condition = condition_of(command.condition)
    if command.partition is not None:
        partitions = backend.place(command.log).settings.partitions
        if not 0 <= command.partition < partitions:
            raise InvalidPosition(f"expected 0 to {partitions - 1}, got {command.partition}", "partition")
    for batch in incoming if condition is None else _joined(incoming):
        tell(writer, backend.append(command, batch))


def _joined(incoming: Incoming) -> Iterator[pa.RecordBatch]:
    """All batches as one. Raises TooLarge as soon as they exceed one append."""
    batches, rows, size = [], 0, 0
    for batch in incoming:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > APPEND_EVENTS_MAX:
            raise TooLarge(rows, APPEND_EVENTS_MAX, "events", "events")
        if size > BATCH_BYTES_MAX:
            raise TooLarge(size, BATCH_BYTES_MAX, "bytes", "events")
        batches.append(batch)
    if not rows:
        raise InvalidEvent("an append needs at least one event", "events")
    yield pa.concat_batches(batches)


def stage(
    backend: Backend, user: User, command: StageCommand, incoming: Incoming, writer: flight.FlightMetadataWriter
) -> None:
    """Store the batches as a stage, and send its name. A broken stream leaves nothing.

    Raises LogNotFound, DiskFull, TooLarge, InvalidEvent, Forbidden.
    """
    check_writer(command.writer)
    staging = backend.stage(user, command, incoming.schema)
    try:
        for batch in incoming:
            staging.write(batch)
    except BaseException:
        staging.abort()
        raise
    tell(writer, staging.close())


def tell(writer: flight.FlightMetadataWriter, answer: object) -> None:
    """Send an answer. Raises FlightCancelledError if the client has disconnected."""
    try:
        writer.write(encode(answer))
    except (pa.ArrowException, OSError):
        raise flight.FlightCancelledError("the client disconnected") from None
