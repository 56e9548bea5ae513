"""The frame, for reading: one group commit on disk, the unit of atomicity, checksum and replication (format version 1).

A frame is a header, a directory of column buffers and the buffers: Arrow-compatible, little-endian, each 8-byte
aligned. A column of only default values is left out. `docs/data-file-format.md` has the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, repeat
from mmap import mmap
from typing import Any

import msgspec
import numpy as np

from ...core.event import NO_ATTRIBUTES, Encoding, SequencedEvent, sequenced
from ...core.log import LargeEvent
from ...formats.arrow.columns import Coded, coded
from ...formats.arrow.lazy import arrow_is_loaded, pa
from ...formats.decoders import msgpack_decoder
from ...formats.newer import WrittenByNewer
from ...speedups import IS_NATIVE
from .crc import extended_crc
from .layout import (
    CONTROL_LENGTH,
    DIRECTORY,
    FORMAT_VERSION,
    GATED_FEATURE,
    HEADER,
    HEADER_BYTES,
    LEAD,
    MAGIC,
    REQUIRED_FEATURES,
    Column,
    Control,
    FrameMark,
)
from .random_access import pick, pick_any
from .sizes import EventSizes

if IS_NATIVE:
    from ...speedups._native import pick as pick_plain

_ARROW_MIN = 32
ARROW_MIN = 512
"""The number of events from which reading whole columns is faster than reading event by event."""
_FEW = 8
"""The number of events up to which reading event by event is faster."""
_NO_LIMIT = 1 << 62


class BadFrame(Exception):
    """There is no complete, undamaged frame at that offset."""


class NotNext(BadFrame):
    """An intact frame that does not follow the frame before it: it overwrote another frame or was placed there."""

    def __init__(self, frame: Frame) -> None:
        super().__init__("it does not follow the frame before it")
        self.durable_upto = frame.last if frame.durable_upto >= frame.first - 1 else 0
        """Its last number, if the frame that it followed was durable and is gone; otherwise it may be a torn tail."""


class UnknownFeature(WrittenByNewer):
    """The frame needs a feature or version unknown to this code."""

    def __init__(self, version: int, required: int) -> None:
        super().__init__("a frame", f"format version {version}, required features {required:#x}")


class Frame:
    """A frame in a buffer, read in place: the header at once, columns on demand."""

    __slots__ = (
        "_arrow", "_buffer", "_crc_seed", "_directory", "_origin", "_sizes", "_whole", "count", "crc", "durable_upto",
        "epoch", "first", "is_gated", "length", "nonce", "offset", "previous_crc", "recorded_at", "tags_count",
    )  # fmt: skip

    def __init__(self, buffer: memoryview, offset: int, crc_seed: int) -> None:
        """Read the header at that offset. Raises BadFrame if there is none, UnknownFeature; `verify` does the rest."""
        if offset + HEADER_BYTES > len(buffer):
            raise BadFrame("the file ends within the header")
        magic, self.crc = LEAD.unpack_from(buffer, offset)
        (
            self.length, version, required, optional, _, self.count, self.tags_count, self.first, self.epoch,
            self.previous_crc, _, self.durable_upto, self.nonce, self.recorded_at,
        ) = HEADER.unpack_from(buffer, offset + LEAD.size)  # fmt: skip
        if magic != MAGIC:
            raise BadFrame(f"expected magic {MAGIC!r}, got {magic!r}")
        if self.length < HEADER_BYTES or self.length & 7 or offset + self.length > len(buffer):
            raise BadFrame(f"invalid length {self.length}")
        self.offset = offset
        self.is_gated = optional & GATED_FEATURE != 0
        """Whether its events passed all checks when they were appended."""
        self._crc_seed = crc_seed
        self._buffer = buffer[offset : offset + self.length]
        self._whole: object = buffer.obj if buffer.nbytes == len(buffer.obj) else None  # type: ignore[arg-type]
        """The object to which the offset `_origin` refers, if the buffer is all of it."""
        self._origin = offset
        self._sizes: EventSizes | None = None
        self._arrow: pa.Buffer | None = None
        """The whole frame, once a column has been read."""
        self._directory = DIRECTORY.unpack_from(buffer, offset + LEAD.size + HEADER.size)
        if version > FORMAT_VERSION or required & ~REQUIRED_FEATURES:
            self.verify()  # otherwise it is damage, not a newer format
            raise UnknownFeature(version, required)

    @property
    def last(self) -> int:
        """The number of the last event."""
        return int(self.first + self.count - 1)

    @property
    def content(self) -> bytes:
        """The bytes of the frame."""
        return bytes(self._buffer)

    def verify(self) -> None:
        """Raises BadFrame if the checksum does not match or the frame is empty."""
        if extended_crc(self._crc_seed, self._buffer[LEAD.size :]) != self.crc:
            raise BadFrame("the checksum does not match")
        if not self.count:
            raise BadFrame("the frame has no events")

    def events(self, start: int = 0, end: int | None = None) -> list[SequencedEvent]:
        """The events at these positions in the frame (from 0 to `count`), decoded."""
        end = self.count if end is None else end
        size = end - start
        if size < _FEW:
            return self._picked(start, end)
        if IS_NATIVE:
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
                    strict=False,  # some columns repeat one value endlessly
                ),
            )
        )

    def event(self, index: int) -> SequencedEvent:
        """One event, decoded; faster than `events` for one."""
        return self._picked(index, index + 1)[0]

    def _picked(self, start: int, end: int) -> list[SequencedEvent]:
        if not isinstance(self._whole, mmap | bytes):  # slices of these are bytes; slices of a view are views
            self._whole, self._origin = bytes(self._buffer), 0
        events: list[SequencedEvent] = []
        pick(self._whole, self._origin, range(self.first + start, self.first + end), events, _NO_LIMIT)
        return events

    @property
    def sizes(self) -> EventSizes:
        """The sizes of its events."""
        if self._sizes is None:
            self._sizes = EventSizes(self._buffer, self._directory, self.count)
        return self._sizes

    def large(self, index: int) -> LargeEvent:
        """One event, whose data is not copied."""
        events: list[SequencedEvent] = []
        whole, origin = (
            (self._whole, self._origin) if isinstance(self._whole, mmap | bytes) else (bytes(self._buffer), 0)
        )
        pick_any(whole, origin, (self.first + index,), events, _NO_LIMIT, with_data=False)
        low, high = self._ints(Column.DATA, index, index + 1)
        at = self._directory[Column.DATA + 1]
        return LargeEvent(events[0], self._buffer[at + low : at + high])

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
        """The marks of exactly-once writers with these events, in order. Raises WrittenByNewer."""
        if not (at := self._directory[Column.CONTROL]):
            return ()
        start = at + CONTROL_LENGTH.size
        (length,) = CONTROL_LENGTH.unpack_from(self._buffer, at)
        try:
            return msgpack_decoder(Control).decode(self._buffer[start : start + length]).marks
        except msgspec.MsgspecError as error:
            raise WrittenByNewer(f"the control record of the frame of event {self.first}", str(error)) from None

    def recorded_at_of(self, number: int) -> int:
        """The time at which that event of the frame was recorded, in ms."""
        index = number - self.first
        return self._times(index, index + 1)[0] if self._directory[Column.RECORDED_AT] else int(self.recorded_at)

    def payload_bytes(self) -> list[int]:
        """Running totals of data and envelope bytes: count + 1 numbers, starting at 0."""
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
        """Decode values: many are decoded with Arrow (if loaded), which is faster than slicing but starts slowly."""
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
        """All types, dictionary-coded."""
        return coded(self._array(pa.utf8(), Column.TYPE, 0, self.count))

    def coded_tags(self) -> Coded:
        """All tags, dictionary-coded."""
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
    """Whether the consecutive lists that begin at these offsets are all as long as the first."""
    if len(lists) < ARROW_MIN:
        return lists == list(range(lists[0], lists[-1] + 1, lists[1] - lists[0]))
    sizes = np.diff(np.array(lists))
    return bool((sizes == sizes[0]).all())
