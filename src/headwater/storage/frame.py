"""The frame: one group commit on disk. Unit of atomicity, checksum and replication (format version 1).

A frame is a header, a directory of column buffers and the buffers: Arrow-compatible, little-endian, each 8-byte
aligned. A column in which every value is the default is left out. `docs/data-file-format.md` has the layout.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise, repeat
from mmap import mmap
from typing import Any, NamedTuple, TypeAlias

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt

from ..core.errors import StorageUnavailable
from ..core.event import NO_ATTRIBUTES, Encoding, SequencedEvent, sequenced
from ..core.limits import EventColumns
from ..formats.arrow_columns import ArrowColumns, Coded, buffer_of, coded, numbers_of, offsets_of
from ..formats.late import arrow_is_loaded, pa
from .writers import FrameMark

assert sys.byteorder == "little", "frames are written as the machine's own little-endian arrays"

MAGIC = b"HWF1"
FORMAT_VERSION = 1
REQUIRED_FEATURES = 0
"""Bits of required features that this code knows. A frame with another bit set cannot be read."""
MARKS_FEATURE = 1
"""Bit of the optional features: the frame's CONTROL has marks. Who only reads events may ignore them."""


class Column:
    """Slots of the directory: where each buffer starts in the frame; 0 = left out. Plain numbers: they are hot."""

    RECORDED_AT = 0  # i64; left out where all are the header's
    PARTITION = 1  # u16
    ENCODING = 2  # u8
    ID = 3  # offsets i32[n+1], then the bytes in the next slot; so for all texts and byte strings
    ID_BYTES = 4
    SOURCE = 5
    SOURCE_BYTES = 6
    TYPE = 7
    TYPE_BYTES = 8
    TAG_LISTS = 9  # list offsets i32[n+1] into the tags
    TAG = 10
    TAG_BYTES = 11
    GROUP_KEY = 12
    GROUP_KEY_BYTES = 13
    ATTRIBUTE_LISTS = 14  # map offsets i32[n+1] into names and values
    ATTRIBUTE_NAME = 15
    ATTRIBUTE_NAME_BYTES = 16
    ATTRIBUTE_VALUE = 17
    ATTRIBUTE_VALUE_BYTES = 18
    ENVELOPE = 19
    ENVELOPE_BYTES = 20
    DATA = 21
    DATA_BYTES = 22
    CONTROL = 23  # u32 length, then MessagePack: marks of exactly-once writers, log settings
    ERASED = 24  # bitmap of redacted events
    # 25 to 27 are free


DIRECTORY_SLOTS = 28
_LEAD = struct.Struct("<4sI")
"""magic, CRC32C of all that follows"""
_HEADER = struct.Struct("<QHHHHIIQQIIQQq")
"""length, version, required, optional features, spare, count, tags, first, epoch, previous crc, spare, durable_upto,
nonce, recorded_at"""
_DIRECTORY = struct.Struct(f"<{DIRECTORY_SLOTS}I")
HEADER_BYTES = _LEAD.size + _HEADER.size + _DIRECTORY.size
_CONTROL_LENGTH = struct.Struct("<I")
_ARROW_MIN = 32
ARROW_MIN = 512
"""From so many events on, whole columns are quicker than one event after the other."""
JOINED_BYTES_MAX = 1024 * 1024
"""The buffers of a larger frame are written from where they lie: a copy costs more than they do one by one."""
PART_LISTS = 128
"""So many lists of texts are joined in one call: with all the tags that are allowed, that takes about 2 ms."""
_OFFSETS_ONE_BY_ONE = 64
CRC_BYTES = 2 * 1024 * 1024
"""So much gets its checksum in one call, within about 2 ms."""
Content: TypeAlias = "bytes | pa.Buffer"
_PADDING = [b"\0" * count for count in range(8)]
_DATA = Encoding.DATA
_points = struct.Struct("<24xI4xQ32xq12s2I8s5I36s2I").unpack_from
"""Of a header and directory what `pick` needs: count, first, recorded_at; times, partitions and encodings; ids, their
bytes; sources; types, their bytes; lists of tags, tags, their bytes; group keys, attributes and envelopes; data, its
bytes. What stands as bytes is most often left out, and nothing but zeros then."""
_NO_TIMES, _NO_SOURCES, _NO_EXTRAS = bytes(12), bytes(8), bytes(36)
_INT64, _UINT16, _UINT8 = struct.Struct("<q"), struct.Struct("<H"), struct.Struct("<B")
_two = struct.Struct("<2i").unpack_from
_three = struct.Struct("<3i").unpack_from
_FEW = 8
"""So few events are quicker one after the other."""
_NO_LIMIT = 1 << 62


