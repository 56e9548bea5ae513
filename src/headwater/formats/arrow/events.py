"""Events from Arrow: record batches become checked columns without a Python object per event.

`columns_of` accepts and refuses what `core.limits.check_append` does, with the same errors. It checks whole columns;
only a batch that is not plainly valid is checked event by event.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.attribute_rules import PLAIN_TIME, RULES
from ...core.errors import InvalidEvent, TooLarge
from ...core.event import NO_ATTRIBUTES, Encoding, Event
from ...core.identifier import uuid7s
from ...core.limits import (
    APPEND_BYTES_MAX,
    APPEND_EVENTS_MAX,
    ATTRIBUTE_CHARS_MAX,
    ATTRIBUTES_MAX,
    GROUP_KEY_CHARS_MAX,
    ID_CHARS_MAX,
    METADATA_BYTES,
    SOURCE_CHARS_MAX,
    TAG_BYTES_MAX,
    TAGS_MAX,
    TYPE_CHARS_MAX,
    EventColumns,
    check_attribute_name,
    check_message,
    has_controls,
    show,
)
from ...core.log import ArrowBatch
from ...core.loop.append_builder import PART_EVENTS, AppendBuilder
from ...core.settings import LogSettings
from .columns import (
    EVENT_SCHEMA,
    ArrowColumns,
    Ints,
    array_of,
    buffer_of,
    coded,
    content_of,
    distinct,
    lengths_of,
    numbers_of,
    offsets_of,
    parts_of,
    sizes_of,
)
from .schema import check_schema, is_list

_PLAIN = bytes(range(0x20, 0x7F))
PIECE_BYTES = 1024 * 1024
ORDERED_AT_ONCE = 32 * 1024
"""How many texts are sorted at once. This takes some ms."""
_utf8_decoder = codecs.getincrementaldecoder("utf-8")
_ZEROS = pa.py_buffer(bytes(4 * (APPEND_EVENTS_MAX + 1)))
"""Offsets of empty texts and lists, from which missing columns are built."""
_NOTHING = pa.py_buffer(b"")


class Unclear(Exception):
    """The batch is not plainly valid; it must be checked event by event."""


def columns_of(
    given: ArrowBatch,
    settings: LogSettings,
    completed: Callable[[Sequence[Event]], Sequence[Event]] | None = None,
) -> EventColumns:
    """The events of a batch, checked as by `check_append`.

    Columns are named like the fields of `core.Event`; only `type` and `data` are required. Texts may be of any Arrow
    string type, including dictionaries; data and envelope may be binary or text; tags a list of texts; attributes a
    map, or a list of structs of two texts. A null value is the default (except for `type`). The columns in IGNORED are
    ignored. With `completed`, which adds to events what only the whole append determines, they are created one by one.

    Raises InvalidEvent (missing or unknown columns, or a wrong type; malformed Arrow; errors of `check_append`) and
    TooLarge.
    """
    batch = record_batch_of(given)
    check_schema(batch.schema)
    count = batch.num_rows
    if not count:
        raise InvalidEvent("an append needs at least one event", "events")
    if count > APPEND_EVENTS_MAX:
        raise TooLarge(count, APPEND_EVENTS_MAX, "events", "events")
    check_valid(batch)
    if completed is None:
        with suppress(Unclear, pa.ArrowInvalid):
            return _checked(batch, settings.event_bytes_max)
    return _one_by_one(batch, AppendBuilder(settings.event_bytes_max, completed))


def record_batch_of(given: ArrowBatch) -> pa.RecordBatch:
    """The given batch as a `pyarrow.RecordBatch`. Raises InvalidEvent for anything else."""
    if isinstance(given, pa.RecordBatch):
        return given
    if not hasattr(given, "__arrow_c_array__"):
        raise InvalidEvent(f"expected a pyarrow.RecordBatch, got {show(given)}", "events")
    try:
        return pa.record_batch(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidEvent(f"not an Arrow batch: {error}", "events") from None


def check_valid(batch: pa.RecordBatch) -> None:
    """Raises InvalidEvent if a batch has invalid offsets or UTF-8, as one from outside may."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidEvent(f"malformed Arrow data: {error}", "events") from None


# Whole columns.


