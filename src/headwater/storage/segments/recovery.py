"""Opens the segments of a log.

After a clean stop they are trusted; after a crash, every frame of the newest is checked. A bad frame above everything
that later frames or the segment's header record as durable is a torn tail: it is truncated, and the rest of the segment
is zeroed. A bad frame at or below that is damage: the log refuses to open unless its loss was accepted.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path

from ...core.consumer import stored_consumers
from ...core.errors import StorageCorrupted
from ...core.state import StateStore
from ...formats.newer import WrittenByNewer
from ..disk.system import Disk, sync_directory
from ..frames.frame import BadFrame, Frame, NotNext, UnknownFeature
from ..frames.layout import MAGIC
from .meta import CleanStop, Meta
from .places import FramePlaces, places_name
from .segment import SEGMENT_HEADER_BYTES, Ranges, Segment, segment_paths

logger = logging.getLogger("headwater.storage")

_ZEROS = bytes(1 << 20)


def require_directory(directory: Path) -> None:
    """Raises StorageCorrupted if the directory of a log's segments is missing: it is created with the log."""
    if not directory.is_dir():
        remedy = "put it back, or restore a backup (headwater restore)"
        raise StorageCorrupted(str(directory), "the directory of the log's segments is missing", remedy)


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
    """Open and recover all segments of a log, oldest first. `known_durable`: the head was at least this number.

    `first_retained`: events below it may be gone. `gaps`: numbers that may be missing.

    Raises StorageCorrupted, StorageUnavailable (a frame of a newer format).
    """
    require_directory(directory)
    segments = [Segment(path, log_id) for path in segment_paths(directory)]
    expected, before = first_retained, None
    for segment, following in pairwise(segments):
        find_places(segment, index_directory, gaps, following.first - 1)
        check_order(expected, segment, gaps)
        if before is not None and not _follows(before, segment):
            _look_again(before, None, gaps, segment.first - 1)
            _look_again(segment, before, gaps, following.first - 1)
        expected, before = segment.last + 1, segment
    if not segments:
        _check_known(first_retained, highest_kept(gaps, known_durable), directory)
    else:
        newest = segments[-1]
        check_order(expected, newest, gaps)
        is_clean = _ends_cleanly(newest, clean, gaps)
        if is_clean and before is not None and not _follows(before, newest):
            _look_again(before, None, gaps, newest.first - 1)
            newest.reset()
            is_clean = False
        if is_clean:
            newest.open_to_write()
        else:
            segments[-1] = newest = recover(newest, log_id, known_durable, gaps, disk, before, clean)
            newest.open_to_write()
            disk.sync(newest.fd)  # a killed process may not have synced frames that are served from now on
            sync_directory(directory)  # nor the file's name: a staged file becomes a segment with all its frames
    return segments


def leave_unended(segments: Sequence[Segment], meta: Meta) -> None:
    """Close the newest segment, unless the process that wrote its last frame closed the log cleanly.

    That process may be suspended before a write to the segment, and write when it resumes. Nothing it writes after the
    last frame is read once another segment follows. Raises StorageCorrupted.
    """
    if not segments:
        return
    newest = segments[-1]
    has_ended = meta.clean == CleanStop(newest.last, newest.path.name, newest.end, newest.last_crc)
    if not newest.events or not has_ended or newest.frame(len(newest.firsts) - 1).epoch != meta.epoch:
        newest.close()


def known_durable(state: StateStore, meta: Meta) -> int:
    """The highest number certain to be durable, whatever the frames say: from acknowledgements or a clean stop."""
    acknowledged = (consumer.acknowledged for consumer in stored_consumers(state, meta.incarnation))
    return max(meta.clean.head if meta.clean else 0, *acknowledged, 0)


def scanned_segments(directory: Path, meta: Meta) -> Iterator[Segment]:
    """All segments of a log, oldest first, each with its frames up to a bad frame or to the start of the next segment.

    Raises StorageCorrupted, WrittenByNewer.
    """
    paths = segment_paths(directory)
    for path, following in zip_longest(paths, paths[1:]):
        segment = Segment(path, bytes.fromhex(meta.segments_id))
        SegmentScan(segment, meta.gaps, ends_at=int(following.stem) - 1 if following else None).run()
        yield segment


def find_places(segment: Segment, index_directory: Path, gaps: Ranges, last: int) -> None:
    """Find the offsets of a sealed segment's frames: from the places file, or by checking each frame.

    `last` is the number before the next segment's first. Raises StorageCorrupted.
    """
    path = index_directory / places_name(segment.first)
    try:
        places = FramePlaces(path)
        if places.end <= segment.size:
            segment.adopt(places.firsts, places.offsets)
            if segment.end == places.end and highest_kept(gaps, last) <= segment.last <= last:
                return
            segment.reset()  # its last frame does not match its header: check each
    except FileNotFoundError:
        logger.debug("no places file for %s", segment.path)
    except (OSError, ValueError, BadFrame) as error:
        logger.warning("unusable places file for %s: %s", segment.path, error)
        path.unlink()  # rebuilt with the index
    scan = SegmentScan(segment, gaps, ends_at=last)
    scan.run()
    if scan.bad is not None:
        raise scan.damage(last)


