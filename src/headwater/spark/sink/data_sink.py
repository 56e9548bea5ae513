"""Writes into a log from Spark, exactly once: tasks stage their rows on the server, one call commits them all.

A commit is identified by its writer and its batch number; the server does it once, however often it is asked. A
stream's writer is its query's id, which its checkpoint keeps; Spark repeats a batch under the same number. A batch
write can be repeated safely with the options `writerId` and `batchId`; without them each write is separate.

Spark creates and uses these objects in several processes: tasks send the commit its data in their messages.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ...core.errors import EventLogError, InvalidInput
from ...core.limits import APPEND_EVENTS_MAX
from ...core.mark import BATCH_MAX, Staged
from ..clients import client_of
from ..session.python_workers import settle
from .options import SinkOptions, sink_options

JOINED_BYTES = 2 * 1024 * 1024
"""Small batches are joined up to this size into a message; those of Spark's 10,000 rows usually are one already. The
server puts as many as fit into a frame, and the client splits large ones.
"""
PIECE_BYTES = 32 * 1024 * 1024
"""A task stages pieces of this size while it creates the next one, so it holds up to three times as much. A piece of
two frames becomes a segment unchanged.
"""
PIECES_MAX = 2**20
"""Per task: 32 TiB."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """The writer for `frame.write`. Raises InvalidOption, InvalidInput."""
    if overwrite:
        raise InvalidInput("a log only supports append, not overwrite", "mode")
    checked = sink_options(options, schema, is_stream=False)
    if checked.writer is None:
        # A writer of one batch, known only to this frame's write: the log need not remember it afterwards.
        return BatchSink(checked, f"spark-{uuid.uuid4()}", BATCH_MAX)
    return BatchSink(checked, checked.writer, checked.batch or 0)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """The writer for `frame.writeStream`. Raises InvalidOption, InvalidInput."""
    if overwrite:
        raise InvalidInput("a log only supports append or update, not complete", "outputMode")
    return StreamSink(sink_options(options, schema, is_stream=True))


@dataclass(frozen=True)
class Part(WriterCommitMessage):
    """The rows that a task has staged."""

    writer: str
    batch: int
    part: int
    stages: tuple[str, ...]
    """In the order of its rows; empty if it had none."""


class BatchSink(DataSourceArrowWriter):
    """One batch write. Created once: tasks and commit get copies."""

    def __init__(self, options: SinkOptions, writer: str, batch: int) -> None:
        self._options, self._writer, self._batch = options, writer, batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        """Stage the rows of a task. Raises the errors of the log."""
        return _stage(self._options, self._writer, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append the rows staged by all tasks. Raises the errors of the log."""
        _commit(self._options, self._writer, self._batch, _parts(messages))
        if self._options.writer is None:  # it cannot be repeated
            _forget(self._options, self._writer)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the rows staged by the tasks."""
        is_once = self._options.writer is None  # it cannot be repeated
        _discard(self._options, self._writer, self._batch, gives_up=is_once)


class StreamSink(DataSourceStreamArrowWriter):
    """The writer of a stream: a separate object, in a separate process, for every task and every commit."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        """Stage the rows of a task. Raises the errors of the log."""
        context = TaskContext.get()
        assert context is not None, "only Spark's tasks write"
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        if query is None or batch is None:
            raise InvalidInput("Spark does not provide the query and batch; this sink requires a streaming query")
        # The query's id is included even if a writer is named: a new checkpoint counts its batches from 0 again, and
        # rows written by another checkpoint under the same name would hide them.
        writer = query if self._options.writer is None else f"{self._options.writer}/{query}"
        return _stage(self._options, writer, int(batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Append the rows staged by all tasks of the batch. Raises the errors of the log."""
        if parts := _parts(messages):
            assert all(part.batch == batchId for part in parts), (batchId, parts)
            _commit(self._options, parts[0].writer, batchId, parts)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Discard the rows staged by the batch's tasks; Spark repeats it, so a commit in progress will be continued."""
        if parts := _parts(messages):
            _discard(self._options, parts[0].writer, batchId, gives_up=False)


def _stage(options: SinkOptions, writer: str, batch: int, batches: Iterable[pa.RecordBatch]) -> Part:
    context = TaskContext.get()
    assert context is not None, "only Spark's tasks write"
    settle()
    part = context.partitionId()
    # Not the attempt's number: a retried stage counts from 0, while a task of the first may still write.
    attempt = context.taskAttemptId()
    client = client_of(options.address)
    rows = joined(_of_log(options.columns, each) for each in batches if each.num_rows)
    sent: list[Future[Staged]] = []
    with ThreadPoolExecutor(1) as sender:
        for number, piece in enumerate(pieces(_while_taken(rows, sent))):
            if sent:
                sent[-1].result()  # only one is sent while the next is made
            # Each piece by itself: it is in memory, so it can be sent again if the server was unreachable.
            where = (options.log, writer, batch, part * PIECES_MAX + number, attempt)
            sent.append(sender.submit(client.stage, *where, piece))
        return Part(writer, batch, part, tuple([piece.result().stage for piece in sent]))


def _while_taken(batches: Iterable[pa.RecordBatch], sent: Sequence[Future[Staged]]) -> Iterator[pa.RecordBatch]:
    """The batches, until one that was sent is refused: then it raises that error and stops."""
    for batch in batches:
        if sent and sent[-1].done():
            sent[-1].result()
        yield batch


def _commit(options: SinkOptions, writer: str, batch: int, parts: Sequence[Part]) -> None:
    settle()
    stages = [stage for part in parts for stage in part.stages]
    client_of(options.address).commit(
        options.log,
        writer,
        batch,
        stages,
        partition=options.partition,
        condition=options.condition,
        on_duplicate=options.on_duplicate,
    )


def _forget(options: SinkOptions, writer: str) -> None:
    # The rows are in the log, even if this fails: without it, the server forgets the writer in an hour.
    with contextlib.suppress(EventLogError):
        client_of(options.address).forget_writer(options.log, writer)


def _discard(options: SinkOptions, writer: str, batch: int, *, gives_up: bool) -> None:
    # Spark reports why the write failed; this error would hide that, and the server discards old stages anyway.
    with contextlib.suppress(EventLogError):
        client_of(options.address).discard(options.log, writer, batch, gives_up=gives_up)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[Part]:
    """The messages of the tasks, in the order of the frame's partitions; None is a failed task."""
    parts = [message for message in messages if isinstance(message, Part)]
    assert len({part.writer for part in parts}) <= 1, parts
    return sorted(parts, key=lambda part: part.part)


def _of_log(columns: Sequence[str | None], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that the log accepts, under its names."""
    kept = {name: batch.column(at) for at, name in enumerate(columns) if name is not None}
    if "encoding" in kept:
        kept["encoding"] = kept["encoding"].cast(pa.int8())
    return pa.record_batch(list(kept.values()), names=list(kept))


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, each of up to JOINED_BYTES and as many rows as an append accepts. Larger batches
    are unchanged.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and (rows + batch.num_rows > APPEND_EVENTS_MAX or size + batch.nbytes > JOINED_BYTES):
            made = pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0  # not held while the batch is sent
            yield made
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches in groups, each of up to PIECE_BYTES, or of one batch."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if waiting and size + batch.nbytes > PIECE_BYTES:
            yield waiting
            waiting, size = [], 0
        waiting.append(batch)
        size += batch.nbytes
    if waiting:
        yield waiting