class Chain(NamedTuple):
    """What links a frame to its log: taken over from the state of the writer."""

    crc_seed: int
    """Of the log: no payload can hold what would pass for a frame of it."""
    epoch: int
    previous_crc: int
    durable_upto: int
    nonce: int


class Control(msgspec.Struct, omit_defaults=True):
    """What a frame has besides events, as MessagePack."""

    marks: tuple[FrameMark, ...] = ()


class EncodedFrame(NamedTuple):
    """A frame ready to be written."""

    first: int
    last: int
    recorded_at: int
    crc: int
    length: int
    buffers: list[Content]


def encode(
    columns: EventColumns,
    partitions: Sequence[int],
    first: int,
    recorded_at: int,
    chain_: Chain,
    marks: Sequence[FrameMark] = (),
) -> EncodedFrame:
    """One frame of these events, numbered from `first` on. Never fails on checked events."""
    body = _Body()
    if any(partitions):
        body.add(Column.PARTITION, array("H", partitions).tobytes())
    tags_count = body.add_arrow(columns.batch) if isinstance(columns, ArrowColumns) else _add_columns(body, columns)
    if marks:
        body.add_control(Control(tuple(marks)))
    return body.frame(columns.count, tags_count, first, recorded_at, chain_)


def _add_columns(body: _Body, columns: EventColumns) -> int:
    """All columns but the partitions; answers how many tags there are."""
    if any(columns.encodings):
        body.add(Column.ENCODING, bytes(columns.encodings))
    body.add_texts(Column.ID, columns.ids)
    if any(columns.sources):
        body.add_texts(Column.SOURCE, columns.sources)
    body.add_texts(Column.TYPE, columns.types)
    tags_count = body.add_members(Column.TAG_LISTS, Column.TAG, columns.tags)
    if any(columns.group_keys):
        body.add_texts(Column.GROUP_KEY, columns.group_keys)
    if any(columns.attributes):
        body.add_members(Column.ATTRIBUTE_LISTS, Column.ATTRIBUTE_NAME, columns.attributes)
        values = [attributes.values() for attributes in columns.attributes]
        body.add_members(None, Column.ATTRIBUTE_VALUE, values)
    if any(columns.envelopes):
        body.add_bytes(Column.ENVELOPE, columns.envelopes)
    body.add_bytes(Column.DATA, columns.data)
    return tags_count


