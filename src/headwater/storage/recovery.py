"""Opening the segments of a log: after a clean stop by trust, after a crash by looking at every frame of the newest.

A bad frame above everything that later frames call durable is a torn tail: it is cut, and the rest of the segment is
made zeros again. A bad frame at or below that is damage: the log refuses to open, unless its loss was accepted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from .disk import Disk
from .frame import MAGIC, BadFrame, Frame, UnknownFeature
from .meta import CleanStop, Ranges, highest_kept
from .places import Places, places_name
from .segments import Segment, corrupted, segment_paths

logger = logging.getLogger("headwater.storage")

_ZEROS = bytes(1 << 20)


def open_segments(
    directory: Path,
    index_directory: Path,
    log_id: bytes,
    *,
    clean: CleanStop | None,
    known_durable: int,
    first_retained: int,
    gaps: Ranges,
    disk: Disk,
) -> list[Segment]:
    """All segments of a log, whole and ready, oldest first.

    `known_durable`: that event was there. `gaps`: numbers that are no events, or whose loss was accepted.
    Raises StorageCorrupted, StorageUnavailable (a frame of a newer format).
    """
    with ExitStack() as opened:  # a log that cannot be opened leaves no file open
        segments = [opened.enter_context(closing(Segment(path, log_id))) for path in segment_paths(directory)]
        for segment in segments[:-1]:
            find_places(segment, index_directory, gaps)
        if segments:
            newest = segments[-1]
            if not _ends_cleanly(newest, clean, gaps):
                recover(newest, known_durable, gaps, disk)
        _check_contiguous(segments, first_retained, gaps)
        if not segments and known_durable >= first_retained:
            raise corrupted(directory, f"events {first_retained} to {known_durable} are damaged (there is no segment)")
        opened.pop_all()
        return segments


def _check_contiguous(segments: Sequence[Segment], first_retained: int, gaps: Ranges) -> None:
    edge = first_retained - 1
    for segment in segments:
        upto = highest_kept(gaps, segment.first - 1)
        if upto > edge:
            raise segment.corrupted(f"events {edge + 1} to {upto} are damaged (they should come before this segment)")
        edge = max(edge, segment.last)


def find_places(segment: Segment, index_directory: Path, gaps: Ranges) -> None:
    """Learn the places of a sealed segment's frames: from the file beside it, else from the headers of its frames."""
    try:
        places = Places(index_directory / places_name(segment.first))
        if places.first == segment.first and places.end <= segment.size:
            segment.adopt(places.firsts, places.offsets)
            return
    except (OSError, ValueError, BadFrame, UnknownFeature) as error:
        logger.debug("no places of %s: %s", segment.path, error)
        segment.reset()
    scan = Scan(segment, gaps)
    scan.run()
    if scan.bad is not None:
        raise scan.damage(scan.bad_number)


def recover(segment: Segment, known_durable: int, gaps: Ranges, disk: Disk) -> None:
    """Find the end of the newest segment after a crash, and make it ready to be written on. Raises StorageCorrupted."""
    scan = Scan(segment, gaps)
    scan.run()
    durable = highest_kept(gaps, max(known_durable, scan.durable_upto, scan.durable_behind()))
    if durable >= scan.bad_number:
        raise scan.damage(durable)
    if scan.bad is not None or not scan.is_zero_behind():
        reason = scan.bad or "garbage"
        logger.warning("%s: cutting a torn tail behind event %d (%s)", segment.path, segment.last, reason)
        cut(segment, disk)
    disk.sync(segment.fd)  # a process that was killed had written, but perhaps not synced, what is served from now on


def cut(segment: Segment, disk: Disk) -> None:
    """Make everything behind the last frame zeros again, durably, before anything is appended."""
    os.ftruncate(segment.fd, segment.end)
    disk.allocate(segment.fd, segment.size)
    os.fsync(segment.fd)


class Scan:
    """A walk over the frames of one segment, checking each; goes on behind a bad one only if its loss was accepted."""

    def __init__(self, segment: Segment, gaps: Ranges) -> None:
        self.segment = segment
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
        while (frame := self._following()) is not None:
            self.durable_upto = max(self.durable_upto, frame.durable_upto)
            self.segment.add(frame, frame.offset)

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

    def _following(self) -> Frame | None:
        """The next good frame; behind bytes that are none (or zeros) only if the loss of what was there is accepted."""
        bad = None
        if self._has_more():
            try:
                return self._good_frame(self.segment.end)
            except BadFrame as found:
                bad = found
        elif not self.is_lost(self.bad_number, self.bad_number):
            return None
        behind = self._next_good(self.segment.end + 8)
        if self.is_lost(self.bad_number, behind.first - 1 if behind else self.bad_number):
            return behind
        self.bad = bad
        return None

    def _has_more(self) -> bool:
        end = self.segment.end
        return end + 8 <= self.segment.size and bytes(self.segment.buffer[end : end + 8]) != bytes(8)

    def _good_frame(self, offset: int) -> Frame:
        try:
            frame = Frame(self.segment.buffer, offset)
        except UnknownFeature as news:
            raise self.segment.newer(news) from None
        frame.verify()
        if frame.first <= self.segment.last:
            raise BadFrame(f"it begins with event {frame.first}, after event {self.segment.last}")
        if offset == self.segment.end and self.segment.events and frame.previous_crc != self.segment.last_crc:
            raise BadFrame("it does not follow the frame before it")
        return frame

    def _next_good(self, offset: int) -> Frame | None:
        """The first whole frame from that offset on."""
        content = self.segment.buffer.obj
        while 0 <= (offset := content.find(MAGIC, offset)) < self.segment.size:  # type: ignore[attr-defined]
            try:
                return self._good_frame(offset)
            except BadFrame:
                offset += 4
        return None

    def is_lost(self, first: int, last: int) -> bool:
        """Whether the loss of these numbers was accepted."""
        return highest_kept(self._gaps, last) < first


def _ends_cleanly(segment: Segment, clean: CleanStop | None, gaps: Ranges) -> bool:
    """Whether the frames up to the clean end are there (by their headers only), adding them."""
    if clean is None or clean.segment != segment.path.name or any(high >= segment.first for _, high in gaps):
        return False
    try:
        while segment.end < clean.end:
            segment.add(frame := Frame(segment.buffer, segment.end), frame.offset)
    except (BadFrame, UnknownFeature):
        pass
    if segment.end == clean.end and segment.last == clean.head and segment.last_crc == clean.crc:
        segment.unverify()
        return True
    segment.reset()
    return False
