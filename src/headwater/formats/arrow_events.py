"""Events from Arrow: record batches become checked columns without a Python object per event.

`columns_of` takes and refuses what `core.limits.check_append` takes and refuses, with the same errors. It looks at
whole columns; only a batch that it does not find plainly fit is looked at event by event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import InvalidEvent, TooLarge
from ..core.event import NO_ATTRIBUTES, Encoding, Event
from ..core.identifier import uuid7s
from ..core.limits import (
    APPEND_BYTES_MAX,
    APPEND_EVENTS_MAX,
    ATTRIBUTE_CHARS_MAX,
    ATTRIBUTES_MAX,
    GROUP_KEY_CHARS_MAX,
    ID_CHARS_MAX,
    METADATA_BYTES,
    SOURCE_CHARS_MAX,
    TAGS_MAX,
    EventColumns,
    check_append,
    check_attribute_name,
    check_tag,
    check_type,
    has_controls,
)
from ..core.settings import LogSettings

IGNORED = ("sequence_number", "recorded_at", "log", "partition")
"""Columns of stored events that an append does not take: a batch that was read can be appended elsewhere as it is."""
EVENT_SCHEMA = pa.schema(
    [
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
"""The fields of `core.Event`, in their order: how checked events lie in Arrow."""

Ints = npt.NDArray[np.int64]
_PLAIN = bytes(range(0x20, 0x7F))


class Coded(NamedTuple):
    """The texts of a column without its repetitions."""

    terms: Sequence[str]
    """The distinct texts, in no order."""
    codes: Ints
    """Which of them each value is."""
    rows: Ints | None = None
    """Of a column of lists: the row that each value belongs to, ascending."""


class Unclear(Exception):
    """The batch is not plainly fit; event by event it will be told."""


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


def columns_of(batch: pa.RecordBatch, settings: LogSettings) -> EventColumns:
    """The events of a batch, checked as `check_append` checks them.

    Columns go by the names of `core.Event`; only `type` and `data` must be there. Texts may be of any Arrow string
    type, dictionaries too; data, envelope may be binary or text; tags a list of texts; attributes a map, or a list of
    structs of two texts. Null, as a whole value, is the default (not for `type`). The columns in IGNORED are ignored.

    Raises InvalidEvent (columns that are not there or not known, or have a wrong type; malformed Arrow; what
    `check_append` finds) and TooLarge.
    """
    check_schema(batch.schema)
    count = batch.num_rows
    if not count:
        raise InvalidEvent("an append needs at least one event", "events")
    if count > APPEND_EVENTS_MAX:
        raise TooLarge(count, APPEND_EVENTS_MAX, "events", "events")
    try:
        batch.validate(full=True)  # what comes from elsewhere may lie about its own offsets, and about UTF-8
    except pa.ArrowInvalid as error:
        raise InvalidEvent(f"malformed Arrow data: {error}", "events") from None
    try:
        return _checked(batch, settings.event_bytes_max)
    except (Unclear, pa.ArrowInvalid):
        return check_append(_events(batch), settings)


def batch_of(columns: EventColumns) -> pa.RecordBatch:
    """Checked events as a batch of EVENT_SCHEMA."""
    if isinstance(columns, ArrowColumns):
        return columns.batch
    attributes = [list(each.items()) for each in columns.attributes]
    values = (columns.types, columns.data, columns.tags, columns.ids, columns.sources, attributes, columns.group_keys,
              columns.envelopes, columns.encodings)  # fmt: skip
    arrays = [pa.array(column, field.type) for column, field in zip(values, EVENT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENT_SCHEMA)


def check_schema(schema: pa.Schema) -> None:
    """Raises InvalidEvent if events cannot be made of batches of that schema."""
    known = [*EVENT_SCHEMA.names, *IGNORED]
    seen: set[str] = set()
    for field in schema:
        if field.name not in known:
            near = get_close_matches(field.name, known, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(EVENT_SCHEMA.names)}"
            raise InvalidEvent(f"there is no column {field.name!r}{hint}", "schema")
        if field.name in seen:
            raise InvalidEvent(f"column {field.name!r} is there twice", "schema")
        seen.add(field.name)
        if field.name not in IGNORED and not pa.types.is_null(field.type) and not _FITTING[field.name](field.type):
            expected = _EXPECTED[field.name]
            raise InvalidEvent(f"column {field.name!r} has type {field.type}, {expected} is expected", "schema")
    for name in ("type", "data"):
        if name not in seen:
            raise InvalidEvent(f"there is no column {name!r}", "schema")


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    if _is_text(kind):
        return True
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_texts(kind: pa.DataType) -> bool:
    return _is_list(kind) and (_is_text(kind.value_type) or bool(pa.types.is_null(kind.value_type)))


def _is_mapping(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_text(kind.key_type) and _is_text(kind.item_type)
    if not _is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    pair = kind.value_type
    return pair.num_fields == 2 and _is_text(pair.field(0).type) and _is_text(pair.field(1).type)


_FITTING: dict[str, Callable[[pa.DataType], bool]] = {
    "type": _is_text,
    "data": _is_bytes,
    "tags": _is_texts,
    "id": _is_text,
    "source": _is_text,
    "attributes": _is_mapping,
    "group_key": _is_text,
    "envelope": _is_bytes,
    "encoding": pa.types.is_integer,
}
_EXPECTED = {
    **dict.fromkeys(("type", "id", "source", "group_key"), "string"),
    **dict.fromkeys(("data", "envelope"), "binary or string"),
    "tags": "list of strings",
    "attributes": "map of strings to strings",
    "encoding": "an integer type",
}


# Whole columns.


def _checked(batch: pa.RecordBatch, event_bytes_max: int) -> ArrowColumns:
    """The batch in EVENT_SCHEMA, its events checked. Raises Unclear, TooLarge."""
    data, envelopes = _bytes_column(batch, "data"), _bytes_column(batch, "envelope")
    data_bytes, envelope_bytes = _sizes(data), _sizes(envelopes)
    if int((data_bytes + envelope_bytes).max()) > event_bytes_max:
        raise Unclear
    size = METADATA_BYTES * batch.num_rows + int(data_bytes.sum()) + int(envelope_bytes.sum())
    types = _text_column(batch, "type", has_default=False)
    type_terms = coded(types)
    _check_each(type_terms.terms, check_type)
    size += _chars(types)
    tags, tag_terms, tag_chars = _tags_column(batch)
    ids = _label_column(batch, "id", ID_CHARS_MAX)
    sources = _label_column(batch, "source", SOURCE_CHARS_MAX)
    group_keys = _label_column(batch, "group_key", GROUP_KEY_CHARS_MAX)
    attributes, attribute_chars = _attributes_column(batch)
    size += tag_chars + attribute_chars + _chars(ids) + _chars(sources) + _chars(group_keys)
    if size > APPEND_BYTES_MAX:
        raise TooLarge(size, APPEND_BYTES_MAX, "bytes", "events")
    columns = [types, data, tags, _filled(ids), sources, attributes, group_keys, envelopes, _encoding_column(batch)]
    return ArrowColumns(pa.RecordBatch.from_arrays(columns, schema=EVENT_SCHEMA), size, type_terms, tag_terms)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column that has values, decoded; None if it is not there or has none."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return None
    column = batch.column(index)
    if column.null_count == len(column):
        return None
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def _text_column(batch: pa.RecordBatch, name: str, *, has_default: bool = True) -> pa.StringArray:
    column = _column(batch, name)
    if column is None or (column.null_count and not has_default):
        if not has_default:
            raise Unclear
        return _empty(pa.string(), batch.num_rows)
    if column.type != pa.string():
        column = column.cast(pa.string())
    return column.fill_null("") if column.null_count else column


def _bytes_column(batch: pa.RecordBatch, name: str) -> pa.BinaryArray:
    column = _column(batch, name)
    if column is None:
        return _empty(pa.binary(), batch.num_rows)
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    return column.fill_null(b"") if column.null_count else column


def _empty(kind: pa.DataType, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(b"")])


def _label_column(batch: pa.RecordBatch, name: str, chars_max: int) -> pa.StringArray:
    column = _text_column(batch, name)
    _check_labels(column, chars_max)
    return column


def _check_labels(column: pa.StringArray, chars_max: int) -> None:
    """Raises Unclear unless every text is plainly short enough, and without control characters."""
    content = content_of(column)
    if not content:
        return
    if int(_sizes(column).max()) > chars_max and pc.max(pc.utf8_length(column)).as_py() > chars_max:
        raise Unclear
    if content.translate(None, _PLAIN) and has_controls(content.decode()):
        raise Unclear


def _check_each(values: Sequence[str | None], check: Callable[[str], str | None]) -> None:
    if any(value is None or check(value) for value in values):
        raise Unclear


def _filled(ids: pa.StringArray) -> pa.StringArray:
    """Ids for those that have none."""
    missing = _sizes(ids) == 0
    count = int(missing.sum())
    if not count:
        return ids
    if count == len(ids):
        return pa.array(uuid7s(count), pa.string())
    return pc.replace_with_mask(ids, pa.array(missing), pa.array(uuid7s(count), pa.string()))


def _encoding_column(batch: pa.RecordBatch) -> pa.Int8Array:
    column = _column(batch, "encoding")
    if column is None:
        return pa.Array.from_buffers(pa.int8(), batch.num_rows, [None, pa.py_buffer(bytes(batch.num_rows))])
    if column.null_count:
        column = column.fill_null(0)
    least, most = pc.min_max(column).as_py().values()
    if least < Encoding.DATA or most > Encoding.AMQP:
        raise Unclear
    return column.cast(pa.int8())


def _tags_column(batch: pa.RecordBatch) -> tuple[pa.ListArray, Coded, int]:
    """Tags sorted and distinct per event; the same, coded; how many characters were given."""
    count = batch.num_rows
    column = _column(batch, "tags")
    if column is None or pa.types.is_null(column.type.value_type):
        if column is not None and len(column.flatten()):
            raise Unclear
        tags = pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), _empty(pa.string(), 0))
        return tags, coded_lists(tags), 0
    values, lengths = _plain_text(column.flatten()), _lengths(column)
    if int(lengths.max()) > TAGS_MAX or values.null_count:
        raise Unclear
    terms, codes, _ = coded(values)
    _check_each(terms, check_tag)
    chars = _chars(values)
    rows = np.repeat(np.arange(count), lengths)
    order = np.array(sorted(range(len(terms)), key=terms.__getitem__), np.int64)
    rank = np.empty(len(terms), np.int64)
    rank[order] = np.arange(len(terms))
    ranks = rank[codes]
    if len(ranks) and not ((ranks[1:] > ranks[:-1]) | (rows[1:] != rows[:-1])).all():
        places = np.unique(rows * len(terms) + ranks)
        rows, codes = places // len(terms), order[places % len(terms)]
        values = pa.array(terms, pa.string()).take(pa.array(codes))
        lengths = np.bincount(rows, minlength=count)
    return pa.ListArray.from_arrays(_list_offsets(lengths), values), Coded(terms, codes, rows), chars


def coded(column: pa.StringArray) -> Coded:
    """A column of texts without its repetitions."""
    encoded = column.dictionary_encode()
    return Coded(encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64))


def coded_lists(column: pa.ListArray) -> Coded:
    """The texts of a column of lists without their repetitions."""
    terms, codes, _ = coded(column.flatten())
    return Coded(terms, codes, np.repeat(np.arange(len(column)), _lengths(column)))


def _attributes_column(batch: pa.RecordBatch) -> tuple[pa.MapArray, int]:
    count = batch.num_rows
    column = _column(batch, "attributes")
    if column is None:
        empty = _empty(pa.string(), 0)
        return pa.MapArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), empty, empty), 0
    names, values, lengths = _pairs(column)
    if names.null_count or values.null_count or int(lengths.max()) > ATTRIBUTES_MAX:
        raise Unclear
    terms, codes, _ = coded(names)
    _check_each(terms, check_attribute_name)
    _check_labels(values, ATTRIBUTE_CHARS_MAX)
    places = np.repeat(np.arange(count), lengths) * max(len(terms), 1) + codes
    if len(np.unique(places)) != len(places):  # a name comes twice in one event
        raise Unclear
    return pa.MapArray.from_arrays(_list_offsets(lengths), names, values), _chars(names) + _chars(values)


def _pairs(column: pa.Array) -> tuple[pa.StringArray, pa.StringArray, Ints]:
    """The names and the values of all attributes, one after the other, and how many each event has."""
    if not pa.types.is_map(column.type):
        pairs = column.flatten()
        if pairs.null_count:
            raise Unclear
        names, values = pairs.flatten()
        return _plain_text(names), _plain_text(values), _lengths(column)
    offsets = np.asarray(column.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[np.asarray(column.is_null())] = 0
    chosen = pa.array(_ranges(offsets[:-1], lengths))
    return _plain_text(column.keys).take(chosen), _plain_text(column.items).take(chosen), lengths


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """The numbers from each start on, so many, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths))


