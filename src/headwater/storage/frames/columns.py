"""Frames as Arrow columns.

The buffers of a large frame are used in place; rows of small frames are gathered from many at a time. Nothing here
decodes an event. The caller has verified the frames.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...formats.arrow.columns import array_of
from ...formats.arrow.tables import SCHEMA
from .frame import BadFrame, UnknownFeature
from .layout import DIRECTORY_SLOTS, FORMAT_VERSION, HEADER_BYTES, MAGIC, REQUIRED_FEATURES, Column

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]

HEADER = np.dtype([
    ("magic", "S4"), ("crc", "<u4"), ("length", "<i8"), ("version", "<u2"), ("required", "<u2"), ("optional", "<u2"),
    ("spare", "<u2"), ("count", "<u4"), ("tags", "<u4"), ("first", "<i8"), ("epoch", "<u8"), ("previous_crc", "<u4"),
    ("spare2", "<u4"), ("durable_upto", "<u8"), ("nonce", "<u8"), ("recorded_at", "<i8"),
    ("directory", "<u4", DIRECTORY_SLOTS),
])  # fmt: skip
"""A frame's header and directory, as `frame` writes them."""
assert HEADER.itemsize == HEADER_BYTES
_HEADER_WORDS = np.arange(HEADER_BYTES // 4)
_LEAD_BYTES = 8
"""Magic and checksum, which the checksum does not cover."""
_SPAN_MIN = 32
"""Spans of at least this many events are joined frame by frame; shorter ones are gathered row by row."""

TEXTS = {
    "type": (Column.TYPE, pa.string()),
    "data": (Column.DATA, pa.binary()),
    "id": (Column.ID, pa.string()),
    "source": (Column.SOURCE, pa.string()),
    "group_key": (Column.GROUP_KEY, pa.string()),
    "envelope": (Column.ENVELOPE, pa.binary()),
}
"""Columns of texts and byte strings: the slot of their offsets (the next slot contains the bytes) and their type."""
_NUMBERS: dict[str, tuple[int, type[np.generic], type[np.generic]]] = {
    "recorded_at": (Column.RECORDED_AT, np.int64, np.int64),
    "partition": (Column.PARTITION, np.uint16, np.int32),
    "encoding": (Column.ENCODING, np.uint8, np.int8),
}
"""Columns of numbers: their slot, and their types in the frame and in Arrow."""


class Content:
    """The bytes of a mapped segment, viewed in the widths that frames use. Its arrays keep the map alive."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self.buffer = pa.py_buffer(mapped)
        self.bytes = memoryview(mapped)
        self._views = {
            width: np.frombuffer(mapped, f"<{width}", len(mapped) // int(width[1]))
            for width in ("u1", "u2", "i4", "i8")
        }
        self.ints = self._views["i4"]

    def view(self, kind: type[np.generic]) -> npt.NDArray[Any]:
        """The content as numbers of that type."""
        return self._views[np.dtype(kind).str[1:]]


class Frames:
    """The headers of some frames of one segment, side by side."""

    def __init__(self, content: Content, offsets: Ints) -> None:
        self.content, self.offsets = content, offsets
        self.headers = np.frombuffer(content.ints[(offsets >> 2)[:, None] + _HEADER_WORDS].data, HEADER)
        self.firsts: Ints = self.headers["first"]
        self.counts = self.headers["count"].astype(np.int64)
        self.directory = self.headers["directory"]

    def __len__(self) -> int:
        return len(self.offsets)

    def has(self, slot: int) -> bool:
        """Whether any of the frames has that column."""
        return bool(self.directory[:, slot].any())

    def first_bad(self, which: Ints, size: int, crc_seed: int) -> tuple[int, BadFrame] | None:
        """The first bad frame among these, and why it is bad. `size`: the end of the last frame in the file.

        Reads all of them without copying. Raises UnknownFeature.
        """
        headers, offsets = self.headers[which], self.offsets[which]
        lengths = headers["length"]
        is_sound = (headers["magic"] == MAGIC) & (lengths >= HEADER_BYTES) & (lengths & 7 == 0)
        is_sound &= (offsets + lengths <= size) & (headers["count"] > 0)
        is_news = (headers["version"] > FORMAT_VERSION) | (
            headers["required"] & np.uint16(~REQUIRED_FEATURES & 0xFFFF) > 0
        )
        slice_of, extend = self.content.buffer.slice, google_crc32c.extend
        checks = zip(which.tolist(), is_sound.tolist(), offsets.tolist(), lengths.tolist(), headers["crc"].tolist(),
                     is_news.tolist(), strict=True)  # fmt: skip
        for index, could_be, offset, length, crc, needs_news in checks:
            if not could_be:
                return index, BadFrame("its header is invalid")
            if extend(crc_seed, slice_of(offset + _LEAD_BYTES, length - _LEAD_BYTES)) != crc:
                return index, BadFrame("the checksum does not match")
            if needs_news:
                raise UnknownFeature(int(self.headers["version"][index]), int(self.headers["required"][index]))
        return None


class Spans(NamedTuple):
    """One piece of a column per frame, from one index up to another (exclusive)."""

    starts: Ints
    ends: Ints


class Rows:
    """Some events of some frames, ascending: row `i` is event `index[i]` of frame `of[i]`."""

    def __init__(self, frames: Frames, of: Ints, index: Ints, spans: Spans | None = None) -> None:
        """`spans`: given if the rows are known to be one contiguous range of each frame."""
        self.frames, self.of, self.index, self._spans = frames, of, index, spans

    @staticmethod
    def all(frames: Frames) -> Rows:
        """Every event of these frames."""
        of, starts = np.repeat(np.arange(len(frames)), frames.counts), np.zeros_like(frames.counts)
        return Rows(frames, of, _ranges(starts, frames.counts), Spans(starts, frames.counts))

    def __len__(self) -> int:
        return len(self.of)

    @property
    def numbers(self) -> Ints:
        """Their sequence numbers."""
        return self.frames.firsts[self.of] + self.index

    def taken(self, which: Bits | slice) -> Rows:
        """A selection of the rows."""
        return Rows(self.frames, self.of[which], self.index[which])

    def between(self, low: int, high: int) -> Rows:
        """The rows numbered from `low` to `high`."""
        numbers = self.numbers
        if not len(numbers) or (numbers[0] >= low and numbers[-1] <= high):
            return self
        start, end = np.searchsorted(numbers, low, "left"), np.searchsorted(numbers, high, "right")
        rows = self.taken(slice(int(start), int(end)))
        if self._spans is not None:
            firsts = self.frames.firsts
            starts = np.clip(low - firsts, self._spans.starts, self._spans.ends)
            rows._spans = Spans(starts, np.clip(high - firsts + 1, starts, self._spans.ends))
        return rows

    def is_whole_frame(self) -> bool:
        """Whether they are all events of a single frame."""
        return len(self.frames) == 1 and len(self) == self.frames.counts[0]

    def payload_bytes(self) -> Ints:
        """The bytes of data and envelope of each row."""
        sizes = np.zeros(len(self), np.int64)
        for slot in (Column.DATA, Column.ENVELOPE):
            if self.frames.has(slot):
                starts, ends = self._bounds(slot)
                sizes += ends - starts
        return sizes

    def column(self, name: str) -> pa.Array:
        """One column of `formats.arrow.tables.SCHEMA`."""
        if name == "sequence_number":
            return _primitive(self.numbers, SCHEMA.field(name).type)
        if name in _NUMBERS:
            return self._numbers(name)
        if name in TEXTS:
            slot, kind = TEXTS[name]
            return self._texts(slot, kind)
        if name == "tags":
            return self._tags()
        return self._attributes()

    def _numbers(self, name: str) -> pa.Array:
        slot, stored, given = _NUMBERS[name]
        kind = SCHEMA.field(name).type
        is_time = slot == Column.RECORDED_AT
        if not self.frames.has(slot):
            return _primitive(self.frames.headers["recorded_at"][self.of], kind) if is_time else _zeros(kind, len(self))
        view, width = self.frames.content.view(stored), np.dtype(stored).itemsize
        starts = self.frames.directory[:, slot].astype(np.int64)
        here = (starts > 0)[self.of]
        at = ((self.frames.offsets + starts) // width)[self.of] + self.index
        values = np.zeros(len(self), given)
        if is_time:
            values[:] = self.frames.headers["recorded_at"][self.of]
        values[here] = view[at[here]]
        return _primitive(values, kind)

    def _texts(self, slot: int, kind: pa.DataType) -> pa.Array:
        if not self.frames.has(slot):
            return _empty_texts(kind, len(self))
        if (spans := self._long_spans(slot)) is not None:
            return self._joined(slot, kind, spans)
        return self._gathered(slot, kind, self.of, *self._bounds(slot))

    def _tags(self) -> pa.Array:
        slot = Column.TAG_LISTS
        if not self.frames.has(slot):
            return _empty_lists("tags", len(self))
        if (spans := self._long_spans(slot)) is not None:
            found, members = self._joined_offsets(slot, spans)
            return pa.ListArray.from_arrays(
                _primitive(found, pa.int32()), self._joined(Column.TAG, pa.string(), members)
            )
        offsets, of, index = self._members(slot)
        tags = self._gathered(Column.TAG, pa.string(), of, *self._bounds(Column.TAG, of, index))
        return pa.ListArray.from_arrays(offsets, tags)

    def _attributes(self) -> pa.Array:
        slot, kind = Column.ATTRIBUTE_LISTS, pa.string()
        if not self.frames.has(slot):
            return _empty_lists("attributes", len(self))
        offsets, of, index = self._members(slot)
        names = self._gathered(Column.ATTRIBUTE_NAME, kind, of, *self._bounds(Column.ATTRIBUTE_NAME, of, index))
        values = self._gathered(Column.ATTRIBUTE_VALUE, kind, of, *self._bounds(Column.ATTRIBUTE_VALUE, of, index))
        return pa.MapArray.from_arrays(offsets, names, values)

    def _members(self, slot: int) -> tuple[pa.Array, Ints, Ints]:
        """For a column of lists: the offsets of the lists, and the frame of each member and its index there."""
        starts, ends = self._bounds(slot)
        sizes = ends - starts
        offsets = np.zeros(len(self) + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        return _primitive(offsets, pa.int32()), np.repeat(self.of, sizes), _ranges(starts, sizes)

    def _bounds(self, slot: int, of: Ints | None = None, index: Ints | None = None) -> tuple[Ints, Ints]:
        """The start and end of each value, by its frame's offsets buffer; empty if there is none."""
        of, index = (self.of, self.index) if of is None or index is None else (of, index)
        starts = self.frames.directory[:, slot].astype(np.int64)
        ints = self.frames.content.ints
        if starts.all():
            at = ((self.frames.offsets + starts) >> 2)[of] + index
            return ints[at].astype(np.int64), ints[at + 1].astype(np.int64)
        here = np.flatnonzero(starts[of])
        at = ((self.frames.offsets + starts) >> 2)[of[here]] + index[here]
        low, high = np.zeros(len(of), np.int64), np.zeros(len(of), np.int64)
        low[here], high[here] = ints[at], ints[at + 1]
        return low, high

    def _long_spans(self, slot: int) -> Spans | None:
        """The spans of events, if each frame has that column and they are long enough to join."""
        spans = self._spans
        if spans is None or len(self) < _SPAN_MIN * len(self.frames) or not self.frames.directory[:, slot].all():
            return None
        return spans

    def _joined(self, slot: int, kind: pa.DataType, spans: Spans) -> pa.Array:
        """The texts of these spans of the column: the bytes of each frame copied at once, its offsets shifted."""
        offsets, places = self._joined_offsets(slot, spans)
        origins = self.frames.offsets + self.frames.directory[:, slot + 1]
        content = self.frames.content.bytes
        pieces = zip((origins + places.starts).tolist(), (origins + places.ends).tolist(), strict=True)
        joined = pa.py_buffer(b"".join([content[start:end] for start, end in pieces]))
        return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets), joined])

    def _joined_offsets(self, slot: int, spans: Spans) -> tuple[npt.NDArray[np.int32], Spans]:
        """The offsets at that slot, continued from frame to frame, and the part of the values they cover in each."""
        ints, sizes = self.frames.content.ints, spans.ends - spans.starts
        at = (self.frames.offsets + self.frames.directory[:, slot] >> 2) + spans.starts
        places = Spans(ints[at].astype(np.int64), ints[at + sizes].astype(np.int64))
        moved = np.cumsum(places.ends - places.starts) - places.ends
        content, offsets = self.frames.content.bytes, np.empty(int(sizes.sum()) + 1, np.int32)
        pieces = zip((4 * at).tolist(), (4 * (at + sizes)).tolist(), strict=True)
        found = np.frombuffer(b"".join([content[start:end] for start, end in pieces]), np.int32)
        np.add(found, np.repeat(moved.astype(np.int32), sizes), out=offsets[:-1])
        offsets[-1] = (places.ends - places.starts).sum()
        return offsets, places

    def _gathered(self, slot: int, kind: pa.DataType, of: Ints, starts: Ints, ends: Ints) -> pa.Array:
        """The texts from `starts` to `ends` of the buffers after that slot.

        Arrow sees the file as alternating wanted and unwanted texts, and copies every other one.
        """
        if not len(of):
            return _empty_texts(kind, 0)
        origins = self.frames.offsets + self.frames.directory[:, slot + 1]
        base = int(self.frames.offsets[of[0]])
        offsets = np.empty(2 * len(of), np.int32)  # a segment, or a frame that needs a separate segment, is below 2 GiB
        origin = (origins - base)[of]
        offsets[0::2] = origin + starts
        offsets[1::2] = origin + ends
        buffers = [None, pa.py_buffer(offsets), self.frames.content.buffer.slice(base)]
        return pa.Array.from_buffers(kind, len(offsets) - 1, buffers).take(_every_other(len(of)))


