"""Events as Arrow columns: how large appends go from a record batch to a frame, without a Python object per event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..core.event import NO_ATTRIBUTES, Encoding
from ..core.limits import EventColumns

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    EVENT_SCHEMA: pa.Schema
    """The fields of `core.Event`, in their order, without the three that the log adds: how checked events lie."""
else:
    from .late import pa, pc

    def __getattr__(name: str) -> Any:
        if name == "EVENT_SCHEMA":  # made when it is asked for
            return _event_schema()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


Ints = npt.NDArray[np.int64]


class Coded(NamedTuple):
    """The texts of a column without its repetitions."""

    terms: Sequence[str]
    """The distinct texts, in no order."""
    codes: Ints
    """Which of them each value is."""
    rows: Ints | None = None
    """Of a column of lists: the row that each value belongs to, ascending."""


class ArrowColumns(EventColumns):
    """Checked events whose columns are Arrow arrays; as Python objects they come when somebody asks for them."""

    __slots__ = ("batch", "tag_terms", "type_terms")

    def __init__(self, batch: pa.RecordBatch, bytes: int, type_terms: Coded, tag_terms: Coded) -> None:
        """A batch of EVENT_SCHEMA whose events are checked. The columns of EventColumns are not set: they are lazy."""
        self.batch = batch
        self.count = batch.num_rows
        self.bytes = bytes
        self.type_terms = type_terms
        self.tag_terms = tag_terms

    def __getattr__(self, name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(name)
        values = _LAZY[name](self.batch)
        setattr(self, name, values)
        return values

    def take(self, indexes: Sequence[int]) -> EventColumns:
        """See EventColumns."""
        batch = self.batch.take(pa.array(indexes, pa.int64()))
        size = self.bytes * len(indexes) // max(self.count, 1)
        return ArrowColumns(batch, size, coded(batch.column("type")), coded_lists(batch.column("tags")))


def _lists(column: pa.ListArray) -> list[tuple[str, ...]]:
    return [tuple(tags) for tags in column.to_pylist()]


def _mappings(column: pa.MapArray) -> list[Any]:
    offsets = column.offsets
    if offsets[0].as_py() == offsets[-1].as_py():
        return [NO_ATTRIBUTES] * len(column)
    return [dict(pairs) or NO_ATTRIBUTES for pairs in column.to_pylist()]


def _encodings(column: pa.Int8Array) -> list[Encoding]:
    values = column.to_pylist()
    return list(map(Encoding, values)) if any(values) else [Encoding.DATA] * len(values)


_LAZY: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "types": lambda batch: batch.column("type").to_pylist(),
    "data": lambda batch: batch.column("data").to_pylist(),
    "tags": lambda batch: _lists(batch.column("tags")),
    "ids": lambda batch: batch.column("id").to_pylist(),
    "sources": lambda batch: batch.column("source").to_pylist(),
    "attributes": lambda batch: _mappings(batch.column("attributes")),
    "group_keys": lambda batch: batch.column("group_key").to_pylist(),
    "envelopes": lambda batch: batch.column("envelope").to_pylist(),
    "encodings": lambda batch: _encodings(batch.column("encoding")),
}


def batch_of(columns: EventColumns) -> pa.RecordBatch:
    """Checked events as a batch of EVENT_SCHEMA."""
    if isinstance(columns, ArrowColumns):
        return columns.batch
    attributes = [list(each.items()) for each in columns.attributes]
    values = (columns.types, columns.data, columns.tags, columns.ids, columns.sources, attributes, columns.group_keys,
              columns.envelopes, columns.encodings)  # fmt: skip
    arrays = [pa.array(column, field.type) for column, field in zip(values, _event_schema(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_event_schema())


@cache
def _event_schema() -> pa.Schema:
    from .arrow import SCHEMA

    return pa.schema(list(SCHEMA)[3:])


def coded(column: pa.StringArray) -> Coded:
    """A column of texts without its repetitions."""
    encoded = column.dictionary_encode()
    return Coded(encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64))


def coded_lists(column: pa.ListArray) -> Coded:
    """The texts of a column of lists without their repetitions."""
    terms, codes, _ = coded(column.flatten())
    return Coded(terms, codes, np.repeat(np.arange(len(column)), lengths_of(column)))


def lengths_of(column: pa.Array) -> Ints:
    """How many elements each list has; none where it is null."""
    return np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)


def sizes_of(column: pa.Array) -> Ints:
    """Bytes of each value of an array without nulls."""
    offsets = offsets_of(column)
    return np.diff(offsets).astype(np.int64)


def offsets_of(column: pa.Array) -> npt.NDArray[np.int32]:
    """The offsets of an array of texts, bytes or lists: one more than it has values."""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)


def content_of(column: pa.Array) -> bytes:
    """All values of an array of texts or bytes, joined."""
    return bytes(buffer_of(column))


def buffer_of(column: pa.Array) -> pa.Buffer:
    """As `content_of`, in place."""
    offsets = offsets_of(column)
    buffer = column.buffers()[2]
    if buffer is None:
        return pa.py_buffer(b"")
    return buffer.slice(offsets[0], offsets[-1] - offsets[0])
