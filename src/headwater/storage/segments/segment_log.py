"""The frame log in local files: preallocated segments, `pwritev` and `fdatasync`. It is the embedded default.

Small appends are written and synced in one call if the file system is known to support that.

A closed newest segment is never written again: the next append replaces it with a new file or begins a new segment.
Recovery closes it after an unclean end (`recovery.leave_unended`). A process that was suspended before a write then
writes to a file to which no other process appends.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from pathlib import Path

from ...core.errors import DiskFull, EventLogError, StorageUnavailable
from ..disk.background_writer import BackgroundWriter
from ..disk.free_space import Room
from ..disk.locks import LockLost
from ..disk.system import NO_SPACE, Disk, make_private, private_opener, refusal_of, sync_directory
from ..frames.encoding import AdoptedFile, EncodedFrame
from ..frames.frame import Frame
from ..frames.frame_log import FrameLog, Head, HeadMoved, NotAdopted, Term, nobody
from .segment import SEGMENT_HEADER_BYTES, Segment, segment_header, segment_name

logger = logging.getLogger("headwater.storage")

SEGMENT_BYTES_FIRST = 64 * 1024
"""The size of a log's first segment: many logs have few events."""
SEGMENT_GROWTH = 8
"""The growth factor of segments up to the minimum usual size; above it, the factor is two."""
SEGMENT_BYTES_MIN = 4 * 1024 * 1024
"""The minimum usual size."""
SEGMENT_BYTES_MAX = 256 * 1024 * 1024
SEGMENT_EVENTS_MAX = 262_144
"""Bounds the number of events that are indexed at once, and checked after a crash."""
DURABLY_BYTES_MAX, DURABLY_BUFFERS_MAX = 256 * 1024, 1024
"""The maximum number of bytes to write and sync in one call: the system writes larger amounts in larger pieces."""
COPIED_BYTES_MIN, COPIED_SHARE, COPIED_BYTES_MAX = 256 * 1024, 8, 16 * 1024 * 1024
"""A closed newest segment is copied if it has at most 1/COPIED_SHARE of the log's bytes, within these bounds;
otherwise each unclean end would leave a segment. So even processes that are always killed leave only a few dozen
segments until the log has 128 MiB, and then one per 16 MiB."""
PREPARED, ADOPTED = "prepared", "adopted"
"""Name prefixes of unfinished files. Each opening uses its own names: another process may still rename its files."""
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_first, _buffers = attrgetter("first"), attrgetter("buffers")
_CANNOT_PREPARE = "cannot create the next segment"