def _follows(before: Segment, segment: Segment) -> bool:
    """Whether a segment begins with the checksum that the previous one ends with, by their headers.

    Numbers between them belong to an accepted loss or to other incarnations.
    """
    if not before.events or not len(segment.offsets) or segment.firsts[0] != before.last + 1:
        return True
    first = Frame(segment.buffer, segment.offsets[0], segment.crc_seed)
    return bool(first.previous_crc == before.last_crc)


def _look_again(segment: Segment, before: Segment | None, gaps: Ranges, last: int) -> None:
    """Check each frame of a sealed segment that does not fit a neighbour. Raises StorageCorrupted if one is bad."""
    segment.reset()
    scan = SegmentScan(segment, gaps, ends_at=last, before=before)
    scan.run()
    if scan.bad is not None:
        raise scan.damage(last)


def check_order(expected: int, segment: Segment, gaps: Ranges) -> None:
    """Raises StorageCorrupted if a segment is missing before this one, which should begin at `expected`."""
    _check_known(expected, highest_kept(gaps, segment.first - 1), segment.path.parent)


def _check_known(expected: int, known: int, directory: Path) -> None:
    if known >= expected:
        raise StorageCorrupted(
            str(directory),
            f"events {expected} to {known} are missing; a segment file is gone",
            "restore a backup (headwater restore), or accept the loss of these events (headwater check --accept-loss)",
        )


def highest_kept(gaps: Ranges, number: int) -> int:
    """The highest number, at most that one, outside all gaps."""
    for low, high in sorted(gaps, reverse=True):
        if low <= number <= high:
            number = low - 1
    return number


def is_covered(low: int, high: int, ranges: Ranges) -> bool:
    """Whether the ranges together cover every number from `low` to `high`."""
    for first, last in sorted(ranges):
        if first <= low <= last:
            low = last + 1
    return low > high


def recover(
    segment: Segment,
    log_id: bytes,
    known_durable: int,
    gaps: Ranges,
    disk: Disk,
    before: Segment | None = None,
    clean: CleanStop | None = None,
) -> Segment:
    """Find the end of the newest segment after a crash, and prepare it for further writes.

    `before`, `clean`: see SegmentScan.

    Returns the segment, remapped if it was cut. Raises StorageCorrupted.
    """
    scan = SegmentScan(segment, gaps, before=before, clean=clean)
    scan.run()
    durable = scan.known_durable(known_durable)
    if durable >= scan.bad_number:
        raise scan.damage(durable)
    if scan.bad is None and scan.is_zero_behind():
        return segment
    logger.warning("%s: truncating a torn tail after event %d (%s)", segment.path, segment.last, scan.bad or "garbage")
    return cut(segment, log_id, disk)


def cut(segment: Segment, log_id: bytes, disk: Disk) -> Segment:
    """Durably zero everything after the last frame, before anything is appended."""
    with open(segment.path, "r+b") as file:
        os.ftruncate(file.fileno(), segment.end)
        try:
            disk.allocate(file.fileno(), segment.size)
        except OSError as error:  # its frames stay readable; the next append begins a new segment
            logger.warning("%s: no space after the last event: %s", segment.path, error)
        os.fsync(file.fileno())
    mended = Segment(segment.path, log_id)
    mended.adopt_scanned(segment)
    return mended


