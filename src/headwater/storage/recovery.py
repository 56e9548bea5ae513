"""Opening the segments of a log: after a clean stop by trust, after a crash by looking at every frame of the newest.

A bad frame above everything that later frames call durable is a torn tail: it is cut, and the rest of the segment is
made zeros again. A bad frame at or below that is damage: the log refuses to open, unless its loss was accepted.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ..core.errors import StorageCorrupted
from .disk import Disk
from .frame import MAGIC, BadFrame, Frame
from .meta import CleanStop
from .places import Places, places_name
from .segments import Segment, segment_paths

logger = logging.getLogger("headwater.storage")

Ranges = Sequence[tuple[int, int]]
_ZEROS = bytes(1 << 20)


def open_segments(
    directory: Path,
    index_directory: Path,
    log_id: bytes,
    *,
    clean: CleanStop | None,
    known_durable: int,
    voids: Ranges,
    lost: Ranges,
    disk: Disk,
) -> list[Segment]:
    """All segments of a log, whole and ready, oldest first. `known_durable`: the head was at least there.

    Raises StorageCorrupted, StorageUnavailable (a frame of a newer format).
    """
    segments = [Segment(path, log_id) for path in segment_paths(directory)]
    gaps = [*voids, *lost]
    for segment, following in pairwise(segments):
        find_places(segment, index_directory, gaps, following.first - 1)
        _check_successor(segment, following, gaps)
    if segments:
        newest = segments[-1]
        if clean is None or clean.segment != newest.path.name or not _ends_so(newest, clean):
            segments[-1] = newest = recover(newest, log_id, known_durable, gaps, disk)
        newest.open_to_write()
    return segments


def find_places(segment: Segment, index_directory: Path, gaps: Ranges, last: int) -> None:
    """Learn the places of a sealed segment's frames: from the file beside it, else by looking at each frame.

    `last` is the number before the next segment's first. Raises StorageCorrupted.
    """
    try:
        places = Places(index_directory / places_name(segment.first))
        if places.first == segment.first and places.end <= segment.size:
            segment.adopt(places.firsts, places.offsets)
            return
    except (OSError, ValueError, BadFrame) as error:
        logger.debug("no places of %s: %s", segment.path, error)
    scan = Scan(segment, gaps, ends_at=last)
    scan.run()
    if scan.bad is not None:
        raise scan.damage(last)


def _check_successor(segment: Segment, following: Segment, gaps: Ranges) -> None:
    """Raises StorageCorrupted if a segment is missing between two, or the second does not follow the first."""
    low, high = segment.last + 1, following.first - 1
    if low <= high and not is_covered(low, high, gaps):
        raise StorageCorrupted(
            str(following.path.parent),
            f"events {low} to {high} are missing; a segment file is gone",
            "restore a backup (headwater restore), or accept the loss of these events (headwater check --accept-loss)",
        )


def is_covered(low: int, high: int, ranges: Ranges) -> bool:
    """Whether the ranges, taken together, have every number from `low` to `high`."""
    for first, last in sorted(ranges):
        if first <= low <= last:
            low = last + 1
    return low > high


def recover(segment: Segment, log_id: bytes, known_durable: int, gaps: Ranges, disk: Disk) -> Segment:
    """Find the end of the newest segment after a crash, and make it ready to be written on.

    Answers the segment, mapped anew if it was cut. Raises StorageCorrupted.
    """
    scan = Scan(segment, gaps)
    scan.run()
    if scan.bad is None and scan.is_zero_behind():
        return segment
    durable = max(known_durable, scan.durable_upto, scan.durable_behind())
    if durable >= scan.bad_number and not scan.is_lost(scan.bad_number, durable):
        raise scan.damage(durable)
    logger.warning("%s: cutting a torn tail behind event %d (%s)", segment.path, segment.last, scan.bad or "garbage")
    return _cut(segment, log_id, disk)


def _cut(segment: Segment, log_id: bytes, disk: Disk) -> Segment:
    """Make everything behind the last frame zeros again, durably, before anything is appended."""
    with open(segment.path, "r+b") as file:
        os.ftruncate(file.fileno(), segment.end)
        try:
            disk.allocate(file.fileno(), segment.size)
        except OSError as error:  # what is there can be read; the next append begins a new segment
            logger.warning("%s: no room behind the last event: %s", segment.path, error)
        os.fsync(file.fileno())
    mended = Segment(segment.path, log_id)
    mended.adopt_scanned(segment)
    return mended


class Scan:
    """A walk over the frames of one segment, checking each; goes on behind a bad one only if its loss was accepted."""

    def __init__(self, segment: Segment, gaps: Ranges, *, ends_at: int | None = None) -> None:
        """`gaps` are numbers that need not be there; `ends_at` is the last number of a sealed segment."""
        self.segment = segment
        self._ends_at = ends_at
        self.durable_upto = 0
        """The highest that a frame told of."""
        self.bad: BadFrame | None = None
        self._gaps = gaps

    @property
    def bad_number(self) -> int:
        """The number at which the bad frame begins (or the next one would)."""
        return self.segment.last + 1

    def run(self) -> None:
        """Add every good frame to the segment; stop at the end or at a bad one."""
        segment = self.segment
        while self._has_more():
            try:
                frame = self._good_frame(segment.end)
            except BadFrame as bad:
                self.bad = bad
                behind = self._next_good(segment.end + 8)
                if not self.is_lost(self.bad_number, behind.first - 1 if behind else self.bad_number):
                    return
                self.bad = None
                if behind is None:
                    return
                frame = behind
            self._take(frame)

    def durable_behind(self) -> int:
        """The highest number that good frames behind the bad one call durable."""
        durable, offset = 0, self.segment.end + 8
        while (frame := self._next_good(offset)) is not None:
            durable = max(durable, frame.durable_upto)
            offset = frame.offset + frame.length
        return durable

    def is_zero_behind(self) -> bool:
        """Whether nothing but zeros follows the last good frame."""
        buffer, size = self.segment.buffer, len(_ZEROS)
        for start in range(self.segment.end, self.segment.size, size):
            piece = buffer[start : start + size]
            if piece != _ZEROS[: len(piece)]:
                return False
        return True

    def damage(self, durable: int) -> Exception:
        """The error for a bad frame that had been durable."""
        behind = self._next_good(self.segment.end + 8)
        upto = max(behind.first - 1 if behind else durable, self.bad_number)
        reason = self.bad or "zeros where a frame was"
        return self.segment.corrupted(f"events {self.bad_number} to {upto} are damaged ({reason})")

    def lost_range(self, last: int) -> tuple[int, int]:
        """What accepting the loss at this bad frame gives up: up to the next good frame, or to that last number."""
        behind = self._next_good(self.segment.end + 8)
        return self.bad_number, behind.first - 1 if behind else max(last, self.bad_number)

    def _take(self, frame: Frame) -> None:
        self.durable_upto = max(self.durable_upto, frame.durable_upto)
        self.segment.add(frame, frame.offset)

    def _has_more(self) -> bool:
        if self._ends_at is not None:
            return self.segment.last < self._ends_at and not self.is_lost(self.segment.last + 1, self._ends_at)
        end = self.segment.end
        return end + 8 <= self.segment.size and bytes(self.segment.buffer[end : end + 8]) != bytes(8)

    def _good_frame(self, offset: int) -> Frame:
        frame = Frame(self.segment.buffer, offset, self.segment.crc_seed)
        frame.verify()
        if frame.first <= self.segment.last:
            raise BadFrame(f"it begins with event {frame.first}, after event {self.segment.last}")
        if offset == self.segment.end and self.segment.events and frame.previous_crc != self.segment.last_crc:
            raise BadFrame("it does not follow the frame before it")
        return frame

    def _next_good(self, offset: int) -> Frame | None:
        """The first whole frame from that offset on."""
        while 0 <= (offset := self.segment.map.find(MAGIC, offset)) < self.segment.size:
            if offset % 8 == 0:  # as every frame is
                with contextlib.suppress(BadFrame):
                    return self._good_frame(offset)
            offset += 4
        return None

    def is_lost(self, first: int, last: int) -> bool:
        """Whether the loss of these numbers was accepted."""
        return is_covered(first, last, self._gaps)


def _ends_so(segment: Segment, clean: CleanStop) -> bool:
    """Whether the frames up to the clean end are there (by their headers only), adding them."""
    try:
        while segment.end < clean.end:
            frame = Frame(segment.buffer, segment.end, segment.crc_seed)
            segment.add(frame, frame.offset)
    except BadFrame as bad:
        logger.debug("%s: not as it was left: %s", segment.path, bad)
    if segment.end == clean.end and segment.last == clean.head and segment.last_crc == clean.crc:
        segment.unverify()
        return True
    segment.reset()
    return False
