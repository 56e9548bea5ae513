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
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt

from ..core.build import IS_COMPILED
from ..core.errors import StorageUnavailable
from ..core.event import NO_ATTRIBUTES, Encoding, SequencedEvent, sequenced
from ..core.limits import EventColumns
from ..formats.arrow_columns import ArrowColumns, Coded, buffer_of, coded, numbers_of, offsets_of
from ..formats.decoders import msgpack_decoder
from ..formats.late import arrow_is_loaded, pa
from .frame_layout import (
    DIRECTORY,
    DIRECTORY_SLOTS,
    FORMAT_VERSION,
    HEADER,
    HEADER_BYTES,
    LEAD,
    MAGIC,
    MARKS_FEATURE,
    REQUIRED_FEATURES,
    Column,
)
from .joined_crc import joined_crc
from .picking import pick, pick_plain
from .writers import FrameMark

assert sys.byteorder == "little", "frames are written as the machine's own little-endian arrays"

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
    """All of it; of a frame whose body lies in a file already, the head."""
    staged: StagedFile | None = None
    """What becomes a segment, with this frame and perhaps others in it: then it has no buffers, and ends as they do."""


class StagedFile(NamedTuple):
    """A staged file whose frames have got their heads; nothing of them is in it yet."""

    path: Path
    inode: tuple[int, int]
    """Device and number of the file that was looked at."""
    end: int
    frames: list[tuple[int, EncodedFrame]]
    """Where each begins."""


class EncodedBody(NamedTuple):
    """A frame but for what only the log knows: its header, and its marks."""

    buffers: list[Content]
    length: int
    """Of the whole frame."""
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
    """One frame of these events, numbered from `first` on. Never fails on checked events."""
    body = _Body()
    if any(partitions):
        body.add(Column.PARTITION, array("H", partitions).tobytes())
    tags_count = body.add_arrow([columns.batch]) if isinstance(columns, ArrowColumns) else _add_columns(body, columns)
    if marks:
        body.add_control(Control(tuple(marks)))
    return body.frame(columns.count, tags_count, first, recorded_at, chain_)


def encode_body(batches: Sequence[pa.RecordBatch], room: int) -> EncodedBody:
    """What lies in a frame of the events of these batches of EVENT_SCHEMA behind its head, which takes `room` bytes.

    See `encode_head`. Values stay where they are: only offsets are made anew.
    """
    body = _Body(room)
    tags = body.add_arrow(batches)
    return EncodedBody(body.buffers, body.length, body.directory, sum([batch.num_rows for batch in batches]), tags)


def encode_head(
    body: EncodedBody, room: int, body_crc: int, first: int, recorded_at: int, chain_: Chain, mark: FrameMark
) -> EncodedFrame:
    """The frame that the log makes of a body with that checksum: its buffer is the head, as long as there is room."""
    head = _Body(HEADER_BYTES)
    head.add_control(Control((mark,)))
    assert head.length <= room
    head.buffers.append(bytes(room - head.length))
    directory = [here or there for here, there in zip(head.directory, body.directory, strict=True)]
    header = _header(body.length, head.features, body.events, body.tags, first, recorded_at, chain_)
    rest = b"".join([header, DIRECTORY.pack(*directory), *head.buffers])
    crc = joined_crc(extended_crc(chain_.crc_seed, rest), body_crc, body.length - room)
    buffers: list[Content] = [LEAD.pack(MAGIC, crc) + rest]
    return EncodedFrame(first, first + body.events - 1, recorded_at, crc, body.length, buffers)


