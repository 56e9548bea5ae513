"""One segment file: a header and frames, then zeros. Its name is the number of its first event.

Only the newest segment of a log is written; the others never change. `recovery` recovers the newest segment after a
crash.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter, neg
from pathlib import Path

import google_crc32c

from ...core.errors import StorageCorrupted
from ...core.event import SequencedEvent
from ...core.limits import SEQUENCE_NUMBER_MAX
from ...formats.newer import WrittenByNewer
from ...formats.packed import PackedEvents
from ...speedups import IS_NATIVE
from ..disk.disk_image import DiskImage
from ..frames.encoding import EncodedFrame
from ..frames.frame import BadFrame, Frame, NotNext
from ..frames.layout import GATED_FEATURE, LEAD, OPTIONAL_AT
from ..frames.random_access import pick as pick_scattered

if IS_NATIVE:
    from ...speedups._native import walk

logger = logging.getLogger("headwater.storage")

Ranges = Sequence[tuple[int, int]]
"""Inclusive pairs of sequence numbers."""
SEGMENT_MAGIC = b"HWSEGMNT"
SEGMENT_VERSION = 1
_HEADER = struct.Struct("<8sII16sQIQ8s")
"""magic, version, generation, log id, first number, seed of the frames' checksums, number up to which it was complete,
spare"""
_CHECKSUM = struct.Struct("<I")
_DENSE = 4
"""Events of a frame are decoded together if at least one in this many events is wanted."""
_NO_LIMIT = 1 << 62
_first = attrgetter("first")
_SPAN = 256
"""The maximum number of wanted events to decode together."""
SEGMENT_HEADER_BYTES = _HEADER.size + _CHECKSUM.size


def id_in(path: Path) -> bytes:
    """The log id in a segment's header, for callers without another source. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(_HEADER.size)
    return bytes(_HEADER.unpack(head)[3]) if len(head) == _HEADER.size else b""


def segment_name(first: int) -> str:
    """The file name of the segment whose first event has that number."""
    return f"{first:020d}.log"


def segment_paths(directory: Path) -> list[Path]:
    """All segments of a log, oldest first."""
    return sorted(path for path in directory.glob("*.log") if path.stem.isdecimal())