class _Body:
    """The buffers of a frame under construction, and where each starts."""

    def __init__(self) -> None:
        self.buffers: list[Content] = []
        self.length = HEADER_BYTES
        self.directory = [0] * DIRECTORY_SLOTS
        self.features = 0

    def add(self, slot: int, content: Content) -> None:
        self.directory[slot] = self.length
        self.buffers.append(content)
        size = len(content)
        if rest := -size & 7:
            self.buffers.append(_PADDING[rest])
            size += rest
        self.length += size

    def add_texts(self, slot: int, values: Sequence[str]) -> None:
        joined = "".join(values)
        if joined.isascii():
            self.add(slot, _offsets(values))
            self.add(slot + 1, joined.encode())
        else:
            self.add_bytes(slot, [value.encode() for value in values])

    def add_members(self, lists_slot: int | None, slot: int, lists: Sequence[Collection[str]]) -> int:
        """The texts in these lists, and where each list begins; nothing if all are empty. Answers how many there are.

        In parts where there are many lists: in one call each, a few million texts would keep all other threads waiting.
        """
        if len(lists) <= PART_LISTS:
            texts = list(chain.from_iterable(lists))
            if texts:
                if lists_slot is not None:
                    self.add(lists_slot, _offsets(lists))
                self.add_texts(slot, texts)
            return len(texts)
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

    def add_bytes(self, slot: int, values: Sequence[bytes]) -> None:
        self.add(slot, _offsets(values))
        self.add(slot + 1, b"".join(values))

    def add_arrow(self, batch: pa.RecordBatch) -> int:
        """The columns of a batch of EVENT_SCHEMA: their buffers as they lie there. Answers how many tags there are."""
        encodings = numbers_of(batch.column("encoding")).tobytes()
        if any(encodings):
            self.add(Column.ENCODING, encodings)
        self.add_values(Column.ID, batch.column("id"))
        self.add_if_any(Column.SOURCE, batch.column("source"))
        self.add_values(Column.TYPE, batch.column("type"))
        tags, attributes = batch.column("tags"), batch.column("attributes")
        if tags_count := self.add_lists(Column.TAG_LISTS, tags):
            self.add_values(Column.TAG, tags.flatten())
        self.add_if_any(Column.GROUP_KEY, batch.column("group_key"))
        if self.add_lists(Column.ATTRIBUTE_LISTS, attributes):
            low, high = attributes.offsets[0].as_py(), attributes.offsets[-1].as_py()
            self.add_values(Column.ATTRIBUTE_NAME, attributes.keys.slice(low, high - low))
            self.add_values(Column.ATTRIBUTE_VALUE, attributes.items.slice(low, high - low))
        self.add_if_any(Column.ENVELOPE, batch.column("envelope"))
        self.add_values(Column.DATA, batch.column("data"))
        return tags_count

    def add_if_any(self, slot: int, column: pa.Array) -> None:
        if len(buffer_of(column)):
            self.add_values(slot, column)

    def add_values(self, slot: int, column: pa.Array) -> None:
        offsets = offsets_of(column)
        self.add(slot, (offsets - offsets[0]).tobytes())
        self.add(slot + 1, buffer_of(column))

    def add_lists(self, slot: int, column: pa.Array) -> int:
        """Where the lists begin; none of that if all are empty. Answers how many elements they have together."""
        offsets = offsets_of(column)
        if count := int(offsets[-1] - offsets[0]):
            self.add(slot, (offsets - offsets[0]).tobytes())
        return count

    def add_control(self, control: Control) -> None:
        content = msgspec.msgpack.encode(control)
        self.add(Column.CONTROL, _CONTROL_LENGTH.pack(len(content)) + content)
        self.features |= MARKS_FEATURE

    def frame(self, count: int, tags: int, first: int, recorded_at: int, chain_: Chain) -> EncodedFrame:
        crc_seed, epoch, previous_crc, durable_upto, nonce = chain_
        header = _HEADER.pack(
            self.length, FORMAT_VERSION, 0, self.features, 0, count, tags, first, epoch, previous_crc, 0, durable_upto,
            nonce, recorded_at,
        )  # fmt: skip
        rest = [header, _DIRECTORY.pack(*self.directory), *self.buffers]
        if self.length < JOINED_BYTES_MAX:
            rest = [b"".join(rest)]
        crc = crc_seed
        for buffer in rest:
            crc = extended_crc(crc, buffer)
        return EncodedFrame(first, first + count - 1, recorded_at, crc, self.length, [_LEAD.pack(MAGIC, crc), *rest])


def _encoded(texts: Sequence[str]) -> tuple[bytes, npt.NDArray[np.int32]]:
    """Some texts as UTF-8, one behind the other, and how long each is."""
    joined = "".join(texts)
    if joined.isascii():
        return joined.encode(), np.fromiter(map(len, texts), np.int32, len(texts))
    values = [text.encode() for text in texts]
    return b"".join(values), np.fromiter(map(len, values), np.int32, len(values))


def _offsets(values: Sequence[Collection[object]]) -> bytes:
    count = len(values)
    if count <= _OFFSETS_ONE_BY_ONE:
        return array("i", accumulate(map(len, values), initial=0)).tobytes()
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, count), out=offsets[1:])
    return offsets.tobytes()