def head_room(writer: str) -> int:
    """How many bytes the head of a frame may take that has a mark of that writer, whatever its numbers are."""
    most = (1 << 63) - 1
    head = _Body(HEADER_BYTES)
    head.add_control(Control((FrameMark(writer, most, most, True, most, most, most, most, most),)))
    return head.length


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

    def __init__(self, length: int = HEADER_BYTES) -> None:
        """The first buffer begins there."""
        self.buffers: list[Content] = []
        self.length = length
        self.directory = [0] * DIRECTORY_SLOTS
        self.features = 0

    def add(self, slot: int, content: Content) -> None:
        self.add_pieces(slot, [content])

    def add_pieces(self, slot: int, pieces: Sequence[Content]) -> None:
        self.directory[slot] = self.length
        self.buffers += pieces
        size = sum(map(len, pieces))
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

    def add_arrow(self, batches: Sequence[pa.RecordBatch]) -> int:
        """The columns of batches of EVENT_SCHEMA: their buffers as they lie there. Answers how many tags there are."""

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
        self.add_pieces(slot + 1, [buffer_of(column) for column in columns])

    def add_lists(self, slot: int, columns: Sequence[pa.Array]) -> int:
        """Where the lists begin; none of that if all are empty. Answers how many elements they have together."""
        offsets = _joined_offsets(columns)
        if count := int(offsets[-1]):
            self.add(slot, offsets.tobytes())
        return count

    def add_control(self, control: Control) -> None:
        content = msgspec.msgpack.encode(control)
        self.add(Column.CONTROL, _CONTROL_LENGTH.pack(len(content)) + content)
        self.features |= MARKS_FEATURE

    def frame(self, count: int, tags: int, first: int, recorded_at: int, chain_: Chain) -> EncodedFrame:
        header = _header(self.length, self.features, count, tags, first, recorded_at, chain_)
        rest = [header, DIRECTORY.pack(*self.directory), *self.buffers]
        if self.length < JOINED_BYTES_MAX:
            rest = [b"".join(rest)]
        crc = chain_.crc_seed
        for buffer in rest:
            crc = extended_crc(crc, buffer)
        return EncodedFrame(first, first + count - 1, recorded_at, crc, self.length, [LEAD.pack(MAGIC, crc), *rest])


def _header(length: int, features: int, count: int, tags: int, first: int, recorded_at: int, chain_: Chain) -> bytes:
    _, epoch, previous_crc, durable_upto, nonce = chain_
    return HEADER.pack(
        length, FORMAT_VERSION, 0, features, 0, count, tags, first, epoch, previous_crc, 0, durable_upto, nonce,
        recorded_at,
    )  # fmt: skip


def _pairs(column: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """The names, and the values, of all attributes of a column."""
    low, high = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return column.keys.slice(low, high - low), column.items.slice(low, high - low)


def _joined_offsets(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    """The offsets of the values of these arrays, one behind the other."""
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
        magic, self.crc = LEAD.unpack_from(buffer, offset)
        (
            self.length, version, required, _, _, self.count, self.tags_count, self.first, self.epoch,
            self.previous_crc, _, self.durable_upto, self.nonce, self.recorded_at,
        ) = HEADER.unpack_from(buffer, offset + LEAD.size)  # fmt: skip
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
        self._directory = DIRECTORY.unpack_from(buffer, offset + LEAD.size + HEADER.size)
        if version > FORMAT_VERSION or required & ~REQUIRED_FEATURES:
            self.verify()  # else it is damage, not news
            raise UnknownFeature(version, required)

    @property
    def last(self) -> int:
        """The number of the last event."""
        return int(self.first + self.count - 1)

    def verify(self) -> None:
        """Raises BadFrame if the checksum does not fit, or the frame is empty."""
        if extended_crc(self._crc_seed, self._buffer[LEAD.size :]) != self.crc:
            raise BadFrame("the checksum does not fit")
        if not self.count:
            raise BadFrame("the frame has no events")

    def events(self, start: int = 0, end: int | None = None) -> list[SequencedEvent]:
        """The events at these positions in the frame (from 0 to `count`), decoded."""
        end = self.count if end is None else end
        size = end - start
        if size < _FEW:
            return self._picked(start, end)
        if IS_COMPILED:
            events: list[SequencedEvent] = []
            numbers = range(self.first + start, self.first + end)
            if pick_plain(self._buffer, 0, numbers, events, _NO_LIMIT) is not None:
                return events
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
            return msgpack_decoder(Control).decode(self._buffer[start : start + length]).marks
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


def _are_even(lists: Sequence[int]) -> bool:
    """Whether all lists that begin at these places, one after the other, are as long as the first."""
    if len(lists) < ARROW_MIN:
        return lists == list(range(lists[0], lists[-1] + 1, lists[1] - lists[0]))
    sizes = np.diff(np.array(lists))
    return bool((sizes == sizes[0]).all())
