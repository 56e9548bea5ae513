"""Encodes frames from the events of a group commit, or in two steps if they are in a file before they have numbers."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from itertools import accumulate, chain
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from ...core.limits import EventColumns
from ...formats.arrow.columns import ArrowColumns, buffer_of, numbers_of, offsets_of
from ...formats.arrow.lazy import pa
from .crc import extended_crc, joined_crc
from .layout import (
    CONTROL_LENGTH,
    DIRECTORY,
    DIRECTORY_SLOTS,
    FORMAT_VERSION,
    GATED_FEATURE,
    HEADER,
    HEADER_BYTES,
    LEAD,
    MAGIC,
    MARKS_FEATURE,
    Column,
    Control,
    FrameMark,
)

JOINED_BYTES_MAX = 1024 * 1024
"""The buffers of a larger frame are written in place: joining them costs more than writing them one by one."""
PART_LISTS = 128
"""The number of lists of texts to join in one call: with the maximum number of tags, that takes about 2 ms."""
_OFFSETS_ONE_BY_ONE = 64
Content: TypeAlias = "bytes | pa.Buffer"
_ColumnOfValues: TypeAlias = tuple[int, Sequence[Any], str | bytes | None]
"""The slot of its offsets; texts, bytes or lists; those joined, for the next slot, or None for lists."""
_new = tuple.__new__
_TWO_OFFSETS = Struct("=2i")
_PADDING = [b"\0" * count for count in range(8)]


class Chain(NamedTuple):
    """The fields that link a frame to its log, taken from the state of the writer."""

    crc_seed: int
    """The log's secret seed: no payload can pass for a frame of it."""
    epoch: int
    previous_crc: int
    durable_upto: int
    nonce: int


class EncodedFrame(NamedTuple):
    """A frame ready to be written."""

    first: int
    last: int
    recorded_at: int
    crc: int
    length: int
    buffers: list[Content]
    """The whole frame; or only its head if the body is already in a file."""
    staged: AdoptedFile | None = None
    """The file that becomes a segment. Then there are no buffers, and the other fields cover all of its frames."""


class AdoptedFile(NamedTuple):
    """A staged file and the heads of its frames, which are not written yet."""

    path: Path
    inode: tuple[int, int]
    """Device and inode number of the file that was checked."""
    end: int
    frames: list[tuple[int, EncodedFrame]]
    """The frames, each with its offset."""


class EncodedBody(NamedTuple):
    """A frame without the parts that only the log knows: its header and marks."""

    buffers: list[Content]
    length: int
    """The length of the whole frame."""
    directory: list[int]
    events: int
    tags: int


def encode(
    columns: EventColumns,
    partitions: Sequence[int],
    first: int,
    recorded_at: int,
    chain_: Chain,
    marks: Sequence[FrameMark] = (),
) -> EncodedFrame:
    """Encode these events as one frame, numbered from `first` on. Never fails on checked events."""
    body = _Body()
    if any(partitions):
        body.add(Column.PARTITION, array("H", partitions).tobytes())
    tags_count = body.add_arrow([columns.batch]) if isinstance(columns, ArrowColumns) else _add_columns(body, columns)
    if marks:
        body.add_control(Control(tuple(marks)))
    if columns.is_gated:
        body.features |= GATED_FEATURE
    header = _header(body.length, body.features, columns.count, tags_count, first, recorded_at, chain_)
    rest = [header, DIRECTORY.pack(*body.directory), *body.buffers]
    if body.length < JOINED_BYTES_MAX:
        rest = [b"".join(rest)]
    crc = chain_.crc_seed
    for buffer in rest:
        crc = extended_crc(crc, buffer)
    last, buffers = first + columns.count - 1, [LEAD.pack(MAGIC, crc), *rest]
    return _new(EncodedFrame, (first, last, recorded_at, crc, body.length, buffers, None))


def encode_body(batches: Sequence[pa.RecordBatch], room: int) -> EncodedBody:
    """Encode the events of these batches of EVENT_SCHEMA as the body of a frame, after a head of `room` bytes.

    See `encode_head`. Values are not copied: only offsets are rebuilt.
    """
    body = _Body(room)
    tags = body.add_arrow(batches)
    return EncodedBody(body.buffers, body.length, body.directory, sum([batch.num_rows for batch in batches]), tags)