def _checked(batch: pa.RecordBatch, event_bytes_max: int) -> ArrowColumns:
    """The batch in EVENT_SCHEMA, with its events checked. Raises Unclear, TooLarge."""
    data, envelopes = _bytes_column(batch, "data"), _bytes_column(batch, "envelope")
    payload = _payload_bytes(data, envelopes, event_bytes_max)
    types = _text_column(batch, "type", has_default=False)
    chars = _check_texts(types, TYPE_CHARS_MAX, least=1)
    tags, tag_chars = _tags_column(batch)
    ids, id_chars = _label_column(batch, "id", ID_CHARS_MAX)
    sources, source_chars = _label_column(batch, "source", SOURCE_CHARS_MAX)
    group_keys, key_chars = _label_column(batch, "group_key", GROUP_KEY_CHARS_MAX)
    attributes, attribute_chars = _attributes_column(batch)
    chars += tag_chars + id_chars + source_chars + key_chars + attribute_chars
    size = METADATA_BYTES * batch.num_rows + payload + chars
    if size > APPEND_BYTES_MAX:
        raise TooLarge(size, APPEND_BYTES_MAX, "bytes", "events")
    encodings = _encoding_column(batch)
    _check_messages(data, envelopes, encodings)
    columns = [types, data, tags, _filled(ids), sources, attributes, group_keys, envelopes, encodings]
    return ArrowColumns(pa.RecordBatch.from_arrays(columns, schema=EVENT_SCHEMA), size, is_gated=True)


def _payload_bytes(data: pa.BinaryArray, envelopes: pa.BinaryArray, event_bytes_max: int) -> int:
    """The total size of all data and envelopes in bytes. Raises Unclear if an event is too large."""
    sizes = np.diff(offsets_of(data))
    if envelope_bytes := buffer_of(envelopes).size:
        sizes = sizes.astype(np.int64) + np.diff(offsets_of(envelopes))
    if int(sizes.max()) > event_bytes_max:
        raise Unclear
    return int(buffer_of(data).size + envelope_bytes)


def _check_messages(data: pa.BinaryArray, envelopes: pa.BinaryArray, encodings: pa.Int8Array) -> None:
    """Raises InvalidEvent if an event is an AMQP message that some receivers cannot decode."""
    is_message = (sizes_of(envelopes) > 0) | (numbers_of(encodings) != Encoding.DATA)
    for index in np.flatnonzero(is_message).tolist():
        encoding = Encoding(encodings[index].as_py())
        check_message(index, data[index].as_py(), envelopes[index].as_py(), encoding)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """A column that has values, decoded; None if it is absent or has none."""
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
    return pa.Array.from_buffers(kind, count, [None, _zeros(4 * (count + 1)), _NOTHING])


def _zeros(size: int) -> pa.Buffer:
    return _ZEROS.slice(0, size)


def _label_column(batch: pa.RecordBatch, name: str, chars_max: int) -> tuple[pa.StringArray, int]:
    """The column, and the number of its characters."""
    column = _text_column(batch, name)
    return column, _check_texts(column, chars_max)


def _check_texts(column: pa.StringArray, chars_max: int, *, least: int = 0) -> int:
    """The total number of characters of all texts.

    Raises Unclear unless every text plainly has `least` to `chars_max` characters, without control characters.
    """
    if not (buffer_of(column).size or least):
        return 0
    sizes = np.diff(offsets_of(column))
    if least and int(sizes.min()) < least:
        raise Unclear
    if int(sizes.max()) > chars_max and pc.max(pc.utf8_length(column)).as_py() > chars_max:
        raise Unclear
    return _plain_chars(column)


def _plain_chars(column: pa.StringArray) -> int:
    """The total number of characters of all texts. Raises Unclear for control characters."""
    chars, decoder = 0, None
    for content in _pieces(column):
        if decoder is None and not content.translate(None, _PLAIN):
            chars += len(content)
            continue
        decoder = decoder or _utf8_decoder()
        text = decoder.decode(content)
        if has_controls(text):
            raise Unclear
        chars += len(text)
    return chars


def _pieces(column: pa.Array) -> Iterator[bytes]:
    """All values joined, a piece at a time, because no other thread runs while a piece is checked."""
    content = memoryview(buffer_of(column))
    return (bytes(content[start : start + PIECE_BYTES]) for start in range(0, len(content), PIECE_BYTES))


def _check_each(values: Sequence[str | None], check: Callable[[str], str | None]) -> None:
    if any(value is None or check(value) for value in values):
        raise Unclear


def _filled(ids: pa.StringArray) -> pa.StringArray:
    """The ids. New ones are created where they are missing."""
    missing = sizes_of(ids) == 0
    count = int(missing.sum())
    if not count:
        return ids
    if count == len(ids):
        return pa.array(uuid7s(count), pa.string())
    return pc.replace_with_mask(ids, array_of(missing), pa.array(uuid7s(count), pa.string()))


def _encoding_column(batch: pa.RecordBatch) -> pa.Int8Array:
    column = _column(batch, "encoding")
    if column is None:
        return pa.Array.from_buffers(pa.int8(), batch.num_rows, [None, _zeros(batch.num_rows)])
    if column.null_count:
        column = column.fill_null(0)
    least, most = pc.min_max(column).as_py().values()
    if least < Encoding.DATA or most > Encoding.AMQP:
        raise Unclear
    return column.cast(pa.int8())