class Segment:
    """One segment file, mapped read-only, with the offset of each frame."""

    def __init__(self, path: Path, log_id: bytes, first: int | None = None, *, image: DiskImage | None = None) -> None:
        """Map the file and check its header. `first`: the number of its first event, if the name does not have it yet.

        `image`: content to use instead of the file's, with at least the header. Raises StorageCorrupted,
        WrittenByNewer.
        """
        self.path = path
        self.first = int(path.stem) if first is None else first
        self._log_id = log_id
        self.fd = -1
        """Open only while the segment is written (the map keeps a separate descriptor)."""
        self.damage: str | None = None
        """The first damage that a read found, and what to do about it."""
        self.is_indexed = False
        """Whether its derived files have been seen: see `maintenance.tasks`."""
        self.distrusted: Ranges = ()
        """Events whose frames are damaged on disk, even if memory has them intact: reads refuse them."""
        self.reset()
        self.map, self.buffer = self._mapped() if image is None else (image.map, image.content)
        self.size = len(self.buffer)
        self.allocated = self.size
        """The file's allocated bytes; less than its size at opening after the rest was released."""
        self.crc_seed, self.whole_upto = self._check_header()

    def _mapped(self) -> tuple[mmap.mmap, memoryview]:
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._check_size(size)
            mapped = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
        return mapped, memoryview(mapped)

    def _check_size(self, size: int) -> None:
        if size < SEGMENT_HEADER_BYTES:
            raise self.header_damaged("the file is shorter than its header")

    def open_to_write(self) -> None:
        """Open the file for writing. Raises OSError."""
        self.fd = os.open(self.path, os.O_RDWR)

    def reset(self) -> None:
        """Forget all frames."""
        self.firsts: Sequence[int] = array("Q")
        """The first number of each frame, in order; `offsets` has their offsets in the file."""
        self.offsets: Sequence[int] = array("Q")
        self.last = self.first - 1
        self.events = 0
        self.end = SEGMENT_HEADER_BYTES
        """The offset of the next frame."""
        self.last_crc = 0
        self.recorded_at = 0
        """The time of the last frame."""
        self._verified = bytearray()
        """Whether each frame has been verified."""
        self._newest_read: tuple[int, Frame] | None = None
        """The last frame read, and its index: the next read usually wants the same one."""

    def unverify(self) -> None:
        """Make the next read of each frame verify it."""
        self._verified = bytearray(len(self.offsets))

    def distrust(self, low: int, high: int, problem: str) -> None:
        """Refuse reads of the events from `low` to `high`, whose bytes on disk are damaged.

        The page in memory may be intact, but is dropped when memory is short.
        """
        self.distrusted = (*self.distrusted, (low, high))
        self.damage = self.damage or str(self.corrupted(f"events {low} to {high} are damaged on the disk ({problem})"))
        for index in range(max(self.index_of(low), 0), self.index_of(high) + 1):
            self._verified[index] = False
        self._newest_read = None

    def trust(self, low: int, high: int) -> None:
        """Allow reads of these events again, after a repair on disk: the next read of each frame verifies it."""
        self.distrusted = tuple(each for each in self.distrusted if each != (low, high))
        if not self.distrusted:
            self.damage = None

    def add(self, frame: Frame | EncodedFrame, offset: int) -> None:
        """Add an intact frame at that offset."""
        assert isinstance(self.firsts, array) and isinstance(self.offsets, array), "a sealed segment does not grow"
        self._verified.append(True)
        self.firsts.append(frame.first)
        self.offsets.append(offset)
        self.last = frame.last
        self.events += frame.last - frame.first + 1
        self.end = offset + frame.length
        self.last_crc = frame.crc
        self.recorded_at = frame.recorded_at

    def adopt(self, firsts: Sequence[int], offsets: Sequence[int]) -> None:
        """Adopt the offsets of all frames (of a sealed segment), unverified: the first read of each verifies it."""
        if not len(offsets):
            return
        last = Frame(self.buffer, offsets[-1], self.crc_seed)
        self.firsts, self.offsets, self._verified = firsts, offsets, bytearray(len(offsets))
        self.last, self.end = last.last, last.offset + last.length
        self.last_crc, self.recorded_at = last.crc, last.recorded_at
        self.events = self.last - self.first + 1

    def adopt_copied(self, other: Segment) -> None:
        """Adopt the offsets of the frames of the file copied to this one. The other file's offsets do not change."""
        firsts, offsets = (each[:] if isinstance(each, array) else each for each in (other.firsts, other.offsets))
        self.adopt(firsts, offsets)
        self.events = other.events

    def adopt_scanned(self, other: Segment) -> None:
        """Adopt the offsets found in the same file before it was truncated."""
        self.firsts, self.offsets, self._verified = other.firsts, other.offsets, other._verified
        self.last, self.events, self.end = other.last, other.events, other.end
        self.last_crc, self.recorded_at = other.last_crc, other.recorded_at

    def frame(self, index: int) -> Frame:
        """The frame at that index. Raises StorageCorrupted."""
        if (read := self._newest_read) is not None and read[0] == index:
            return read[1]
        try:
            if self._verified[index]:
                frame = Frame(self.buffer, self.offsets[index], self.crc_seed)
            else:
                frame = self._proven(index)
                self._verified[index] = True  # before the check of `distrusted`: `distrust` may run now
                if any(low <= frame.last and frame.first <= high for low, high in self.distrusted):
                    self._verified[index] = False
                    raise BadFrame("on disk, but not in memory")
            self._newest_read = index, frame
        except BadFrame as bad:
            error = self._damaged(index, bad)
            self.damage = self.damage or str(error)
            raise error from None
        return frame

    def look_for_damage(self) -> None:
        """Read and verify the whole file again: `damage` reports the first fault."""
        try:
            self._check_header()
            for index in range(len(self.offsets)):
                try:
                    self._proven(index)
                except BadFrame as bad:
                    raise self._damaged(index, bad) from None
        except StorageCorrupted as error:
            self.damage = self.damage or str(error)

    def _proven(self, index: int) -> Frame:
        """The frame at that index, verified together with its link to the frame before it. Raises BadFrame."""
        frame = Frame(self.buffer, self.offsets[index], self.crc_seed)
        frame.verify()
        if frame.first != self.firsts[index]:
            raise BadFrame(f"it starts with event {frame.first}, expected {self.firsts[index]}")
        if index and frame.previous_crc != LEAD.unpack_from(self.buffer, self.offsets[index - 1])[1]:
            self._check_chain(index, frame)
        return frame

    def _check_chain(self, index: int, frame: Frame) -> None:
        """Raises NotNext, unless the frame before it is damaged too, or frames between them are lost."""
        try:
            before = Frame(self.buffer, self.offsets[index - 1], self.crc_seed)
            if before.last + 1 != frame.first:
                return
            before.verify()
        except BadFrame:
            return
        raise NotNext(frame)

    def _damaged(self, index: int, bad: BadFrame) -> StorageCorrupted:
        return self.corrupted(f"events {self.firsts[index]} to {self.number_of(index + 1) - 1} are damaged ({bad})")

    def _pick(
        self,
        numbers: list[int],
        position: int,
        below: int,
        events: list[SequencedEvent] | PackedEvents,
        budget: int,
        event_bytes: int,
    ) -> tuple[int, int, bool]:
        """`pick` from the frame of the number at that position."""
        pick_of_frame = self._pick_of_frame if not event_bytes else self._pick_fitting
        if isinstance(events, list):
            return pick_of_frame(numbers, position, below, events, budget)
        found: list[SequencedEvent] = []
        picked = pick_of_frame(numbers, position, below, found, budget)
        events.extend(found)
        return picked

    def _pick_fitting(
        self, numbers: list[int], position: int, below: int, events: list[SequencedEvent], budget: int
    ) -> tuple[int, int, bool]:
        """`_pick_of_frame` within a byte bound."""
        index = self.index_of(numbers[position])
        if index < 0:
            return position + 1, budget, True
        frame = self.frame(index)
        following = self.firsts[index + 1] if index + 1 < len(self.firsts) else below
        stop = position
        while stop < len(numbers) and frame.first <= numbers[stop] < following:
            at = numbers[stop] - frame.first
            size = frame.sizes.between(at, at + 1) if at < frame.count else 0
            if size > budget:
                break
            stop, budget = stop + 1, budget - size
        if stop == position:
            return position, 0, frame.is_gated
        self._pick_together(index, numbers[position:stop], events, _NO_LIMIT)
        return stop, budget, frame.is_gated

    def _pick_of_frame(
        self, numbers: list[int], position: int, below: int, events: list[SequencedEvent], budget: int
    ) -> tuple[int, int, bool]:
        """The counterpart of `walk`, which takes plain events of many frames."""
        number, stop = numbers[position], position + 1
        firsts, after = self.firsts, bisect_right(self.firsts, number)
        if not after:  # the segment begins with lost events
            return stop, budget, True
        is_gated = bool(self.buffer[self.offsets[after - 1] + OPTIONAL_AT] & GATED_FEATURE)
        first, following = firsts[after - 1], firsts[after] if after < len(firsts) else below
        if stop == len(numbers) or not first <= numbers[stop] < following:
            return stop, self._pick_apart(after - 1, (number,), events, budget), is_gated
        stop = _end_of_frame(numbers, stop, first, following)
        budget = self._pick_together(after - 1, numbers[position:stop], events, budget)
        if budget <= 0:
            stop = numbers.index(events[-1].sequence_number, position) + 1
        return stop, budget, is_gated

    def _pick_apart(self, index: int, numbers: Sequence[int], events: list[SequencedEvent], budget: int) -> int:
        """`random_access.pick` from the frame at that index.

        The header is read in place, so nothing is cached, however many frames there are.
        """
        if not self._verified[index]:
            self.frame(index)
        return pick_scattered(self.map, self.offsets[index], numbers, events, budget)

    def _pick_together(self, index: int, numbers: list[int], events: list[SequencedEvent], budget: int) -> int:
        """The same, but many events are decoded together, in bounded spans."""
        if len(numbers) < _DENSE or len(numbers) * _DENSE < abs(numbers[-1] - numbers[0]) + 1:
            return self._pick_apart(index, numbers, events, budget)
        frame = self.frame(index)
        if frame.last < max(numbers[0], numbers[-1]):  # some are lost, and the loss was accepted
            numbers = [number for number in numbers if number <= frame.last]
        for at in range(0, len(numbers), _SPAN):
            piece = numbers[at : at + _SPAN]
            low, high = min(piece[0], piece[-1]), max(piece[0], piece[-1])
            decoded = frame.events(low - frame.first, high - frame.first + 1)
            for number in piece:
                event = decoded[number - low]
                events.append(event)
                budget -= len(event.data) + len(event.envelope)
                if budget <= 0:
                    return budget
        return budget

    def number_of(self, index: int) -> int:
        """The first number of the frame at that index; after the last frame, the next number."""
        return self.firsts[index] if index < len(self.firsts) else self.last + 1

    def index_of(self, number: int) -> int:
        """The index of the frame that has, or would have, that number; -1 below the first."""
        return bisect_right(self.firsts, number) - 1

    def corrupted(self, problem: str) -> StorageCorrupted:
        """The error for that problem, with the remedy."""
        return StorageCorrupted(
            str(self.path),
            problem,
            "restore a backup (headwater restore), or accept the loss of these events (headwater check --accept-loss)",
        )

    def header_damaged(self, problem: str) -> StorageCorrupted:
        """The error for a segment with a damaged header, without which it cannot be read."""
        return StorageCorrupted(str(self.path), problem, "restore a backup (headwater restore)")

    def give_back_rest(self) -> None:
        """Release the space allocated after the last frame, when the segment is no longer written.

        A page of zeros stays, because a backup that maps the file right now looks for the end of the frames.
        """
        kept = min((self.end // 4096 + 2) * 4096, self.size)
        try:
            os.truncate(self.fd if self.fd >= 0 else self.path, kept)
            self.allocated = kept
        except OSError as error:  # it only occupies more space than it needs
            logger.warning("%s: cannot truncate it to its used part: %s", self.path, error)

    def close(self) -> None:
        """Stop writing; the map is freed when its last reader releases it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _check_header(self) -> tuple[int, int]:
        """Check the header; returns the seed of the checksums and the number up to which the segment was complete at
        its start."""
        head = bytes(self.buffer[:SEGMENT_HEADER_BYTES])
        self._check_size(len(head))
        magic, version, _, found_id, first, crc_seed, whole_upto, _ = _HEADER.unpack_from(head)
        (crc,) = _CHECKSUM.unpack_from(head, _HEADER.size)
        if magic != SEGMENT_MAGIC or crc != google_crc32c.value(head[: _HEADER.size]):
            raise self.header_damaged("the header of the segment is damaged")
        if version > SEGMENT_VERSION:
            raise WrittenByNewer(self.path, f"segment format {version}; this version supports up to {SEGMENT_VERSION}")
        if found_id != self._log_id or first != self.first:
            raise self.header_damaged("the segment belongs to another log, or was renamed")
        return int(crc_seed), int(whole_upto)


def pick(
    segments: Sequence[Segment],
    numbers: list[int],
    events: list[SequencedEvent] | PackedEvents,
    budget: int,
    event_bytes: int = 0,
) -> tuple[int, int, bool]:
    """Append the events with these numbers, ascending or descending, from the segments of a log.

    It stops when payloads have used up the byte budget. Returns the number of numbers passed, the rest of the budget,
    and whether all their frames are gated. Events trimmed just now, or whose loss was accepted, are skipped. With
    `event_bytes`, the budget bounds all bytes of the events plus that many for each: it stops before an event that does
    not fit, with no budget left. Raises StorageCorrupted.
    """
    into = events if isinstance(events, list) else events.rows
    position, begin, below, is_gated = 0, 0, 0, True
    while position < len(numbers) and budget > 0:
        number = numbers[position]
        if not begin <= number < below:  # usually in the same segment as the previous one
            at = bisect_right(segments, number, key=_first) - 1
            if at < 0:  # just trimmed
                position += 1
                continue
            segment = segments[at]
            begin = segment.first
            below = segments[at + 1].first if at + 1 < len(segments) else SEQUENCE_NUMBER_MAX + 1
        walked = IS_NATIVE and walk(
            segment.map,
            segment.firsts,
            segment.offsets,
            segment._verified,
            numbers,
            position,
            below,
            into,
            budget,
            event_bytes,
        )
        if not walked or walked[0] == position:
            walked = segment._pick(numbers, position, below, events, budget, event_bytes)
        elif not isinstance(events, list):
            events.total += walked[0] - position
        position, budget, are_gated = walked
        is_gated &= are_gated
    return position, budget, is_gated


def segment_header(log_id: bytes, first: int, crc_seed: int, generation: int = 0, whole_upto: int = 0) -> bytes:
    """The header of a segment file. `generation` counts rewrites (redaction).

    `whole_upto`: it was durable up to this number before it became a segment, so missing frames are no torn tail.
    """
    head = _HEADER.pack(SEGMENT_MAGIC, SEGMENT_VERSION, generation, log_id, first, crc_seed, whole_upto, b"")
    return head + _CHECKSUM.pack(google_crc32c.value(head))


def _end_of_frame(numbers: Sequence[int], position: int, first: int, below: int) -> int:
    if numbers[position] < numbers[position - 1]:
        return bisect_left(numbers, 1 - first, position, key=neg)
    return bisect_left(numbers, below, position)


def bytes_between(segments: Sequence[Segment], low: int, high: int) -> int:
    """The approximate bytes of the events from `low` to `high`: a partly covered frame counts in proportion."""
    return sum(_bytes_upto(each, high) - _bytes_upto(each, low - 1) for each in segments) if low <= high else 0


def _bytes_upto(segment: Segment, number: int) -> int:
    """The bytes of its frames up to that number, with a proportional part of the last."""
    firsts, offsets = segment.firsts, segment.offsets
    if not len(offsets) or number < segment.first:
        return 0
    begin = offsets[0]
    if number >= segment.last:
        return segment.end - begin
    index = max(segment.index_of(number), 0)
    first, offset = firsts[index], offsets[index]
    following = (firsts[index + 1], offsets[index + 1]) if index + 1 < len(offsets) else (segment.last + 1, segment.end)
    count = max(following[0] - first, 1)
    return offset - begin + (following[1] - offset) * min(number - first + 1, count) // count
