"""Events as Arrow columns: large appends go from a record batch to a frame without a Python object per event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...core.event import NO_ATTRIBUTES, Encoding
from ...core.limits import EventColumns

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    EVENT_SCHEMA: pa.Schema
    """The fields of `core.Event`, in order, without the three that the log adds: the layout of checked events."""
else:
    from .lazy import pa, pc

    def __getattr__(name: str) -> Any:
        if name == "EVENT_SCHEMA":  # created on first use
            return _event_schema()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


OBJECTS_PER_ARROW = 4
"""Converting this many events to Arrow costs as much as creating objects for one Arrow event."""

VALUES_AT_ONCE = 8192
"""How many Python objects one call creates, within about 1 ms. No other thread runs in the meantime."""
LISTS_AT_ONCE = 64

Ints = npt.NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.integer[Any])


class Coded(NamedTuple):
    """The distinct texts of a column, and their positions."""

    terms: pa.StringArray
    """The distinct texts, unordered."""
    codes: npt.NDArray[np.int32]
    """For each value, the index of its text."""
    rows: Ints | None = None
    """For a column of lists: the row that each value belongs to, ascending."""


class ArrowColumns(EventColumns):
    """Checked events in Arrow arrays. Their Python objects are created on first use."""

    __slots__ = ("_tag_terms", "_type_terms", "batch")

    def __init__(self, batch: pa.RecordBatch, bytes: int, *, is_gated: bool = False) -> None:
        """A batch of EVENT_SCHEMA whose events are checked. The columns of EventColumns are not set: they are lazy."""
        self.batch = batch
        self.count = batch.num_rows
        self.bytes = bytes
        self.is_gated = is_gated
        self._type_terms: Coded | None = None
        self._tag_terms: Coded | None = None

    @property
    def type_terms(self) -> Coded:
        """The distinct types. They are computed on first use, for the whole group at once."""
        if self._type_terms is None:
            self._type_terms = coded(self.batch.column("type"))
        return self._type_terms

    @property
    def tag_terms(self) -> Coded:
        """The distinct tags; as `type_terms`."""
        if self._tag_terms is None:
            self._tag_terms = coded_lists(self.batch.column("tags"))
        return self._tag_terms

    def __getattr__(self, name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(name)
        values = _LAZY[name](self.batch)
        setattr(self, name, values)
        return values

    def take(self, indexes: Sequence[int]) -> EventColumns:
        batch = self.batch.take(pa.array(indexes, pa.int64()))
        return ArrowColumns(batch, self.bytes * len(indexes) // max(self.count, 1), is_gated=self.is_gated)

    @staticmethod
    def join_all(groups: Sequence[EventColumns]) -> EventColumns:
        """See EventColumns. As Arrow arrays, unless nearly all of the events are objects."""
        arrow = sum([group.count for group in groups if isinstance(group, ArrowColumns)])
        if OBJECTS_PER_ARROW * arrow < sum([group.count for group in groups]) - arrow:
            return EventColumns.of_objects(groups)
        size = sum([group.bytes for group in groups])
        is_gated = all([group.is_gated for group in groups])
        return ArrowColumns(pa.concat_batches([batch_of(group) for group in groups]), size, is_gated=is_gated)


def values_of(column: pa.Array, at_once: int = VALUES_AT_ONCE) -> list[Any]:
    """The values of a column as Python objects."""
    values: list[Any] = []
    for part in parts_of(column, at_once):
        values += part
    return values


def parts_of(column: pa.Array, at_once: int = VALUES_AT_ONCE) -> Iterator[list[Any]]:
    """As `values_of`, in parts."""
    return (column.slice(start, at_once).to_pylist() for start in range(0, len(column), at_once))


def _lists(column: pa.ListArray) -> list[tuple[str, ...]]:
    return [tuple(tags) for part in parts_of(column, LISTS_AT_ONCE) for tags in part]


def _mappings(column: pa.MapArray) -> list[Any]:
    offsets = column.offsets
    if offsets[0].as_py() == offsets[-1].as_py():
        return [NO_ATTRIBUTES] * len(column)
    return [dict(pairs) or NO_ATTRIBUTES for part in parts_of(column, LISTS_AT_ONCE) for pairs in part]


def _encodings(column: pa.Int8Array) -> list[Encoding]:
    values = column.to_pylist()
    return list(map(Encoding, values)) if any(values) else [Encoding.DATA] * len(values)


_LAZY: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "types": lambda batch: values_of(batch.column("type")),
    "data": lambda batch: values_of(batch.column("data")),
    "tags": lambda batch: _lists(batch.column("tags")),
    "ids": lambda batch: values_of(batch.column("id")),
    "sources": lambda batch: values_of(batch.column("source")),
    "attributes": lambda batch: _mappings(batch.column("attributes")),
    "group_keys": lambda batch: values_of(batch.column("group_key")),
    "envelopes": lambda batch: values_of(batch.column("envelope")),
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
    from .tables import SCHEMA

    return pa.schema(list(SCHEMA)[3:])


def coded(column: pa.StringArray) -> Coded:
    """The distinct texts of a column."""
    encoded = column.dictionary_encode()
    return Coded(encoded.dictionary, numbers_of(encoded.indices))


def coded_lists(column: pa.ListArray) -> Coded:
    """The distinct texts of a column of lists."""
    terms, codes, _ = coded(column.flatten())
    return Coded(terms, codes, np.repeat(np.arange(len(column)), np.diff(offsets_of(column))))


def numbers_of(column: pa.Array) -> npt.NDArray[Any]:
    """The numbers or booleans of an array without nulls, in place.

    Arrow's own `to_numpy` imports pandas if it is installed: half a second, and 25 MB that are never used.
    """
    if pa.types.is_boolean(column.type):
        return numbers_of(column.cast(pa.uint8())).view(np.bool_)
    kind = np.dtype(f"{'i' if pa.types.is_signed_integer(column.type) else 'u'}{column.type.bit_width // 8}")
    buffer = column.buffers()[1]
    if buffer is None:  # there are none
        return np.empty(0, kind)
    return np.frombuffer(buffer, kind, len(column), kind.itemsize * column.offset)


def distinct(numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """The distinct numbers, ascending. `np.unique` hashes integers first, which takes up to 40 times as long."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def array_of(numbers: npt.NDArray[Any]) -> pa.Array:
    """Numbers or booleans as an Arrow array, in place if contiguous: the reverse of `numbers_of`.

    For the same reason it avoids `pa.array`, which asks pandas whether an array is one of its own.
    """
    if numbers.dtype == np.bool_:
        return array_of(numbers.view(np.uint8)).cast(pa.bool_())
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def lengths_of(column: pa.Array) -> Ints:
    """The number of elements of each list; 0 for null."""
    if not column.null_count and pa.types.is_list(column.type):
        return np.diff(offsets_of(column)).astype(np.int64)
    return numbers_of(pc.list_value_length(column).fill_null(0)).astype(np.int64)


def sizes_of(column: pa.Array) -> Ints:
    """The size in bytes of each value of an array without nulls."""
    offsets = offsets_of(column)
    return np.diff(offsets).astype(np.int64)


def offsets_of(column: pa.Array) -> npt.NDArray[np.int32]:
    """The offsets of an array of texts, bytes or lists. There is one more than it has values."""
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
