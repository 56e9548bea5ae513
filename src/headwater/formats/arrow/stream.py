"""Reads an Arrow IPC stream as one batch of events, checking what the stream declares before using it.

Arrow trusts a stream's declarations: the number of rows, where a buffer lies, the size of decompressed bytes. So the
messages are checked one by one (Arrow Columnar Format, Encapsulated message format), and a batch is built only from
plain columns, whose values cannot take more than the bytes received.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from ...core.errors import InvalidEvent, TooLarge
from ...core.limits import APPEND_EVENTS_MAX
from .events import check_valid
from .schema import check_plain, check_schema

SCHEMA_BYTES_MAX = 64 * 1024
"""The longest schema, including the metadata of its columns."""
BATCHES_MAX = 1024
"""The maximum number of batches that are joined."""
_HEADER, _LENGTH, _COMPRESSION = 2, 0, 3
"""Fields of the tables Message and RecordBatch (Message.fbs)."""


def batch_of_stream(content: bytes) -> pa.RecordBatch:
    """The batches of a stream as one valid batch. Its rows are not checked. Raises InvalidEvent (not a stream, a schema
    that does not describe events, compressed or malformed content), and TooLarge; both name the batch.
    """
    messages = _messages(content)
    first = next(messages, None)
    if first is None or first.type != "schema":
        raise InvalidEvent("expected an Arrow IPC stream, which begins with a schema", "schema")
    schema = _schema_of(first)
    batches: list[pa.RecordBatch] = []
    rows = 0
    for index, message in enumerate(messages):
        where = f"batches[{index}]"
        if index >= BATCHES_MAX:
            raise InvalidEvent(f"more than {BATCHES_MAX} batches; send fewer, larger batches", where)
        rows += _rows_of(message, where)
        if rows > APPEND_EVENTS_MAX:
            raise TooLarge(rows, APPEND_EVENTS_MAX, "events", "events")
        with _reading(where):
            batches.append(pa.ipc.read_record_batch(message, schema))
    if len(batches) == 1:
        return batches[0]
    for batch in batches:
        check_valid(batch)
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)


def stream_of_batch(batch: pa.RecordBatch) -> bytes:
    """The reverse of `batch_of_stream`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _messages(content: bytes) -> Iterator[pa.ipc.Message]:
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(content))
    while True:
        with _reading("events"):
            try:
                message = reader.read_next_message()
            except StopIteration:
                return
        yield message


def _schema_of(message: pa.ipc.Message) -> pa.Schema:
    if (size := message.metadata.size) > SCHEMA_BYTES_MAX:
        raise TooLarge(size, SCHEMA_BYTES_MAX, "bytes", "schema")
    with _reading("schema"):
        schema = pa.ipc.read_schema(message)
    check_schema(schema)
    check_plain(schema)
    return schema


def _rows_of(message: pa.ipc.Message, where: str) -> int:
    """The declared number of rows of a batch. Raises InvalidEvent for anything but a plain batch."""
    if message.type != "record batch":
        raise InvalidEvent(f"expected a batch, got a message of type {message.type!r}", where)
    with _reading(where):
        metadata = message.metadata.to_pybytes()
        header = _Table(metadata, int.from_bytes(metadata[:4], "little")).child(_HEADER)
        is_compressed, rows = header.has(_COMPRESSION), header.long(_LENGTH)
    if is_compressed:
        raise InvalidEvent("compressed batches are not supported; write them uncompressed", where)
    if rows < 0:
        raise InvalidEvent(f"expected a non-negative number of rows, got {rows}", where)
    return rows


class _Table:
    """A table of a FlatBuffer that Arrow has verified: its fields by number."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content, self._at = content, at
        self._vtable = at - self._read("<i", at)
        self._vtable_bytes = self._read("<H", self._vtable)

    def has(self, field: int) -> bool:
        """Whether the field is present."""
        return self._offset(field) > 0

    def long(self, field: int) -> int:
        """A 64-bit field; 0 if absent."""
        offset = self._offset(field)
        return self._read("<q", self._at + offset) if offset else 0

    def child(self, field: int) -> _Table:
        """A table in that field."""
        at = self._at + self._offset(field)
        return _Table(self._content, at + self._read("<I", at))

    def _offset(self, field: int) -> int:
        entry = 4 + 2 * field
        return self._read("<H", self._vtable + entry) if entry + 2 <= self._vtable_bytes else 0

    def _read(self, form: str, at: int) -> int:
        if at < 0:
            raise struct.error("negative offset")
        (value,) = struct.unpack_from(form, self._content, at)
        return int(value)


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """Reports input that Arrow cannot read as the client's error."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        problem = f"the Arrow data cannot be read: {str(error).partition(chr(10))[0][:200]}"
        raise InvalidEvent(problem, where) from None