def whole_column(frames: Frames, name: str) -> pa.Array:
    """One column of the single frame, in its own buffers if it has them."""
    assert len(frames) == 1, "buffers of several frames are not contiguous"
    count = int(frames.counts[0])
    if name in TEXTS:
        slot, kind = TEXTS[name]
        return _texts_in_place(frames, slot, kind, count)
    if name == "tags" and frames.has(Column.TAG_LISTS):
        offsets, members = _lists_in_place(frames, Column.TAG_LISTS, count)
        return pa.ListArray.from_arrays(offsets, _texts_in_place(frames, Column.TAG, pa.string(), members))
    if name == "attributes" and frames.has(Column.ATTRIBUTE_LISTS):
        offsets, members = _lists_in_place(frames, Column.ATTRIBUTE_LISTS, count)
        names = _texts_in_place(frames, Column.ATTRIBUTE_NAME, pa.string(), members)
        return pa.MapArray.from_arrays(
            offsets, names, _texts_in_place(frames, Column.ATTRIBUTE_VALUE, pa.string(), members)
        )
    if name in ("tags", "attributes"):
        return _empty_lists(name, count)
    return _numbers_in_place(frames, name, count)


def record_batch(rows: Rows, names: Sequence[str]) -> pa.RecordBatch:
    """These columns of these events, in place if possible."""
    if rows.is_whole_frame():
        return in_place(rows.frames, names)
    return pa.RecordBatch.from_arrays([rows.column(name) for name in names], schema=schema_of(tuple(names)))


