"""Converts text tables to events, column by column: like `tabular.row_reader`, but many times faster.

Rows that are not clearly events go to the row reader, which reports the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....core.errors import InvalidInput
from ....formats.arrow.columns import EVENT_SCHEMA, content_of
from ....formats.files.tabular import NOTHING, TableMapping, row_reader
from ....formats.foreign import derived_id, fit_tag, rfc3339

_ESCAPED = bytes(range(0x20)) + b'"\\'
"""The bytes that JSON escapes."""
_NOTHING = pa.array(sorted(NOTHING), pa.string())

Mask = npt.NDArray[np.bool_]


class Mapped(NamedTuple):
    """The result for some rows."""

    events: pa.RecordBatch
    """Events in EVENT_SCHEMA, without the fields that no table has. There is one for each True in `is_event`."""
    is_event: Mask
    problems: list[tuple[int, str]]
    """The index of each other row, and why it is not an event."""


class TableReader:
    """Converts the rows of one table to events. The mapping must be one checked by `tabular.guessed`."""

    def __init__(self, header: Sequence[str], mapping: TableMapping) -> None:
        self._mapping, self._width = mapping, len(header)
        self._event_of = row_reader(header, mapping)
        self._places = {name: at for at, name in enumerate(header)}
        """If two columns have the same name, the data uses the last one, and everything else uses the first."""
        named = (mapping.type_column, mapping.time_column, mapping.id_column)
        self._type, self._time, self._id = (None if name is None else header.index(name) for name in named)
        self._tags = [(key, header.index(column)) for column, key in mapping.tags if key]
        self._tags.sort(key=_order)
        """In the order in which an event has them,"""
        self._has_order = len(set(map(_order, self._tags))) == len(self._tags)
        """unless two have the same key."""
        self._keyless = [header.index(column) for column, key in mapping.tags if not key]

    def events(self, rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> Mapped:
        """The events of rows of UTF-8, with these row numbers."""
        is_event = np.fromiter((len(row) == self._width for row in rows), bool, len(rows))
        columns = _columns(list(compress(rows, is_event)), self._width)
        assert self._type is not None
        is_fit = pc.not_equal(columns[self._type], "")
        if self._id is not None:
            is_fit = pc.and_(is_fit, pc.not_equal(columns[self._id], ""))
        for at in self._keyless:
            is_fit = pc.and_(is_fit, pc.is_in(columns[at], _NOTHING))
        times, is_read = self._times(columns)
        is_fit = pc.and_(is_fit, is_read)
        if not pc.all(is_fit).as_py():
            columns = [column.filter(is_fit) for column in columns]
            times = times.filter(is_fit)
        is_event[is_event] = np.asarray(is_fit)
        events = self._batch(columns, times, list(compress(numbers, is_event)))
        problems = [(at, self._problem(rows[at], numbers[at])) for at in np.flatnonzero(~is_event).tolist()]
        return Mapped(events, is_event, problems)

    def _problem(self, row: Sequence[str], number: int) -> str:
        try:
            self._event_of(row, number)
        except InvalidInput as error:
            return str(error)
        raise AssertionError(f"row {number} is a valid event on its own, but not together with the other rows")

    def _times(self, columns: Sequence[pa.StringArray]) -> tuple[pa.StringArray, pa.BooleanArray]:
        """The times, null if missing, and whether each is either valid or missing."""
        if self._time is None:
            count = len(columns[0])
            return pa.nulls(count, pa.string()), pa.array(np.ones(count, bool))
        given = _where_any(columns[self._time])
        times = _each(given, self._time_of)
        return times, pc.equal(times.is_valid(), given.is_valid())

    def _time_of(self, text: str) -> str | None:
        try:
            return rfc3339(text, self._mapping.time_format)
        except InvalidInput:
            return None

    def _batch(
        self, columns: Sequence[pa.StringArray], times: pa.StringArray, numbers: Sequence[int]
    ) -> pa.RecordBatch:
        assert self._type is not None
        fields = {
            "type": columns[self._type],
            "data": self._data(columns),
            "tags": self._tag_lists(columns),
            "id": self._derived(columns, numbers) if self._id is None else columns[self._id],
            "source": pa.repeat(pa.scalar(self._mapping.source, pa.string()), len(numbers)),
            "attributes": _attributes(times),
        }
        schema = pa.schema([EVENT_SCHEMA.field(name) for name in fields])
        return pa.RecordBatch.from_arrays(list(fields.values()), schema=schema)

    def _data(self, columns: Sequence[pa.StringArray]) -> pa.BinaryArray:
        """Each row as a JSON object."""
        parts: list[pa.StringArray | str] = []
        for name, at in self._places.items():
            parts += ["{" if not parts else ",", msgspec.json.encode(name).decode() + ":", *_json(columns[at])]
        return pc.binary_join_element_wise(*parts, "}", "").cast(pa.binary())

    def _tag_lists(self, columns: Sequence[pa.StringArray]) -> pa.ListArray:
        """The tags of each event, in order."""
        given = [_each(_where_any(columns[at]), _tagged(key)) for key, at in self._tags]
        kind = EVENT_SCHEMA.field("tags").type
        if given and self._has_order:
            return _lists(given, kind)
        rows = zip(*(column.to_pylist() for column in given), strict=True) if given else [()] * len(columns[0])
        return pa.array([sorted(set(row) - {None}) for row in rows], kind)

    def _derived(self, columns: Sequence[pa.StringArray], numbers: Sequence[int]) -> pa.StringArray:
        source = self._mapping.source
        contents = pc.binary_join_element_wise(*columns, "\x1f").to_pylist()
        ids = [derived_id(source, number, content) for number, content in zip(numbers, contents, strict=True)]
        return pa.array(ids, pa.string())


def _columns(rows: Sequence[Sequence[str]], width: int) -> list[pa.StringArray]:
    given: Iterable[Sequence[str]] = zip(*rows, strict=True) if rows else [()] * width
    return [pa.array(column, pa.string()) for column in given]


def _where_any(column: pa.StringArray) -> pa.StringArray:
    """Returns null for cells that represent no value."""
    return pc.if_else(pc.is_in(column, _NOTHING), pa.scalar(None, pa.string()), column)


def _order(tag: tuple[str, int]) -> str:
    """Tags with different keys are sorted by this."""
    return fit_tag(tag[0], "x").removesuffix("x")


def _tagged(key: str) -> Callable[[str], str]:
    return lambda value: fit_tag(key, value)


def _each(column: pa.StringArray, made: Callable[[str], str | None]) -> pa.StringArray:
    """The result for each text, null for null; repeated texts are converted once."""
    texts = column.dictionary_encode()
    return pa.array([made(text) for text in texts.dictionary.to_pylist()], pa.string()).take(texts.indices)


def _json(column: pa.StringArray) -> tuple[str | pa.StringArray, ...]:
    """The parts of the texts in their JSON form."""
    content = content_of(column)
    if len(content.translate(None, _ESCAPED)) == len(content):
        return '"', column, '"'
    return (pa.array([msgspec.json.encode(text).decode() for text in column.to_pylist()], pa.string()),)


def _lists(columns: Sequence[pa.StringArray], kind: pa.ListType) -> pa.ListArray:
    """The values of each row that are not null, in the order of the columns."""
    count = len(columns[0])
    by_row = np.arange(len(columns) * count).reshape(len(columns), count).T.ravel()
    values = pa.concat_arrays(list(columns)).take(pa.array(by_row))
    lengths = sum(np.asarray(column.is_valid()).astype(np.int32) for column in columns)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values.drop_null()).cast(kind)


def _attributes(times: pa.StringArray) -> pa.MapArray:
    """The content type JSON, and the time, if any."""
    kind = EVENT_SCHEMA.field("attributes").type
    has_time = times.is_valid()
    types = pa.repeat(pa.scalar("application/json", pa.string()), len(times))
    names = [pa.repeat(pa.scalar("datacontenttype"), len(times)),
             pc.if_else(has_time, pa.scalar("time"), pa.scalar(None, pa.string()))]  # fmt: skip
    keys, values = _lists(names, pa.list_(pa.string())), _lists([types, times], pa.list_(pa.string()))
    return pa.MapArray.from_arrays(keys.offsets, keys.values, values.values).cast(kind)