def _lengths(column: pa.Array) -> Ints:
    """How many elements each list has; none where it is null."""
    return np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)


def _list_offsets(lengths: Ints) -> pa.Int32Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets)


def _plain_text(column: pa.Array) -> pa.StringArray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == pa.string() else column.cast(pa.string())


def _sizes(column: pa.Array) -> Ints:
    """Bytes of each value of an array without nulls."""
    offsets = offsets_of(column)
    return np.diff(offsets).astype(np.int64)


def offsets_of(column: pa.Array) -> npt.NDArray[np.int32]:
    """The offsets of an array of texts, bytes or lists: one more than it has values."""
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)


def content_of(column: pa.Array) -> bytes:
    """All values of an array of texts or bytes, joined."""
    return bytes(view_of(column))


def view_of(column: pa.Array) -> memoryview:
    """As `content_of`, in place."""
    offsets = offsets_of(column)
    buffer = column.buffers()[2]
    if buffer is None:
        return memoryview(b"")
    return memoryview(buffer.slice(offsets[0], offsets[-1] - offsets[0]))


def _chars(column: pa.StringArray) -> int:
    """How many characters all texts have together."""
    content = content_of(column)
    return len(content) if content.isascii() else len(content.decode())


# Event by event: slowly, to say what is wrong.