def in_place(frames: Frames, names: Sequence[str]) -> pa.RecordBatch:
    """These columns of the single frame."""
    return pa.RecordBatch.from_arrays([whole_column(frames, name) for name in names], schema=schema_of(tuple(names)))


@lru_cache(maxsize=256)
def schema_of(names: tuple[str, ...]) -> pa.Schema:
    """These columns of `formats.arrow.tables.SCHEMA`."""
    return pa.schema([SCHEMA.field(name) for name in names])


def _texts_in_place(frames: Frames, slot: int, kind: pa.DataType, count: int) -> pa.Array:
    content, origin, directory = frames.content, int(frames.offsets[0]), frames.directory[0]
    if not (at := int(directory[slot])):
        return _empty_texts(kind, count)
    end = int(content.ints[(origin + at >> 2) + count])
    buffers = [
        None,
        content.buffer.slice(origin + at, 4 * (count + 1)),
        content.buffer.slice(origin + int(directory[slot + 1]), end),
    ]
    return pa.Array.from_buffers(kind, count, buffers)


def _numbers_in_place(frames: Frames, name: str, count: int) -> pa.Array:
    kind = SCHEMA.field(name).type
    if name == "sequence_number":
        first = int(frames.firsts[0])
        return _primitive(np.arange(first, first + count), kind)
    slot, stored, given = _NUMBERS[name]
    if at := int(frames.directory[0, slot]):
        width = np.dtype(stored).itemsize
        begin = (int(frames.offsets[0]) + at) // width
        values = frames.content.view(stored)[begin : begin + count]
        return _primitive(values.view(given) if np.dtype(given).itemsize == width else values.astype(given), kind)
    if slot == Column.RECORDED_AT:
        return _primitive(np.full(count, int(frames.headers["recorded_at"][0]), np.int64), kind)
    return _zeros(kind, count)


