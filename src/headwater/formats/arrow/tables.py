"""Stored events as Arrow tables: the schema shared by HTTP streams and Parquet files of events."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat

import pyarrow as pa

from ...core.event import NO_ATTRIBUTES, Encoding, SequencedEvent

SCHEMA = pa.schema(
    [
        pa.field("sequence_number", pa.int64(), nullable=False),
        pa.field("recorded_at", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("tags", pa.list_(pa.string()), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("attributes", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("group_key", pa.string(), nullable=False),
        pa.field("envelope", pa.binary(), nullable=False),
        pa.field("encoding", pa.int8(), nullable=False),
    ]
)
"""The fields of `core.SequencedEvent`, in order."""

STREAM = "application/vnd.apache.arrow.stream"
OPENING: bytes = SCHEMA.serialize().to_pybytes()
"""The start of a stream of events (Arrow IPC streaming format), followed by pages, then the closing."""
CLOSING = b"\xff\xff\xff\xff\0\0\0\0"

_sequenced = partial(tuple.__new__, SequencedEvent)


def record_batch(events: Sequence[SequencedEvent]) -> pa.RecordBatch:
    """The events as one batch of that schema."""
    columns = (
        dict(zip(SCHEMA.names, zip(*events, strict=True), strict=True)) if events else dict.fromkeys(SCHEMA.names, ())
    )
    columns["attributes"] = tuple([list(attributes.items()) for attributes in columns["attributes"]])
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def encode_page(events: Sequence[SequencedEvent]) -> bytes:
    """The events as one message of a stream."""
    message: bytes = record_batch(events).serialize().to_pybytes()
    return message


def large_page(event: SequencedEvent, data: memoryview) -> list[bytes | memoryview]:
    """The message of a page with that one event and that data, in parts. One part is the data, which is not copied."""
    sink = _Parts()
    writer = pa.ipc.RecordBatchStreamWriter(pa.PythonFile(sink, "w"), SCHEMA)
    offsets = pa.py_buffer(struct.pack("<2i", 0, len(data)))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(data)])
    writer.write_batch(record_batch([event]).set_column(SCHEMA.names.index("data"), SCHEMA.field("data"), column))
    parts, schema = sink.parts, len(OPENING)
    while schema > 0:  # the schema comes first, regardless of how it was split
        schema -= len(parts.pop(0))
    assert not schema, "the schema is a message of its own"
    return parts


class _Parts:
    """A file that keeps all writes, with buffers as views."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []

    def write(self, part: bytes | pa.Buffer) -> int:
        """See `io.RawIOBase`."""
        self.parts.append(part if isinstance(part, bytes) else memoryview(part))
        return len(part)

    def flush(self) -> None:
        """See `io.RawIOBase`."""

    def close(self) -> None:
        """See `io.RawIOBase`."""


def events_of(batch: pa.RecordBatch) -> list[SequencedEvent]:
    """The events of a batch of that schema, decoded column by column."""
    columns = {name: batch.column(name) for name in SCHEMA.names}
    columns["recorded_at"] = columns["recorded_at"].cast(pa.int64())
    values: dict[str, Iterable[object]] = {
        name: column.to_pylist() for name, column in columns.items() if name not in ("tags", "attributes", "encoding")
    }
    values["tags"] = _lists(columns["tags"])
    values["attributes"] = _mappings(columns["attributes"])
    encodings = columns["encoding"].to_pylist()
    values["encoding"] = map(Encoding, encodings) if any(encodings) else repeat(Encoding.DATA, len(encodings))
    return list(map(_sequenced, zip(*[values[name] for name in SCHEMA.names], strict=True)))


def _lists(column: pa.ListArray) -> Iterator[tuple[str, ...]]:
    """Each row as a tuple. All rows are converted at once, because Arrow is slow for individual lists."""
    offsets = column.offsets.to_pylist()
    values = column.values.slice(offsets[0], offsets[-1] - offsets[0]).to_pylist()
    return (tuple(values[low - offsets[0] : high - offsets[0]]) for low, high in pairwise(offsets))


def _mappings(column: pa.MapArray) -> Iterator[Mapping[str, str]]:
    offsets = column.offsets.to_pylist()
    if offsets[0] == offsets[-1]:
        return repeat(NO_ATTRIBUTES, len(column))
    first, count = offsets[0], offsets[-1] - offsets[0]
    names, items = column.keys.slice(first, count).to_pylist(), column.items.slice(first, count).to_pylist()
    pairs = list(zip(names, items, strict=True))
    return (dict(pairs[low - first : high - first]) for low, high in pairwise(offsets))