def _tags_column(batch: pa.RecordBatch) -> tuple[pa.ListArray, int]:
    """The sorted and distinct tags of each event, and how many characters were given."""
    count = batch.num_rows
    column = _column(batch, "tags")
    if column is None or pa.types.is_null(column.type.value_type):
        if column is not None and len(column.flatten()):
            raise Unclear
        return pa.ListArray.from_arrays(_no_lists(count), _empty(pa.string(), 0)), 0
    values, lengths = _plain_text(column.flatten()), lengths_of(column)
    if int(lengths.max()) > TAGS_MAX or values.null_count:
        raise Unclear
    sizes = np.diff(offsets_of(values))
    if len(sizes) and not 1 <= int(sizes.min()) <= int(sizes.max()) <= TAG_BYTES_MAX:
        raise Unclear
    chars = _plain_chars(values)
    offsets = _list_offsets(lengths)
    if not _are_ascending(values, offsets):
        values, lengths = _in_order(values, offsets)
        offsets = _list_offsets(lengths)
    return pa.ListArray.from_arrays(array_of(offsets), values), chars


def _are_ascending(values: pa.StringArray, offsets: npt.NDArray[np.int32]) -> bool:
    """Whether the texts of each list are sorted and distinct, as they usually are: UTF-8 sorts like its characters."""
    if len(values) < 2:
        return True
    is_fine = numbers_of(pc.less(values.slice(0, len(values) - 1), values.slice(1)))
    if is_fine.all():
        return True
    starts = offsets[1:-1]  # a list may begin with any text
    is_fine[starts[(starts > 0) & (starts < len(values))] - 1] = True
    return bool(is_fine.all())


def _in_order(values: pa.StringArray, offsets: npt.NDArray[np.int32]) -> tuple[pa.StringArray, Ints]:
    """The texts of each row sorted and distinct, and how many each row has; processed some rows at a time."""
    texts, lengths = [], []
    start, count = 0, len(offsets) - 1
    while start < count:
        end = max(int(np.searchsorted(offsets, offsets[start] + ORDERED_AT_ONCE, "right")) - 1, start + 1)
        part, its_lengths = _part_in_order(values[offsets[start] : offsets[end]], np.diff(offsets[start : end + 1]))
        texts.append(part)
        lengths.append(its_lengths)
        start = end
    return pa.concat_arrays(texts), np.concatenate(lengths)


def _part_in_order(values: pa.StringArray, lengths: Ints) -> tuple[pa.StringArray, Ints]:
    encoded = values.dictionary_encode()
    terms = encoded.dictionary
    order = numbers_of(pc.array_sort_indices(terms)).astype(np.int64)
    rank = np.empty(len(terms), np.int64)
    rank[order] = np.arange(len(terms))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = distinct(rows * len(terms) + rank[numbers_of(encoded.indices)])
    if not len(terms):
        return values, np.zeros(len(lengths), np.int64)
    return terms.take(array_of(order[places % len(terms)])), np.bincount(places // len(terms), minlength=len(lengths))


def _attributes_column(batch: pa.RecordBatch) -> tuple[pa.MapArray, int]:
    count = batch.num_rows
    column = _column(batch, "attributes")
    if column is None:
        empty = _empty(pa.string(), 0)
        return pa.MapArray.from_arrays(_no_lists(count), empty, empty), 0
    names, values, lengths = _pairs(column)
    if names.null_count or values.null_count or int(lengths.max()) > ATTRIBUTES_MAX:
        raise Unclear
    terms, codes, _ = coded(names)
    _check_each(terms.to_pylist(), check_attribute_name)
    chars = _chars(names) + _check_texts(values, ATTRIBUTE_CHARS_MAX)
    places = np.repeat(np.arange(count), lengths) * max(len(terms), 1) + codes.astype(np.int64)
    if len(distinct(places)) != len(places):  # an event has a name twice
        raise Unclear
    _check_rules(terms, codes, values)
    return pa.MapArray.from_arrays(array_of(_list_offsets(lengths)), names, values), chars


def _check_rules(names: pa.StringArray, codes: npt.NDArray[np.int32], values: pa.StringArray) -> None:
    """Raises Unclear if the value of an attribute breaks the rule for its name."""
    for code, name in enumerate(names.to_pylist()):
        rule = RULES.get(name)
        if rule is not None:
            given = values.filter(array_of(codes == code))
            if name == "time":  # rarely the same twice
                given = given.filter(pc.invert(pc.match_substring_regex(given, f"^(?:{PLAIN_TIME})$")))
            else:
                given = given.unique()
            for part in parts_of(given):
                if any(map(rule, part)):
                    raise Unclear


def _pairs(column: pa.Array) -> tuple[pa.StringArray, pa.StringArray, Ints]:
    """The names and values of all attributes, one after the other, and how many each event has."""
    if not pa.types.is_map(column.type):
        pairs = column.flatten()
        if pairs.null_count:
            raise Unclear
        names, values = pairs.flatten()
        return _plain_text(names), _plain_text(values), lengths_of(column)
    offsets = numbers_of(column.offsets).astype(np.int64)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[numbers_of(column.is_null())] = 0
    chosen = array_of(_ranges(offsets[:-1], lengths))
    return _plain_text(column.keys).take(chosen), _plain_text(column.items).take(chosen), lengths


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """For each start, the next `length` numbers, one range after the other."""
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths))