def extended_crc(crc: int, content: Content | memoryview) -> int:
    """The checksum of what had that one, and this behind it: of much in parts, so that others get the interpreter."""
    size = len(content)
    if size <= CRC_BYTES:
        return int(google_crc32c.extend(crc, bytes(content) if isinstance(content, memoryview) else content))
    whole = np.frombuffer(content, np.uint8)  # in place
    for start in range(0, size, CRC_BYTES):
        crc = int(google_crc32c.extend(crc, whole[start : start + CRC_BYTES]))
    return crc


class BadFrame(Exception):
    """There is no whole, undamaged frame at that place."""


class UnknownFeature(StorageUnavailable):
    """The frame needs a feature or version that this code does not know."""

    def __init__(self, version: int, required: int) -> None:
        what = f"format version {version}, required features {required:#x}"
        super().__init__(f"a frame has {what}, which this headwater does not know; use a newer headwater")


class Frame:
    """A frame in a buffer, read in place: the header at once, columns when they are asked for."""

    __slots__ = (
        "_arrow", "_buffer", "_crc_seed", "_directory", "_origin", "_whole", "count", "crc", "durable_upto", "epoch",
        "first", "length", "nonce", "offset", "previous_crc", "recorded_at", "tags_count",
    )  # fmt: skip

    def __init__(self, buffer: memoryview, offset: int, crc_seed: int) -> None:
        """The frame at that offset. Raises BadFrame if there can be none, UnknownFeature; `verify` checks the rest."""
        if offset + HEADER_BYTES > len(buffer):
            raise BadFrame("the file ends in the header")
        magic, self.crc = _LEAD.unpack_from(buffer, offset)
        (
            self.length, version, required, _, _, self.count, self.tags_count, self.first, self.epoch,
            self.previous_crc, _, self.durable_upto, self.nonce, self.recorded_at,
        ) = _HEADER.unpack_from(buffer, offset + _LEAD.size)  # fmt: skip
        if magic != MAGIC:
            raise BadFrame(f"magic {magic!r} found, {MAGIC!r} expected")
        if self.length < HEADER_BYTES or self.length & 7 or offset + self.length > len(buffer):
            raise BadFrame(f"length {self.length} does not fit")
        self.offset = offset
        self._crc_seed = crc_seed
        self._buffer = buffer[offset : offset + self.length]
        self._whole: object = buffer.obj if buffer.nbytes == len(buffer.obj) else None  # type: ignore[arg-type]
        """What `_origin` counts in, where it is all of a file or of some bytes."""
        self._origin = offset
        self._arrow: pa.Buffer | None = None
        """All of it, once columns of it were asked for."""
        self._directory = _DIRECTORY.unpack_from(buffer, offset + _LEAD.size + _HEADER.size)
        if version > FORMAT_VERSION or required & ~REQUIRED_FEATURES:
            self.verify()  # else it is damage, not news
            raise UnknownFeature(version, required)

    @property
    def last(self) -> int:
        """The number of the last event."""
        return int(self.first + self.count - 1)

    def verify(self) -> None:
        """Raises BadFrame if the checksum does not fit, or the frame is empty."""
        if extended_crc(self._crc_seed, self._buffer[_LEAD.size :]) != self.crc:
            raise BadFrame("the checksum does not fit")
        if not self.count:
            raise BadFrame("the frame has no events")

    def events(self, start: int = 0, end: int | None = None) -> list[SequencedEvent]:
        """The events at these positions in the frame (from 0 to `count`), decoded."""
        end = self.count if end is None else end
        size = end - start
        if size < _FEW:
            return self._picked(start, end)
        encodings: Iterable[Encoding] = repeat(Encoding.DATA)
        if self._directory[Column.ENCODING]:
            encodings = map(Encoding, self._buffer[self._directory[Column.ENCODING] + start :][:size])
        return list(
            map(
                sequenced,
                zip(
                    range(self.first + start, self.first + end),
                    self._times(start, end) if self._directory[Column.RECORDED_AT] else repeat(self.recorded_at),
                    self.partitions(start, end),
                    self.types(start, end),
                    self._byte_strings(Column.DATA, start, end),
                    self.tags(start, end),
                    self.ids(start, end),
                    self.sources(start, end),
                    self._attributes(start, end) if self._directory[Column.ATTRIBUTE_LISTS] else repeat(NO_ATTRIBUTES),
                    self._texts(Column.GROUP_KEY, start, end),
                    self._byte_strings(Column.ENVELOPE, start, end)
                    if self._directory[Column.ENVELOPE]
                    else repeat(b""),
                    encodings,
                    strict=False,  # some columns repeat one value for ever
                ),
            )
        )

    def event(self, index: int) -> SequencedEvent:
        """One event, decoded; faster than `events` for one."""
        return self._picked(index, index + 1)[0]

    def _picked(self, start: int, end: int) -> list[SequencedEvent]:
        if not isinstance(self._whole, mmap | bytes):  # slices of those are bytes at once; those of a view are views
            self._whole, self._origin = bytes(self._buffer), 0
        events: list[SequencedEvent] = []
        pick(self._whole, self._origin, range(self.first + start, self.first + end), events, _NO_LIMIT)
        return events

    def types(self, start: int = 0, end: int | None = None) -> list[str]:
        """The types of these events."""
        return self._texts(Column.TYPE, start, self.count if end is None else end)

    def ids(self, start: int = 0, end: int | None = None) -> list[str]:
        """The ids of these events."""
        return self._texts(Column.ID, start, self.count if end is None else end)

    def sources(self, start: int = 0, end: int | None = None) -> list[str]:
        """The sources of these events."""
        return self._texts(Column.SOURCE, start, self.count if end is None else end)

    def tags(self, start: int = 0, end: int | None = None) -> list[tuple[str, ...]]:
        """The tags of these events."""
        end = self.count if end is None else end
        if not self._directory[Column.TAG_LISTS]:
            return [()] * (end - start)
        lists = self._ints(Column.TAG_LISTS, start, end)
        low, high = lists[0], lists[-1]
        tags = self._texts(Column.TAG, low, high)
        each = lists[1] - low
        if each and high - low == each * (end - start) and _are_even(lists):
            return list(zip(*[iter(tags)] * each, strict=True))  # as most often
        return [tuple(tags[a - low : b - low]) for a, b in pairwise(lists)]

    def partitions(self, start: int = 0, end: int | None = None) -> list[int]:
        """The partitions of these events."""
        end = self.count if end is None else end
        if not (at := self._directory[Column.PARTITION]):
            return [0] * (end - start)
        return self._buffer[at + 2 * start : at + 2 * end].cast("H").tolist()

    def marks(self) -> tuple[FrameMark, ...]:
        """The marks of exactly-once writers that came with these events, in order. Raises StorageUnavailable."""
        if not (at := self._directory[Column.CONTROL]):
            return ()
        start = at + _CONTROL_LENGTH.size
        (length,) = _CONTROL_LENGTH.unpack_from(self._buffer, at)
        try:
            return msgspec.msgpack.decode(self._buffer[start : start + length], type=Control).marks
        except msgspec.MsgspecError as error:
            problem = f"the control record of the frame of event {self.first} is not known: {error}"
            raise StorageUnavailable(f"{problem}; use a newer headwater") from None

    def recorded_at_of(self, number: int) -> int:
        """When that event of the frame was recorded, in ms."""
        index = number - self.first
        return self._times(index, index + 1)[0] if self._directory[Column.RECORDED_AT] else int(self.recorded_at)

    def payload_bytes(self) -> list[int]:
        """Running totals of data and envelope bytes: count + 1 numbers from 0 on."""
        totals = self._ints(Column.DATA, 0, self.count)
        if self._directory[Column.ENVELOPE]:
            envelopes = self._ints(Column.ENVELOPE, 0, self.count)
            return [a + b for a, b in zip(totals, envelopes, strict=True)]
        return totals

    def _times(self, start: int, end: int) -> list[int]:
        at = self._directory[Column.RECORDED_AT]
        return self._buffer[at + 8 * start : at + 8 * end].cast("q").tolist()

    def _attributes(self, start: int, end: int) -> list[Mapping[str, str]]:
        lists = self._ints(Column.ATTRIBUTE_LISTS, start, end)
        low, high = lists[0], lists[-1]
        names = self._texts(Column.ATTRIBUTE_NAME, low, high)
        values = self._texts(Column.ATTRIBUTE_VALUE, low, high)
        return [dict(zip(names[a - low : b - low], values[a - low : b - low], strict=True)) for a, b in pairwise(lists)]

    def _ints(self, slot: int, start: int, end: int) -> list[int]:
        at = self._directory[slot]
        return self._buffer[at + 4 * start : at + 4 * end + 4].cast("i").tolist()

    def _texts(self, slot: int, start: int, end: int) -> list[str]:
        if not self._directory[slot]:
            return [""] * (end - start)
        return self._values(slot, start, end, is_text=True)

    def _byte_strings(self, slot: int, start: int, end: int) -> list[bytes]:
        return self._values(slot, start, end, is_text=False)

    def _values(self, slot: int, start: int, end: int, *, is_text: bool) -> list[Any]:
        """Arrow reads its own layout some times faster than Python slices it, but starts slowly, if it is there."""
        if end - start < _ARROW_MIN or not arrow_is_loaded():
            content_at = self._directory[slot + 1]
            offsets = self._ints(slot, start, end)
            low = offsets[0]
            content = bytes(self._buffer[content_at + low : content_at + offsets[-1]])
            pieces = [content[a - low : b - low] for a, b in pairwise(offsets)]
            return [piece.decode() for piece in pieces] if is_text else pieces
        kind = pa.utf8() if is_text else pa.binary()
        values: list[Any] = self._array(kind, slot, start, end).to_pylist()
        return values

    def _array(self, kind: pa.DataType, slot: int, start: int, end: int) -> pa.Array:
        at, content_at = self._directory[slot], self._directory[slot + 1]
        if self._arrow is None:
            self._arrow = pa.py_buffer(self._buffer)
        buffers = [None, self._arrow.slice(at + 4 * start, 4 * (end - start + 1)), self._arrow.slice(content_at)]
        return pa.Array.from_buffers(kind, end - start, buffers)

    def coded_types(self) -> Coded:
        """All types without their repetitions."""
        return coded(self._array(pa.utf8(), Column.TYPE, 0, self.count))

    def coded_tags(self) -> Coded:
        """All tags without their repetitions."""
        if not self._directory[Column.TAG_LISTS]:
            return Coded(pa.array([], pa.utf8()), np.empty(0, np.int32), np.empty(0, np.int64))
        terms, codes, _ = coded(self._array(pa.utf8(), Column.TAG, 0, self.tags_count))
        lengths = np.diff(np.array(self._ints(Column.TAG_LISTS, 0, self.count)))
        return Coded(terms, codes, np.repeat(np.arange(self.count), lengths))

    def encoded_ids(self) -> list[bytes]:
        """All ids, in UTF-8."""
        ids: list[bytes] = self._array(pa.binary(), Column.ID, 0, self.count).to_pylist()
        return ids

    @property
    def has_sources(self) -> bool:
        """Whether any of the events has a source."""
        return bool(self._directory[Column.SOURCE])