def _lists_in_place(frames: Frames, slot: int, count: int) -> tuple[pa.Array, int]:
    """The offsets of the lists, and their total number of members."""
    content, at = frames.content, int(frames.offsets[0]) + int(frames.directory[0, slot])
    offsets = content.buffer.slice(at, 4 * (count + 1))
    return pa.Array.from_buffers(pa.int32(), count + 1, [None, offsets]), int(content.ints[(at >> 2) + count])


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """`sizes[0]` numbers from `starts[0]` on, then the numbers of the next start."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    found: Ints = np.arange(total) + np.repeat(starts - (ends - sizes), sizes)
    return found


def _primitive(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _zeros(kind: pa.DataType, size: int) -> pa.Array:
    return _many_zeros(kind, _rounded(size)).slice(0, size)


def _empty_texts(kind: pa.DataType, size: int) -> pa.Array:
    return _many_empty_texts(kind, _rounded(size)).slice(0, size)


def _empty_lists(name: str, size: int) -> pa.Array:
    return _many_empty_lists(name, _rounded(size)).slice(0, size)


def _every_other(size: int) -> pa.Array:
    return _many_even(_rounded(size)).slice(0, size)


@lru_cache(maxsize=8)
def _many_zeros(kind: pa.DataType, size: int) -> pa.Array:
    return pa.Array.from_buffers(kind, size, [None, pa.py_buffer(bytes(8 * size))])


@lru_cache(maxsize=8)
def _many_empty_texts(kind: pa.DataType, size: int) -> pa.Array:
    return pa.Array.from_buffers(kind, size, [None, pa.py_buffer(bytes(4 * size + 4)), pa.py_buffer(b"")])


@lru_cache(maxsize=8)
def _many_empty_lists(name: str, size: int) -> pa.Array:
    offsets, nothing = _zeros(pa.int32(), size + 1), _empty_texts(pa.string(), 0)
    if name == "tags":
        return pa.ListArray.from_arrays(offsets, nothing)
    return pa.MapArray.from_arrays(offsets, nothing, nothing)


@lru_cache(maxsize=4)
def _many_even(size: int) -> pa.Array:
    return array_of(np.arange(0, 2 * size, 2, dtype=np.int32))


def _rounded(size: int) -> int:
    """Round up to a power of two: few such arrays are cached, and others are slices of them."""
    return max(65_536, 1 << (size - 1).bit_length())
