"""Mends a copy: damaged events are fetched from its home into a file that replaces the damaged one.

The new file must be verified first. It is read back from the disk like every file in the scrub, and must end with the
same checksum as the segment. Until then the damaged file stays.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ...core.errors import DiskFull, StorageUnavailable
from ..disk.free_space import Room
from ..disk.system import Disk, private_opener
from ..frames.frame import BadFrame, Frame
from ..home.replicated_log import MENDED, ReplicatedLog
from ..segments.meta import Meta
from ..segments.segment import SEGMENT_HEADER_BYTES, Segment
from .file_proof import FileToProve, Proof

PIECE_BYTES = 1024 * 1024
"""The number of bytes to copy at a time."""


class HomedFrames(NamedTuple):
    """The frames of an open log, or of the journal, with a home."""

    meta: Meta
    frames: ReplicatedLog


class Mending:
    """Mends one segment at a time. Not thread-safe."""

    def __init__(
        self,
        opened: Callable[[Path], HomedFrames | None],
        staying_open: threading.RLock,
        *,
        disk: Disk,
        room: Room,
    ) -> None:
        """`opened` opens a log, or the journal, by directory and returns its frames; None if it is gone.

        While `staying_open` is held, no log is opened or closed.
        """
        self._opened, self._staying_open = opened, staying_open
        self._disk, self._room = disk, room
        self._at: tuple[HomedFrames, Segment] | None = None
        """The segment being replaced."""

    def begin(self, path: Path) -> FileToProve | None:
        """Write a file with the segment's damaged events from the home, and all its other events.

        Returns the file, which needs a proof before `finish`; None if the segment, or its damage, is gone.
        Raises StorageUnavailable (the home is away, or lacks them), DiskFull, StorageCorrupted, OSError.
        """
        self._at = None
        if (found := self._opened(path.parent.parent)) is None:
            return None
        meta, frames = found
        segment = next((each for each in frames.segments if each.path == path), None)
        if segment is None or not segment.distrusted:
            return None
        if frames.home.away is not None:
            raise frames.home.away
        frames.wait_for_append()  # the next one goes into another segment
        self._check_room(segment)
        self._disk.check()  # before truncating a file that another server may already own
        target = path.with_name(MENDED)
        try:
            self._write(target, frames, segment)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        self._at = found, segment
        before, gaps = _before(frames, segment), tuple(meta.gaps)
        return FileToProve(str(target), meta.segments_id, gaps, segment.last, before=before, number=segment.first)

    def finish(self, proof: Proof) -> bool:
        """Durably replace the damaged file, if the new one is intact; False: the damaged one stays.

        Raises EventLogError, OSError: the damaged one stays too.
        """
        assert self._at is not None, "it was begun"
        (_, frames), segment = self._at
        self._at = None
        is_whole = proof.is_known and not proof.damages and proof.after == (segment.last, segment.last_crc)
        file = segment.path.with_name(MENDED)
        with self._staying_open:
            found = self._opened(segment.path.parent.parent) if is_whole else None
            if found is None or found.frames is not frames or segment not in frames.segments:
                file.unlink(missing_ok=True)
                return False
            frames.put_mended(segment, file)
        return True

    def _check_room(self, segment: Segment) -> None:
        standing = self._room.check()
        if standing.free_bytes - segment.allocated < standing.reserve_bytes:
            raise DiskFull(str(segment.path), standing.free_bytes, segment.allocated)

    def _write(self, target: Path, frames: ReplicatedLog, segment: Segment) -> None:
        """Durably write the file: trusted frames are copied.

        It has the size of the old file, so it can accept appends.
        """
        with (
            open(segment.path, "rb", buffering=0) as damaged,
            open(target, "w+b", buffering=0, opener=private_opener) as mended,
        ):
            source, fd = damaged.fileno(), mended.fileno()
            self._disk.allocate(fd, segment.allocated)
            self._disk.write(fd, [frames.header_of(segment)], 0)
            at = SEGMENT_HEADER_BYTES
            for low, high in sorted(segment.distrusted):
                start, stop = max(segment.index_of(low), 0), segment.index_of(high) + 1
                self._copy(source, fd, at, _offset(segment, start))
                self._fetch(fd, frames, segment, start, stop)
                at = _offset(segment, stop)
            self._copy(source, fd, at, segment.end)
            self._disk.sync(fd)

    def _copy(self, source: int, fd: int, start: int, end: int) -> None:
        while start < end:
            if not (piece := os.pread(source, min(PIECE_BYTES, end - start), start)):
                raise StorageUnavailable(f"a damaged segment ends at {start}, expected {end}")
            self._disk.write(fd, [piece], start)
            start += len(piece)

    def _fetch(self, fd: int, frames: ReplicatedLog, segment: Segment, start: int, stop: int) -> None:
        """Write the home's frames from index `start` to `stop` (exclusive), each at its offset."""
        at, first = _offset(segment, start), segment.number_of(start)
        end, below = _offset(segment, stop), segment.number_of(stop)
        for content in frames.home.frames(frames.key, first - 1, below - 1):
            try:
                frame = Frame(memoryview(content), 0, segment.crc_seed)
                frame.verify()
            except BadFrame as bad:
                raise StorageUnavailable(f"the home has a damaged frame for event {first} ({bad})") from None
            if frame.first != first or at + frame.length > end:
                break
            self._disk.write(fd, [content], at)
            at, first = at + frame.length, frame.last + 1
        if (at, first) != (end, below):
            raise StorageUnavailable(f"the home has no frame for event {first}, or a different one")


def _before(frames: ReplicatedLog, segment: Segment) -> tuple[int, int]:
    """The last number and checksum of the previous segment; zeros if there is none or it is damaged too."""
    index = frames.segments.index(segment)
    before = frames.segments[index - 1] if index else None
    return (0, 0) if before is None or before.distrusted else (before.last, before.last_crc)


def _offset(segment: Segment, index: int) -> int:
    return segment.offsets[index] if index < len(segment.offsets) else segment.end