def pick(content: mmap | bytes, offset: int, numbers: Sequence[int], events: list[SequencedEvent], budget: int) -> int:
    """Append the events of these numbers of the frame at that offset, decoded: the quick way to a few that lie apart.

    The frame is whole (whoever asks has verified it), and none of the numbers is below its first; those above its last
    are left out. It ends, after one event at least, when payloads have used up that budget of bytes; answers what is
    left of it.
    """
    (
        count, first, recorded_at, times, id, ids, sources, type, types, lists, tag, tags, extras, datum, data,
    ) = _points(content, offset)  # fmt: skip
    types, ids, tags, data = types + offset, ids + offset, tags + offset, data + offset
    its_tags: tuple[str, ...] = ()
    is_plain = times == _NO_TIMES and sources == _NO_SOURCES and extras == _NO_EXTRAS
    for number in numbers:
        index = number - first
        if index >= count:  # lost, and the loss was accepted
            continue
        at = offset + 4 * index
        low, high = _two(content, type + at)
        its_type = content[types + low : types + high].decode()
        low, high = _two(content, id + at)
        its_id = content[ids + low : ids + high].decode()
        if lists:
            low, high = _two(content, lists + at)
            at_tag = offset + tag + 4 * low
            if high - low == 2:  # as most often
                low, middle, high = _three(content, at_tag)
                middle += tags
                its_tags = (content[tags + low : middle].decode(), content[middle : tags + high].decode())
            else:
                bounds = struct.unpack_from(f"<{high - low + 1}i", content, at_tag)
                its_tags = tuple([content[tags + a : tags + b].decode() for a, b in pairwise(bounds)])
        low, high = _two(content, datum + at)
        its_data = content[data + low : data + high]
        budget -= high - low
        if is_plain:
            events.append(
                sequenced((number, recorded_at, 0, its_type, its_data, its_tags, its_id, "", NO_ATTRIBUTES, "", b"",
                            _DATA))
            )  # fmt: skip
        else:
            event = _Extras(content, offset).added(number, index, recorded_at, its_type, its_data, its_tags, its_id)
            budget -= len(event.envelope)
            events.append(event)
        if budget <= 0:
            break
    return budget


