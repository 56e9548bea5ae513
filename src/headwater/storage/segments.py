"""The frame log in local files: preallocated segments, `pwritev` and `fdatasync`. The embedded default.

A segment is a header and frames, then zeros. Its name is the number of its first event. Only the newest is written;
the others never change. Recovery of the newest after a crash is in `recovery`.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import google_crc32c

from ..core.errors import DiskFull, StorageCorrupted, StorageUnavailable
from .disk import Disk, sync_directory
from .frame import BadFrame, EncodedFrame, Frame, UnknownFeature
from .framelog import HeadMoved

logger = logging.getLogger("headwater.storage")

SEGMENT_BYTES_MIN = 4 * 1024 * 1024
SEGMENT_BYTES_MAX = 256 * 1024 * 1024
SEGMENT_EVENTS_MAX = 262_144
"""Bounds the index in memory, and so the time to rebuild it after a crash."""
SEGMENT_MAGIC = b"HWSEGMNT"
SEGMENT_VERSION = 1
_HEADER = struct.Struct("<8sII16sQ20s")
_CHECKSUM = struct.Struct("<I")
SEGMENT_HEADER_BYTES = _HEADER.size + _CHECKSUM.size
PREPARED = "prepared.tmp"


def segment_name(first: int) -> str:
    """The file name of the segment whose first event has that number."""
    return f"{first:020d}.log"


def segment_paths(directory: Path) -> list[Path]:
    """All segments of a log, oldest first."""
    return sorted(path for path in directory.glob("*.log") if path.stem.isdecimal())


def corrupted(path: Path, problem: str) -> StorageCorrupted:
    """The error that says so, and what to do."""
    return StorageCorrupted(
        str(path),
        problem,
        "restore a backup (headwater restore), or accept the loss of these events (headwater check --accept-loss)",
    )


class Segment:
    """One segment file, mapped read-only, with the place of each of its frames."""

    def __init__(self, path: Path, log_id: bytes) -> None:
        """Map the file and check its header. Raises StorageCorrupted."""
        self.path = path
        self.fd = os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
        self.size = os.fstat(self.fd).st_size
        self.first = int(path.stem)
        self.reset()
        try:
            if not self.size:
                raise self.corrupted("the file is empty")
            self.buffer = memoryview(mmap.mmap(self.fd, self.size, prot=mmap.PROT_READ))
            self._check_header(log_id)
        except BaseException:
            self.close()
            raise

    def reset(self) -> None:
        """Know of no frame."""
        self.firsts: Sequence[int] = array("Q")
        """First number of each frame, in order; `offsets` has the place of each in the file."""
        self.offsets: Sequence[int] = array("Q")
        self.last = self.first - 1
        self.events = 0
        self.end = SEGMENT_HEADER_BYTES
        """Where the next frame goes."""
        self.last_crc = 0
        self.recorded_at = 0
        """Of the last frame."""
        self._verified: set[int] = set()

    def unverify(self) -> None:
        """Let each frame be verified when it is next read."""
        self._verified.clear()

    def add(self, frame: Frame | EncodedFrame, offset: int) -> None:
        """A frame is known to be at that place, whole."""
        assert isinstance(self.firsts, array) and isinstance(self.offsets, array), "a sealed segment does not grow"
        self.firsts.append(frame.first)
        self.offsets.append(offset)
        self._verified.add(offset)
        self.last = frame.last
        self.events += frame.last - frame.first + 1
        self.end = offset + frame.length
        self.last_crc = frame.crc
        self.recorded_at = frame.recorded_at

    def adopt(self, firsts: Sequence[int], offsets: Sequence[int]) -> None:
        """Take over the places of all frames (of a sealed segment), unverified: each is verified when first read."""
        if not len(offsets):
            return
        self.firsts, self.offsets = firsts, offsets
        last = Frame(self.buffer, offsets[-1])
        self.last, self.end = last.last, last.offset + last.length
        self.last_crc, self.recorded_at = last.crc, last.recorded_at
        self.events = self.last - self.first + 1

    def frame(self, index: int) -> Frame:
        """The frame of that index. Raises StorageCorrupted, StorageUnavailable (it is of a newer format)."""
        offset = self.offsets[index]
        try:
            frame = Frame(self.buffer, offset)
            if offset not in self._verified:
                frame.verify()
                self._verified.add(offset)
        except UnknownFeature as news:
            raise self.newer(news) from None
        except BadFrame as bad:
            following = self.firsts[index + 1] if index + 1 < len(self.firsts) else self.last + 1
            raise self.corrupted(f"events {self.firsts[index]} to {following - 1} are damaged ({bad})") from None
        return frame

    def index_of(self, number: int) -> int:
        """The index of the frame that has that number, or would have it; -1 below the first."""
        return bisect_right(self.firsts, number) - 1

    def corrupted(self, problem: str) -> StorageCorrupted:
        """The error that says so, and what to do."""
        return corrupted(self.path, problem)

    def newer(self, news: UnknownFeature) -> StorageUnavailable:
        """The error for a frame that this code cannot read."""
        return StorageUnavailable(
            f"{self.path}: a frame needs {news}, which this headwater does not know; use a newer headwater"
        )

    def close(self) -> None:
        """Close the file; the map goes when the last reader lets go of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _check_header(self, log_id: bytes) -> None:
        if self.size < SEGMENT_HEADER_BYTES:
            raise self.corrupted("the file is shorter than its header")
        head = bytes(self.buffer[:SEGMENT_HEADER_BYTES])
        magic, version, _, found_id, first, _ = _HEADER.unpack_from(head)
        (crc,) = _CHECKSUM.unpack_from(head, _HEADER.size)
        if magic != SEGMENT_MAGIC or crc != google_crc32c.value(head[: _HEADER.size]):
            raise self.corrupted("the header of the segment is damaged")
        if version > SEGMENT_VERSION:
            raise StorageCorrupted(str(self.path), f"segment format {version} is newer", "use a newer headwater")
        if found_id != log_id or first != self.first:
            raise self.corrupted("the segment belongs to another log, or was renamed")