def encode_head(
    body: EncodedBody,
    room: int,
    body_crc: int,
    first: int,
    recorded_at: int,
    chain_: Chain,
    mark: FrameMark,
    *,
    is_gated: bool,
) -> EncodedFrame:
    """The frame for a body with that checksum: its buffer is the head, padded to the room reserved for it."""
    head = _Body(HEADER_BYTES)
    head.add_control(Control((mark,)))
    if is_gated:
        head.features |= GATED_FEATURE
    assert head.length <= room
    head.buffers.append(bytes(room - head.length))
    directory = [here or there for here, there in zip(head.directory, body.directory, strict=True)]
    header = _header(body.length, head.features, body.events, body.tags, first, recorded_at, chain_)
    rest = b"".join([header, DIRECTORY.pack(*directory), *head.buffers])
    crc = joined_crc(extended_crc(chain_.crc_seed, rest), body_crc, body.length - room)
    buffers: list[Content] = [LEAD.pack(MAGIC, crc) + rest]
    return EncodedFrame(first, first + body.events - 1, recorded_at, crc, body.length, buffers)


def head_room(writer: str) -> int:
    """The maximum size of a frame's head with a mark of that writer, whatever its numbers."""
    most = (1 << 63) - 1
    head = _Body(HEADER_BYTES)
    head.add_control(Control((FrameMark(writer, most, most, True, most, most, most, most, most),)))
    return head.length


def _add_columns(body: _Body, columns: EventColumns) -> int:
    """Add all columns except the partitions; returns the number of tags."""
    if any(columns.encodings):
        body.add(Column.ENCODING, bytes(columns.encodings))
    ids, sources, types = columns.ids, columns.sources, columns.types
    named: list[_ColumnOfValues] = [(Column.ID, ids, "".join(ids)), (Column.TYPE, types, "".join(types))]
    if any(sources):
        named.insert(1, (Column.SOURCE, sources, "".join(sources)))
    tags_count = body.add_members(named, Column.TAG_LISTS, Column.TAG, columns.tags)
    if any(columns.group_keys):
        named.append((Column.GROUP_KEY, columns.group_keys, "".join(columns.group_keys)))
    if any(columns.attributes):
        body.add_members(named, Column.ATTRIBUTE_LISTS, Column.ATTRIBUTE_NAME, columns.attributes)
        values = [attributes.values() for attributes in columns.attributes]
        body.add_members(named, None, Column.ATTRIBUTE_VALUE, values)
    if any(columns.envelopes):
        named.append((Column.ENVELOPE, columns.envelopes, b"".join(columns.envelopes)))
    named.append((Column.DATA, columns.data, b"".join(columns.data)))
    body.add_columns(named)
    return tags_count