def _are_even(lists: Sequence[int]) -> bool:
    """Whether all lists that begin at these places, one after the other, are as long as the first."""
    if len(lists) < ARROW_MIN:
        return lists == list(range(lists[0], lists[-1] + 1, lists[1] - lists[0]))
    sizes = np.diff(np.array(lists))
    return bool((sizes == sizes[0]).all())


class _Extras:
    """The columns of a frame that most frames have not."""

    def __init__(self, content: mmap | bytes, offset: int) -> None:
        self._content, self._offset = content, offset
        self._directory = _DIRECTORY.unpack_from(content, offset + _LEAD.size + _HEADER.size)

    def added(
        self, number: int, index: int, recorded_at: int, type: str, data: bytes, tags: tuple[str, ...], id: str
    ) -> SequencedEvent:
        """The event of that index with them."""
        slots = self._directory
        return SequencedEvent(
            number,
            self._number(_INT64, Column.RECORDED_AT, index) if slots[Column.RECORDED_AT] else recorded_at,
            self._number(_UINT16, Column.PARTITION, index) if slots[Column.PARTITION] else 0,
            type,
            data,
            tags,
            id,
            self._value(Column.SOURCE, index).decode() if slots[Column.SOURCE] else "",
            self._attributes(index) if slots[Column.ATTRIBUTE_LISTS] else NO_ATTRIBUTES,
            self._value(Column.GROUP_KEY, index).decode() if slots[Column.GROUP_KEY] else "",
            self._value(Column.ENVELOPE, index) if slots[Column.ENVELOPE] else b"",
            Encoding(self._number(_UINT8, Column.ENCODING, index)) if slots[Column.ENCODING] else _DATA,
        )

    def _number(self, kind: struct.Struct, slot: int, index: int) -> int:
        (value,) = kind.unpack_from(self._content, self._offset + self._directory[slot] + kind.size * index)
        return int(value)

    def _value(self, slot: int, index: int) -> bytes:
        low, high = _two(self._content, self._offset + self._directory[slot] + 4 * index)
        origin = self._offset + self._directory[slot + 1]
        return self._content[origin + low : origin + high]

    def _attributes(self, index: int) -> Mapping[str, str]:
        low, high = _two(self._content, self._offset + self._directory[Column.ATTRIBUTE_LISTS] + 4 * index)
        return {
            self._value(Column.ATTRIBUTE_NAME, each).decode(): self._value(Column.ATTRIBUTE_VALUE, each).decode()
            for each in range(low, high)
        }