class SegmentScan:
    """A scan that checks each frame of one segment; it passes a bad one only if its loss was accepted."""

    def __init__(
        self,
        segment: Segment,
        gaps: Ranges,
        *,
        ends_at: int | None = None,
        before: Segment | None = None,
        clean: CleanStop | None = None,
    ) -> None:
        """`gaps` are numbers that may be missing; `ends_at` is the last number of a sealed segment.

        `before`: the segment that it must follow, with all its frames, if known. `clean`: how the log ended, if it was
        closed cleanly.
        """
        self.segment, self._before = segment, before
        self._clean = clean if clean is not None and clean.segment == segment.path.name else None
        self._ends_at = ends_at
        self.durable_upto = 0
        """The highest durable number that a frame records."""
        self.bad: BadFrame | None = None
        self._gaps = gaps

    @property
    def bad_number(self) -> int:
        """The first number of the bad frame (or of the next one)."""
        return self.segment.last + 1

    def run(self) -> None:
        """Add every good frame to the segment; stop at the end or at a bad one."""
        while self.step():
            pass

    def step(self) -> bool:
        """Add the next good frame; False at the end, or at a bad one."""
        if (frame := self._following()) is None:
            return False
        self.durable_upto = max(self.durable_upto, frame.durable_upto)
        self.segment.add(frame, frame.offset)
        return True

    def known_durable(self, otherwise: int) -> int:
        """The highest durable number according to these frames and `otherwise`, outside all gaps."""
        told = max(otherwise, self.durable_upto, self.segment.whole_upto, self.durable_behind())
        if isinstance(self.bad, NotNext):
            told = max(told, self.bad.durable_upto)
        return highest_kept(self._gaps, told)

    def durable_behind(self) -> int:
        """The highest number that good frames after the bad one record as durable."""
        durable, offset = 0, self.segment.end + 8
        while (frame := self._next_good(offset)) is not None:
            durable = max(durable, frame.durable_upto)
            offset = frame.offset + frame.length
        return durable

    def good_frames(self) -> Iterator[Frame]:
        """All intact frames of the segment, whatever lies between them."""
        offset = SEGMENT_HEADER_BYTES
        while (frame := self._next_good(offset)) is not None:
            yield frame
            offset = frame.offset + frame.length

    def is_zero_behind(self) -> bool:
        """Whether only zeros follow the last good frame."""
        content, end, size = self.segment.map, self.segment.end, len(_ZEROS)
        starts = range(end, self.segment.size, size)
        return all(content[start : start + size] == _ZEROS[: self.segment.size - start] for start in starts)

    def damage(self, durable: int) -> Exception:
        """The error for a bad frame that had been durable."""
        behind = self._next_good(self.segment.end + 8)
        upto = max(behind.first - 1 if behind else durable, self.bad_number)
        reason = self.bad or "zeros in place of a frame"
        return self.segment.corrupted(f"events {self.bad_number} to {upto} are damaged ({reason})")

    def lost_range(self, last: int) -> tuple[int, int]:
        """The numbers lost by accepting this bad frame: up to the next good frame, or to `last`."""
        behind = self._next_good(self.segment.end + 8)
        return self.bad_number, behind.first - 1 if behind else max(last, self.bad_number)

    def _following(self) -> Frame | None:
        """The next good frame; a frame after a bad frame or zeros only if the loss between them was accepted."""
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
        if self._ends_at is not None:
            return self.segment.last < self._ends_at and not self.is_lost(self.segment.last + 1, self._ends_at)
        end = self.segment.end
        return end + 8 <= self.segment.size and bytes(self.segment.buffer[end : end + 8]) != bytes(8)

    def _good_frame(self, offset: int) -> Frame:
        try:
            frame = Frame(self.segment.buffer, offset, self.segment.crc_seed)
        except UnknownFeature as error:
            raise WrittenByNewer(self.segment.path, error.form) from None
        frame.verify()
        if frame.first <= self.segment.last:
            raise BadFrame(f"it starts with event {frame.first}, after event {self.segment.last}")
        if self.is_lost(frame.first, frame.last):
            raise BadFrame("its loss was accepted")
        before = self.segment if self.segment.events else self._before
        is_next = before is not None and before.events and offset == self.segment.end and frame.first == before.last + 1
        if before is not None and is_next and frame.previous_crc != before.last_crc:
            raise NotNext(frame)
        clean = self._clean
        if clean and frame.first <= clean.head <= frame.last and (frame.last, frame.crc) != (clean.head, clean.crc):
            raise BadFrame("the log ended with a different frame when it was closed")
        return frame

    def _next_good(self, offset: int) -> Frame | None:
        """The first intact frame from that offset on."""
        # The end: CPython before 3.11.5 reads a byte behind it (gh-105235), which may be unmapped.
        while (offset := self.segment.map.find(MAGIC, offset, self.segment.size - 1)) >= 0:
            if offset % 8 == 0:  # all frames are aligned
                with contextlib.suppress(BadFrame):
                    return self._good_frame(offset)
            offset += 4
        return None

    def is_lost(self, first: int, last: int) -> bool:
        """Whether the loss of these numbers was accepted."""
        return is_covered(first, last, self._gaps)


def _ends_cleanly(segment: Segment, clean: CleanStop | None, gaps: Ranges) -> bool:
    """Add the frames up to the clean end, by their headers only; returns whether all of them exist."""
    if clean is None or clean.segment != segment.path.name or any(high >= segment.first for _, high in gaps):
        return False  # headers do not show which frames are lost
    try:
        while segment.end < clean.end:
            frame = Frame(segment.buffer, segment.end, segment.crc_seed)
            if segment.events and frame.previous_crc != segment.last_crc:
                raise NotNext(frame)
            segment.add(frame, frame.offset)
    except BadFrame as bad:
        logger.debug("%s: changed since it was closed: %s", segment.path, bad)
    if segment.end == clean.end and segment.last == clean.head and segment.last_crc == clean.crc:
        segment.unverify()
        return True
    segment.reset()
    return False