def _list_offsets(lengths: Ints) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _no_lists(count: int) -> pa.Int32Array:
    """The offsets of `count` empty lists."""
    return pa.Array.from_buffers(pa.int32(), count + 1, [None, _zeros(4 * (count + 1))])


def _plain_text(column: pa.Array) -> pa.StringArray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == pa.string() else column.cast(pa.string())


def _chars(column: pa.StringArray) -> int:
    """The total number of characters of all texts."""
    content = content_of(column)
    return len(content) if content.isascii() else len(content.decode())


# Event by event: slow, to report what is wrong.


def _one_by_one(batch: pa.RecordBatch, builder: AppendBuilder) -> EventColumns:
    """This is done in parts, because other threads wait while the values of a column are created."""
    _check_attribute_counts(batch)
    for start in range(0, batch.num_rows, PART_EVENTS):
        builder.add(_events(batch.slice(start, PART_EVENTS)))
    return builder.columns()


def _check_attribute_counts(batch: pa.RecordBatch) -> None:
    """Raises InvalidEvent if an event has too many attributes, before all of them become objects."""
    if (column := _column(batch, "attributes")) is None:
        return
    counts = np.diff(numbers_of(column.offsets)) if pa.types.is_map(column.type) else lengths_of(column)
    if int(counts.max()) > ATTRIBUTES_MAX:
        index = int(np.argmax(counts > ATTRIBUTES_MAX))
        problem = f"{counts[index]} attributes given, at most {ATTRIBUTES_MAX} are allowed"
        raise InvalidEvent(problem, f"events[{index}].attributes")


def _events(batch: pa.RecordBatch) -> list[Event]:
    """The events as a caller would have created them. Null becomes the default, if there is one."""
    fields = [
        [_FROM_ARROW.get(name, _as_it_is)(value) for value in _objects(batch.column(name))]
        if name in batch.schema.names
        else [_FROM_ARROW.get(name, _as_it_is)(None)] * batch.num_rows
        for name in EVENT_SCHEMA.names
    ]
    return list(map(Event._make, zip(*fields, strict=True)))


def _objects(column: pa.Array) -> list[Any]:
    """The values as objects, of lists at most one text more than allowed.

    The extra one shows how many there are. Null texts take no bytes, so a stream of a few hundred bytes could fill the
    memory.
    """
    kind = column.type
    if not is_list(kind) or pa.types.is_struct(kind.value_type) or int(lengths_of(column).max()) <= TAGS_MAX:
        values: list[Any] = column.to_pylist()
        return values
    return [each.values.slice(0, TAGS_MAX + 1).to_pylist() if each.is_valid else None for each in column]


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
    if None in value:  # not usable, as the check will report
        return value
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


def appends_of(
    batches: Iterable[pa.RecordBatch], settings: LogSettings, bytes_max: int = APPEND_BYTES_MAX
) -> Iterator[EventColumns]:
    """Batches of one schema as the fewest appends that fit, in order: joins small ones and splits large ones.

    An append has at most `bytes_max`, or one event. Raises the same errors as `columns_of`; paths of errors count from
    the beginning of the append."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _cut(batch, bytes_max):
            if held and (rows + piece.num_rows > APPEND_EVENTS_MAX or size + _weight(piece) > bytes_max):
                yield from _joined(held, settings, bytes_max)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows += piece.num_rows
            size += _weight(piece)
    if held:
        yield from _joined(held, settings, bytes_max)


def _cut(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    step = max(min(APPEND_EVENTS_MAX, batch.num_rows * bytes_max // max(_weight(batch), 1)), 1)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _weight(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes + METADATA_BYTES * batch.num_rows)


def _joined(batches: list[pa.RecordBatch], settings: LogSettings, bytes_max: int) -> Iterator[EventColumns]:
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    try:
        columns = columns_of(batch, settings)
        if columns.bytes > bytes_max and batch.num_rows > 1:
            raise TooLarge(columns.bytes, bytes_max, "bytes", "events")
    except TooLarge as error:
        if error.where != "events" or batch.num_rows == 1:
            raise
        half = batch.num_rows // 2  # its counted bytes exceed its estimated weight
        yield from _joined([batch.slice(0, half)], settings, bytes_max)
        yield from _joined([batch.slice(half)], settings, bytes_max)
    else:
        yield columns