class _Body:
    """The buffers of a frame under construction, and their offsets."""

    def __init__(self, length: int = HEADER_BYTES) -> None:
        """`length`: where the first buffer begins."""
        self.buffers: list[Content] = []
        self.length = length
        self.directory = [0] * DIRECTORY_SLOTS
        self.features = 0

    def add(self, slot: int, *pieces: Content) -> None:
        """Add a buffer, in pieces, up to a multiple of eight bytes."""
        self.directory[slot] = self.length
        self.buffers += pieces
        size = sum(map(len, pieces))
        if rest := -size & 7:
            self.buffers.append(_PADDING[rest])
        self.length += size + rest

    def add_columns(self, columns: Sequence[_ColumnOfValues]) -> None:
        """Add the offsets and the joined values of some columns. One loop, because each append calls it."""
        buffers, directory, length = self.buffers, self.directory, self.length
        for slot, values, joined in columns:
            if isinstance(joined, str):
                values = values if joined.isascii() else [value.encode() for value in values]
                joined = joined.encode()
            count = len(values)
            if count == 1:
                offsets = _TWO_OFFSETS.pack(0, len(values[0]))
            elif count <= _OFFSETS_ONE_BY_ONE:
                offsets = array("i", accumulate(map(len, values), initial=0)).tobytes()
            else:
                offsets = _offsets(values)
            directory[slot] = length
            buffers += (offsets,) if count & 1 else (offsets, _PADDING[4])
            length += 4 * (count + 1 + (count & 1 ^ 1))
            if joined is not None:
                directory[slot + 1] = length
                size = len(joined)
                rest = -size & 7
                buffers += (joined, _PADDING[rest]) if rest else (joined,)
                length += size + rest
        self.length = length

    def add_members(
        self, named: list[_ColumnOfValues], lists_slot: int | None, slot: int, lists: Sequence[Collection[str]]
    ) -> int:
        """Add the texts in these lists and the list offsets; nothing if all are empty. Returns the number of texts.

        They join `named`, the columns to add next. Many lists are added at once, behind those, and in parts: a single
        call for a few million texts would block all other threads.
        """
        if len(lists) <= PART_LISTS:
            texts = list(chain.from_iterable(lists))
            if texts and lists_slot is not None:
                named.append((lists_slot, lists, None))
            if texts:
                named.append((slot, texts, "".join(texts)))
            return len(texts)
        self.add_columns(named)
        named.clear()
        lengths: list[npt.NDArray[np.int32]] = [np.zeros(1, np.int32)]
        encoded: list[bytes] = []
        for start in range(0, len(lists), PART_LISTS):
            part = list(chain.from_iterable(lists[start : start + PART_LISTS]))
            content, its_lengths = _encoded(part)
            encoded.append(content)
            lengths.append(its_lengths)
        offsets = np.cumsum(np.concatenate(lengths), dtype=np.int32)
        if len(offsets) > 1:
            if lists_slot is not None:
                self.add(lists_slot, _offsets(lists))
            self.add(slot, offsets.tobytes())
            self.add(slot + 1, b"".join(encoded))
        return len(offsets) - 1

    def add_arrow(self, batches: Sequence[pa.RecordBatch]) -> int:
        """Add the columns of batches of EVENT_SCHEMA, with their buffers unchanged. Returns the number of tags."""

        def columns(name: str) -> list[pa.Array]:
            return [batch.column(name) for batch in batches]

        encodings = b"".join([numbers_of(column).tobytes() for column in columns("encoding")])
        if any(encodings):
            self.add(Column.ENCODING, encodings)
        self.add_values(Column.ID, columns("id"))
        self.add_if_any(Column.SOURCE, columns("source"))
        self.add_values(Column.TYPE, columns("type"))
        tags, attributes = columns("tags"), columns("attributes")
        if tags_count := self.add_lists(Column.TAG_LISTS, tags):
            self.add_values(Column.TAG, [each.flatten() for each in tags])
        self.add_if_any(Column.GROUP_KEY, columns("group_key"))
        if self.add_lists(Column.ATTRIBUTE_LISTS, attributes):
            pairs = [_pairs(each) for each in attributes]
            self.add_values(Column.ATTRIBUTE_NAME, [names for names, _ in pairs])
            self.add_values(Column.ATTRIBUTE_VALUE, [values for _, values in pairs])
        self.add_if_any(Column.ENVELOPE, columns("envelope"))
        self.add_values(Column.DATA, columns("data"))
        return tags_count

    def add_if_any(self, slot: int, columns: Sequence[pa.Array]) -> None:
        if any([len(buffer_of(column)) for column in columns]):
            self.add_values(slot, columns)

    def add_values(self, slot: int, columns: Sequence[pa.Array]) -> None:
        self.add(slot, _joined_offsets(columns).tobytes())
        self.add(slot + 1, *[buffer_of(column) for column in columns])

    def add_lists(self, slot: int, columns: Sequence[pa.Array]) -> int:
        """Add the list offsets; nothing if all are empty. Returns the total number of elements."""
        offsets = _joined_offsets(columns)
        if count := int(offsets[-1]):
            self.add(slot, offsets.tobytes())
        return count

    def add_control(self, control: Control) -> None:
        content = msgspec.msgpack.encode(control)
        self.add(Column.CONTROL, CONTROL_LENGTH.pack(len(content)) + content)
        self.features |= MARKS_FEATURE


def _header(length: int, features: int, count: int, tags: int, first: int, recorded_at: int, chain_: Chain) -> bytes:
    _, epoch, previous_crc, durable_upto, nonce = chain_
    return HEADER.pack(
        length, FORMAT_VERSION, 0, features, 0, count, tags, first, epoch, previous_crc, 0, durable_upto, nonce,
        recorded_at,
    )  # fmt: skip


def _pairs(column: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """The names and the values of all attributes of a column."""
    low, high = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return column.keys.slice(low, high - low), column.items.slice(low, high - low)


def _joined_offsets(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    """The offsets of the values of these arrays, joined."""
    if len(columns) == 1:
        offsets = offsets_of(columns[0])
        return np.asarray(offsets - offsets[0], np.int32)
    parts, end = [np.zeros(1, np.int32)], np.int32(0)
    for column in columns:
        offsets = offsets_of(column)
        parts.append(offsets[1:] + (end - offsets[0]))
        end += offsets[-1] - offsets[0]
    return np.concatenate(parts)


def _encoded(texts: Sequence[str]) -> tuple[bytes, npt.NDArray[np.int32]]:
    """Some texts as joined UTF-8, and the length of each."""
    joined = "".join(texts)
    if joined.isascii():
        return joined.encode(), np.fromiter(map(len, texts), np.int32, len(texts))
    values = [text.encode() for text in texts]
    return b"".join(values), np.fromiter(map(len, values), np.int32, len(values))


def _offsets(values: Sequence[Collection[object]]) -> bytes:
    count = len(values)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, count), out=offsets[1:])
    return offsets.tobytes()