def _events(batch: pa.RecordBatch) -> list[Event]:
    """The events as a caller would have made them: null is the default, where there is one."""
    fields = [
        [_FROM_ARROW.get(name, _as_it_is)(value) for value in batch.column(name).to_pylist()]
        if name in batch.schema.names
        else [_FROM_ARROW.get(name, _as_it_is)(None)] * batch.num_rows
        for name in EVENT_SCHEMA.names
    ]
    return list(map(Event._make, zip(*fields, strict=True)))


def _as_it_is(value: Any) -> Any:
    return value


def _text(value: str | None) -> str:
    return value or ""


def _data(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _encoding(value: int | None) -> Any:
    return Encoding(value or 0) if value in (None, *Encoding) else value


def _mapping(value: Any) -> Any:
    if not value:
        return NO_ATTRIBUTES
    return dict(tuple(pair.values()) if isinstance(pair, dict) else pair for pair in value)


_FROM_ARROW: dict[str, Callable[[Any], Any]] = {
    "data": _data,
    "tags": lambda value: tuple(value or ()),
    "id": _text,
    "source": _text,
    "attributes": _mapping,
    "group_key": _text,
    "envelope": _data,
    "encoding": _encoding,
}


# Batches of any size.


def appends_of(batches: Iterable[pa.RecordBatch], settings: LogSettings) -> Iterator[EventColumns]:
    """Batches of one schema as the fewest appends that fit, in order: small ones together, large ones cut.

    Raises as `columns_of`; paths of errors count from the beginning of the append.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _cut(batch):
            if held and (rows + piece.num_rows > APPEND_EVENTS_MAX or size + _weight(piece) > APPEND_BYTES_MAX):
                yield from _joined(held, settings)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows += piece.num_rows
            size += _weight(piece)
    if held:
        yield from _joined(held, settings)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(min(APPEND_EVENTS_MAX, batch.num_rows * APPEND_BYTES_MAX // max(_weight(batch), 1)), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _weight(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes + METADATA_BYTES * batch.num_rows)


def _joined(batches: list[pa.RecordBatch], settings: LogSettings) -> Iterator[EventColumns]:
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    try:
        yield columns_of(batch, settings)
    except TooLarge as error:
        if error.where != "events" or batch.num_rows == 1:
            raise
        half = batch.num_rows // 2  # it takes more than it weighs
        yield from _joined([batch.slice(0, half)], settings)
        yield from _joined([batch.slice(half)], settings)