def segment_header(log_id: bytes, first: int, generation: int = 0) -> bytes:
    """The header of a segment file. `generation` counts rewrites (redaction)."""
    head = _HEADER.pack(SEGMENT_MAGIC, SEGMENT_VERSION, generation, log_id, first, b"")
    return head + _CHECKSUM.pack(google_crc32c.value(head))


class SegmentLog:
    """A FrameLog in a directory. One thread appends; any thread reads what is durable."""

    def __init__(self, directory: Path, log_id: bytes, segments: Sequence[Segment], *, floor: int, disk: Disk,
                 reserve_bytes: int) -> None:  # fmt: skip
        """Take over recovered segments (see `recovery`). `floor`: numbers up to it were issued before."""
        self._directory, self._log_id, self._disk, self._reserve = directory, log_id, disk, reserve_bytes
        self._segments: tuple[Segment, ...] = tuple(segments)
        self._floor = floor
        self._replacing = threading.Lock()
        """Held while `_segments` is replaced: the writer adds to it, trimming takes from it."""
        self._preparing: threading.Thread | None = None
        (directory / PREPARED).unlink(missing_ok=True)

    @property
    def head(self) -> int:
        """See FrameLog."""
        return max(self._segments[-1].last, self._floor) if self._segments else self._floor

    @property
    def last_crc(self) -> int:
        """See FrameLog."""
        for segment in reversed(self._segments):
            if segment.events:
                return segment.last_crc
        return 0

    @property
    def recorded_at(self) -> int:
        """Of the last frame; 0 if there is none."""
        return next((segment.recorded_at for segment in reversed(self._segments) if segment.events), 0)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, oldest first; the last one is written."""
        return self._segments

    def append_frames(self, frames: Sequence[EncodedFrame], expected_head: int) -> None:
        """See FrameLog."""
        if expected_head != self.head:
            raise HeadMoved(self.head)
        self._check_free(0)
        for run in self._split(frames):
            segment = self._segments[-1]
            buffers = [buffer for frame in run for buffer in frame.buffers]
            self._disk.write(segment.fd, buffers, segment.end)
            self._disk.sync(segment.fd)
            for frame in run:
                segment.add(frame, segment.end)
        if self._segments[-1].end * 2 > self._segments[-1].size:
            self._prepare_soon()

    def read(self, after: int) -> Iterator[Frame]:
        """See FrameLog."""
        for segment in self._segments:
            if segment.last > after:
                for index in range(max(segment.index_of(after + 1), 0), len(segment.firsts)):
                    frame = segment.frame(index)
                    if frame.last > after:
                        yield frame

    def locate(self, number: int) -> tuple[Segment, int] | None:
        """The segment and frame index of the first event numbered at least so; None above the head.

        Raises StorageCorrupted.
        """
        segments = self._segments
        position = bisect_right(segments, number, key=lambda segment: segment.first) - 1
        for segment in segments[max(position, 0) :]:
            if segment.last < number:
                continue
            index = max(segment.index_of(number), 0)
            in_gap = segment.frame(index).last < number  # of lost events
            return (segment, index + 1 if in_gap else index)
        return None

    def trim(self, below: int) -> None:
        """Unlink the segments of which every event is numbered below that; the one in use stays."""
        with self._replacing:
            gone = [segment for segment in self._segments[:-1] if segment.last < below]
            self._segments = self._segments[len(gone) :]
        for segment in gone:
            segment.path.unlink(missing_ok=True)
            segment.close()
        if gone:
            sync_directory(self._directory)

    def close(self) -> None:
        """Close the files."""
        if self._preparing is not None:
            self._preparing.join()
        for segment in self._segments:
            segment.close()
        (self._directory / PREPARED).unlink(missing_ok=True)

    def _split(self, frames: Sequence[EncodedFrame]) -> Iterator[list[EncodedFrame]]:
        """Runs of frames that fit the newest segment; rolls to a new one between them (never in vain)."""
        run: list[EncodedFrame] = []
        for frame in frames:
            if not self._fits(run, frame):
                if run:
                    yield run
                    run = []
                if not self._fits(run, frame):
                    self._roll(frame)
            run.append(frame)
        yield run

    def _fits(self, run: Sequence[EncodedFrame], frame: EncodedFrame) -> bool:
        if not self._segments:
            return False
        segment = self._segments[-1]
        length = sum(each.length for each in run) + frame.length
        events = frame.last - segment.first + 1
        if not run and frame.first != segment.last + 1:  # numbers are contiguous in a segment
            return False
        return segment.end + length <= segment.size and (events <= SEGMENT_EVENTS_MAX or not segment.events)

    def _roll(self, frame: EncodedFrame) -> None:
        """Make a new segment that begins with that frame. Raises DiskFull."""
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        prepared = self._directory / PREPARED
        needed = SEGMENT_HEADER_BYTES + frame.length
        if not prepared.exists() or prepared.stat().st_size < needed:
            self._prepare(max(self._next_size(), needed))
        fd = os.open(prepared, os.O_RDWR)
        try:
            self._disk.write(fd, [segment_header(self._log_id, frame.first)], 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        path = self._directory / segment_name(frame.first)
        os.rename(prepared, path)
        sync_directory(self._directory)
        begun = Segment(path, self._log_id)
        with self._replacing:
            kept = self._segments
            if kept and not kept[-1].events:  # too small for its first frame: the rename took its place
                kept[-1].close()
                kept = kept[:-1]
            self._segments = (*kept, begun)

    def _next_size(self) -> int:
        if not self._segments:
            return SEGMENT_BYTES_MIN
        return min(self._segments[-1].size * 2, SEGMENT_BYTES_MAX)

    def _prepare_soon(self) -> None:
        if self._preparing is None:
            self._preparing = threading.Thread(target=self._prepare_ahead, name="headwater-prepare", daemon=True)
            self._preparing.start()

    def _prepare_ahead(self) -> None:
        try:
            self._prepare(self._next_size())
        except DiskFull as error:  # the roll tries again, and says so to the producer
            logger.warning("no room for the next segment: %s", error)

    def _prepare(self, size: int) -> None:
        self._check_free(size)
        path = self._directory / PREPARED
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
        try:
            self._disk.allocate(fd, size)
            os.fsync(fd)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise DiskFull(str(self._directory), self._disk.free_bytes(self._directory), size) from error
        finally:
            os.close(fd)

    def _check_free(self, size: int) -> None:
        free = self._disk.free_bytes(self._directory)
        if free < size + self._reserve:
            raise DiskFull(str(self._directory), free, size + self._reserve)