class SegmentLog(FrameLog):
    """Frames in a directory. One thread appends; any thread reads durable frames."""

    def __init__(self, directory: Path, log_id: bytes, segments: Sequence[Segment], *, crc_seed: int, floor: int,
                 term: Term, disk: Disk, room: Room, segment_bytes: int | None = None) -> None:  # fmt: skip
        """Take over recovered segments (see `recovery`). `floor`: numbers up to it were issued before.

        `segment_bytes`: the size of each new segment; None if they grow with the log.
        """
        self._directory, self._log_id, self._disk, self._room = directory, log_id, disk, room
        self.term = term
        self.crc_seed = crc_seed
        self._segment_bytes = segment_bytes
        self._is_synced = True
        """Whether everything appended is durable."""
        self._writes_durably = disk.writes_durably(directory)
        """Whether small appends are written and synced in one call, as far as is known."""
        self.segments: tuple[Segment, ...] = tuple(segments)
        """All segments, oldest first; only the last is written."""
        self._replacing = threading.Lock()
        """Held while `segments` is replaced: the writer adds, maintenance removes."""
        self.floor = floor
        """Numbers up to this one are not issued again."""
        self.has_links = True
        """Whether the file system supports hard links, as far as is known: without them no file is adopted."""
        self._preparing: threading.Thread | None = None
        for name in os.listdir(directory):
            if name.startswith((PREPARED, ADOPTED)) and name.endswith(".tmp"):
                (directory / name).unlink(missing_ok=True)
        opening = secrets.token_hex(4)
        self.prepared, self._adopted = (directory / f"{name}-{opening}.tmp" for name in (PREPARED, ADOPTED))
        """The file of the next segment, and the staged file being adopted."""

    @property
    def head(self) -> int:
        return max(self.last, self.floor)

    @property
    def unavailable(self) -> StorageUnavailable | None:
        return self._disk.refusal

    @property
    def last(self) -> int:
        """The number of the last stored event; 0 if there is none."""
        return self.segments[-1].last if self.segments else 0

    @property
    def last_crc(self) -> int:
        for segment in reversed(self.segments):
            if segment.events:
                return segment.last_crc
        return 0

    @property
    def recorded_at(self) -> int:
        """The time of the last frame; 0 if there is none."""
        return next((segment.recorded_at for segment in reversed(self.segments) if segment.events), 0)

    @property
    def prepared_bytes(self) -> int:
        """The bytes of the next segment's file, if it was prepared ahead; else 0."""
        try:
            return self.prepared.stat().st_size
        except FileNotFoundError:
            return 0

    def append_frames(
        self,
        frames: Sequence[EncodedFrame],
        expected: Head,
        on_overdue: Callable[[], None] = nobody,
        *,
        is_durable: bool = True,
    ) -> None:
        """See FrameLog. Frames not appended durably become durable with the next `sync` or durable append."""
        if expected != (found := Head(self.head, self.last_crc, self.term)):
            raise HeadMoved(found)
        self._room.check()
        left = deque(frames)
        while left:
            if (staged := left[0].staged) is not None:
                left.popleft()
                self._adopt(staged)
                continue
            run = self._next_run(left)
            segment = self.segments[-1]
            buffers = list(chain.from_iterable(map(_buffers, run)))
            if not (is_durable and self._is_synced and self._written_durably(segment, buffers)):
                self._disk.write(segment.fd, buffers, segment.end)
                if is_durable:
                    self._disk.sync(segment.fd)
            self._is_synced = is_durable
            for frame in run:
                segment.add(frame, segment.end)
        newest = self.segments[-1]
        if newest.end * 2 > newest.size:
            self._prepare_soon()

    def background_writer(self) -> BackgroundWriter | None:
        """A new writer for `begin_frame`; None if the disk has none. Raises OSError."""
        return self._disk.background_writer() if self._writes_durably else None

    def begin_frame(self, frame: EncodedFrame, writer: BackgroundWriter) -> bool:
        """Begin to write a small frame durably, behind the newest one; call `end_frame` once the writer has ended.

        Returns False, with nothing begun, if only `append_frames` can do it. Raises DiskFull, StorageUnavailable.
        """
        if not self._is_synced or not self._fits(frame, 0):
            return False
        self._room.check()
        self._disk.check()
        segment = self.segments[-1]
        writer.begin(segment.fd, b"".join(frame.buffers), segment.end)
        return True

    def end_frame(self, frame: EncodedFrame) -> None:
        """Add the frame, which is durable. Raises LockLostMeanwhile."""
        self._disk.check_written()
        segment = self.segments[-1]
        segment.add(frame, segment.end)
        if segment.end * 2 > segment.size:
            self._prepare_soon()

    def _written_durably(self, segment: Segment, buffers: Sequence[bytes]) -> bool:
        """Write and sync in one call, which releases the interpreter lock once; False if two calls are needed."""
        is_small = len(buffers) <= DURABLY_BUFFERS_MAX and sum(map(len, buffers)) <= DURABLY_BYTES_MAX
        if self._writes_durably and is_small:
            self._writes_durably = self._disk.write_durably(segment.fd, buffers, segment.end)
            return self._writes_durably
        return False

    def sync(self) -> None:
        """Make everything appended durable. Raises OSError: the state on disk is unknown, as above."""
        self._sync_files()

    def _sync_files(self) -> None:
        if not self._is_synced:
            self._disk.sync(self.segments[-1].fd)
            self._is_synced = True

    def read(self, after: int) -> Iterator[Frame]:
        for segment in self.segments:
            if segment.last > after:
                for index in range(max(segment.index_of(after + 1), 0), len(segment.firsts)):
                    frame = segment.frame(index)
                    if frame.last > after:
                        yield frame

    def frame_at(self, number: int) -> Frame | None:
        """The frame with that number, or the next one; None above the last. Raises StorageCorrupted."""
        segments = self.segments
        position = bisect_right(segments, number, key=_first) - 1
        for segment in segments[max(position, 0) :]:
            if segment.last < number:
                continue
            index = max(segment.index_of(number), 0)
            frame = segment.frame(index)
            return frame if frame.last >= number else segment.frame(index + 1)  # it is lost, and the loss was accepted
        return None

    def frame_below(self, number: int) -> Frame | None:
        """The frame with the last event below that number; None if there is none. Raises StorageCorrupted."""
        segments = self.segments
        position = bisect_left(segments, number, key=_first)
        for segment in reversed(segments[:position]):  # one may be new, or its first frames lost
            if (index := bisect_left(segment.firsts, number) - 1) >= 0:
                return segment.frame(index)
        return None

    def trim(self, below: int) -> None:
        """Unlink the segments whose events are all below that number; the one in use stays."""
        with self._replacing:
            gone = [segment for segment in self.segments[:-1] if segment.last < below]
            self.segments = self.segments[len(gone) :]
        for segment in gone:
            segment.path.unlink(missing_ok=True)
            segment.close()
        if gone:
            sync_directory(self._directory)

    def close(self) -> None:
        """Close the files."""
        if self._preparing is not None:
            self._preparing.join()
        for segment in self.segments:
            segment.close()
        with suppress(LockLost):  # another process has it
            self._disk.check()
            self.prepared.unlink(missing_ok=True)

    def _next_run(self, left: deque[EncodedFrame]) -> list[EncodedFrame]:
        """Take the next frames that fit the newest segment, at least one; if the first does not, roll to a new one."""
        if not self._fits(left[0], 0):
            self._roll(left[0])
        run = [left.popleft()]
        length = run[0].length
        while left and left[0].staged is None and self._fits(left[0], length):
            length += left[0].length
            run.append(left.popleft())
        return run

    def _fits(self, frame: EncodedFrame, length: int) -> bool:
        """Whether the newest segment has room for the frame after that number of bytes of the same run."""
        if not self.segments:
            return False
        segment = self.segments[-1]
        if segment.fd < 0:
            return False
        events = frame.last - segment.first + 1
        if not length and frame.first != segment.last + 1:  # numbers are contiguous in a segment
            return False
        return segment.end + length + frame.length <= segment.size and (
            events <= SEGMENT_EVENTS_MAX or not segment.events
        )

    def _roll(self, frame: EncodedFrame) -> None:
        """Make a new file for that frame: the next segment, or a replacement of the newest, with its frames.

        Raises DiskFull, StorageUnavailable: nothing has changed.
        """
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        self._sync_files()  # only the newest segment may have frames that are not durable
        copied = self._to_copy(frame)
        try:
            segment = self._made_for(frame, copied)
        except DiskFull:
            if copied is None:
                raise
            segment = self._made_for(frame, None)  # the next one needs less space
        self._go_on_in(segment)

    def _made_for(self, frame: EncodedFrame, copied: Segment | None) -> Segment:
        needed = (SEGMENT_HEADER_BYTES if copied is None else copied.end) + frame.length
        try:
            return self._make_segment(frame.first, needed, copied)
        except OSError as error:
            self.prepared.unlink(missing_ok=True)
            raise self._refusal(error, needed) from error

    def _to_copy(self, frame: EncodedFrame) -> Segment | None:
        """The newest segment, if it is closed and small enough to continue in a copy; else None."""
        if not self.segments or self.segments[-1].fd >= 0 or not self.segments[-1].events:
            return None
        newest = self.segments[-1]
        share = sum(segment.end for segment in self.segments) // COPIED_SHARE
        copied_max = max(COPIED_BYTES_MIN, min(share, COPIED_BYTES_MAX))
        is_small = newest.end <= copied_max and frame.last - newest.first < SEGMENT_EVENTS_MAX
        return newest if is_small and frame.first == newest.last + 1 and newest.damage is None else None

    def _go_on_in(self, segment: Segment) -> None:
        with self._replacing:
            kept = self.segments
            if kept and (not kept[-1].events or kept[-1].path == segment.path):  # the new one replaced it
                kept[-1].close()
                kept = kept[:-1]
            self.segments = (*kept, segment)
            if kept:
                kept[-1].give_back_rest()
                kept[-1].close()

    def _adopt(self, staged: AdoptedFile) -> None:
        """Make a staged file the newest segment, with all its frames.

        It gets a second name only after all of it is durable, and is never written again under the first name: a file
        with two names is not adopted. Raises NotAdopted, DiskFull, StorageUnavailable: nothing has changed.
        """
        self._sync_files()  # only the newest segment may have frames that are not durable
        first, adopted = staged.frames[0][1].first, self._adopted
        try:
            fd = os.open(staged.path, os.O_RDWR)
        except OSError as error:
            raise NotAdopted(staged.path, f"it cannot be opened: {error.strerror}") from error
        try:
            self._write_heads(fd, staged, first)
            self._disk.sync(fd)
            segment = self._linked(staged, adopted, first)
        except BaseException:
            os.close(fd)
            adopted.unlink(missing_ok=True)
            raise
        segment.path, segment.fd = self._directory / segment_name(first), fd
        try:
            self._disk.rename(adopted, segment.path)
        except OSError as failure:
            if failure.errno not in NO_SPACE:
                raise  # the process ends: the segment may exist
            segment.close()
            adopted.unlink(missing_ok=True)
            raise self._refusal(failure, 0) from failure
        sync_directory(self._directory)
        for offset, frame in staged.frames:
            segment.add(frame, offset)
        self._go_on_in(segment)

    def _write_heads(self, fd: int, staged: AdoptedFile, first: int) -> None:
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != staged.inode or found.st_size != staged.end:
            raise NotAdopted(staged.path, "it is not the file that was checked")
        if found.st_nlink != 1:
            raise NotAdopted(staged.path, "it has another hard link")
        try:
            make_private(fd, self._directory)  # like files made here
            header = segment_header(self._log_id, first, self.crc_seed, whole_upto=staged.frames[-1][1].last)
            self._disk.write(fd, [header], 0)
            for offset, frame in staged.frames:
                self._disk.write(fd, frame.buffers, offset)
        except OSError as error:
            raise self._refusal(error, 0) from error

    def _linked(self, staged: AdoptedFile, adopted: Path, first: int) -> Segment:
        """The mapped segment, under a name that is not read yet."""
        try:
            adopted.unlink(missing_ok=True)
            self._disk.link(staged.path, adopted)
            found = os.stat(adopted)
            if (found.st_dev, found.st_ino) != staged.inode:
                raise NotAdopted(staged.path, "it was replaced")
            return Segment(adopted, self._log_id, first)
        except OSError as error:
            self.has_links = error.errno not in _NO_LINKS
            raise NotAdopted(staged.path, f"it cannot be linked: {error.strerror}") from error

    def _make_segment(self, first: int, needed: int, copied: Segment | None) -> Segment:
        """A new segment that begins with that number; with `copied`, a replacement that has all its frames."""
        if self.prepared_bytes < needed:
            self._prepare(self._next_size(), needed)
        content = [segment_header(self._log_id, first, self.crc_seed)]
        if copied is not None:
            frames = bytes(copied.buffer[SEGMENT_HEADER_BYTES : copied.end])
            content = [segment_header(self._log_id, copied.first, copied.crc_seed, whole_upto=copied.last), frames]
        fd = os.open(self.prepared, os.O_RDWR)
        try:
            self._disk.write(fd, content, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        path = self._directory / segment_name(first if copied is None else copied.first)
        self._disk.rename(self.prepared, path)
        sync_directory(self._directory)
        segment = Segment(path, self._log_id)
        segment.open_to_write()
        if copied is not None:
            segment.adopt_copied(copied)
        return segment

    def _next_size(self) -> int:
        if self._segment_bytes is not None:
            return self._segment_bytes
        if not self.segments:
            return min(SEGMENT_BYTES_FIRST, SEGMENT_BYTES_MIN)
        newest = self.segments[-1]
        is_full = newest.fd >= 0  # else `leave_unended` closed it
        if newest.size < SEGMENT_BYTES_MIN:
            return min(newest.size * (SEGMENT_GROWTH if is_full else 1), SEGMENT_BYTES_MIN) // 4096 * 4096
        expected = SEGMENT_EVENTS_MAX * newest.end // max(newest.events, 1) * 5 // 4
        grown = newest.size * (2 if is_full else 1)
        return max(SEGMENT_BYTES_MIN, min(grown, expected, SEGMENT_BYTES_MAX)) // 4096 * 4096

    def _prepare_soon(self) -> None:
        """Prepare the file of the next segment, unless that has begun: the newest one is half full."""
        if self._preparing is not None:
            return
        preparing = threading.Thread(target=self._prepare_ahead, name="headwater-prepare", daemon=True)
        try:
            preparing.start()
        except RuntimeError as error:  # no thread is available; the segment is created when needed
            logger.warning("cannot preallocate the next segment: %s", error)
        else:
            self._preparing = preparing

    def _prepare_ahead(self) -> None:
        """Prepare the next file in the background; on failure, the roll retries and reports to the producer."""
        try:
            self._prepare(self._next_size())
        except (DiskFull, OSError) as error:
            if isinstance(error, DiskFull) or error.errno in NO_SPACE:
                logger.warning("no space for the next segment: %s", error)
            else:
                logger.error("cannot prepare the next segment: %s", refusal_of(error, self._directory, _CANNOT_PREPARE))
        except EventLogError as error:
            logger.error("cannot prepare the next segment: %s", error)

    def _prepare(self, wanted: int, needed: int = 0) -> None:
        """Make the file of the next segment: as large as `wanted`, or smaller if there is less room.

        It is at least as large as `needed`, 0 ahead of time. Raises DiskFull, StorageUnavailable, OSError.
        """
        refusal: OSError | None = None
        self._disk.check()  # before the file is emptied
        for size in self._room.sizes(wanted, needed):
            try:
                self._allocate(self.prepared, size)
                return
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                refusal = error
        if refusal is not None:
            raise refusal

    def _allocate(self, path: Path, size: int) -> None:
        fd = private_opener(str(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self._disk.allocate(fd, size)
            os.fsync(fd)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def _refusal(self, error: OSError, needed: int) -> EventLogError:
        if error.errno in NO_SPACE:
            return self._room.refused(needed)
        return refusal_of(error, self._directory, _CANNOT_PREPARE)
