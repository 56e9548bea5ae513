"""A mapped segment that another process writes, with its frames known up to the durable head.

The writer truncates the space allocated after the last frame, and a restart truncates a torn tail. So only bytes of
durable frames are read in the map; bytes after them are read with `pread`, which can return fewer bytes but cannot
fault.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt

from ...core.errors import StorageCorrupted
from ..frames.columns import Content, Frames, Ints
from ..frames.frame import BadFrame
from ..frames.layout import HEADER_BYTES, MAGIC
from ..segments.places import FramePlaces, places_name
from ..segments.recovery import is_covered
from ..segments.segment import SEGMENT_HEADER_BYTES, Ranges, Segment

_START = struct.Struct("<4sIQHHHHIIQ")
"""The start of a header: magic, crc, length, version, required and optional features, spare, count, tags, first."""
_WINDOW_BYTES = 256 * 1024
_LARGE = 32 * 1024
"""After a frame of this many bytes another large one is expected: only its header is read."""


class Mapped(Protocol):
    """A segment file in memory."""

    path: Path
    first: int
    content: Content
    crc_seed: int
    verified: npt.NDArray[np.bool_]
    """Whether each frame has been verified."""
    distrusted: Ranges
    """Events damaged on disk, even if the map contains them intact. See `segments.segment.Segment`."""

    def damaged(self, first: int, last: int, reason: BadFrame) -> StorageCorrupted:
        """The error for events that are not as they were written."""


class Followed(NamedTuple):
    """A snapshot of a segment. It stays readable even if the file is removed."""

    segment: Mapped
    firsts: Ints
    offsets: Ints
    last: int
    end: int
    """The end of the last frame."""

    def between(self, low: int, high: int) -> tuple[int, int]:
        """The frames with events from `low` to `high`: the first index and the end (exclusive)."""
        start = max(int(np.searchsorted(self.firsts, low, "right")) - 1, 0)
        return start, int(np.searchsorted(self.firsts, high, "right"))

    def _of(self, low: int, high: int) -> npt.NDArray[np.bool_]:
        """Whether each frame has one of these numbers."""
        return (self.firsts <= high) & (np.append(self.firsts[1:], self.last + 1) > low)

    def has_distrusted(self) -> bool:
        """Whether some of its frames must not be read."""
        return any(self._of(low, high).any() for low, high in self.segment.distrusted)

    @property
    def lengths(self) -> Ints:
        """The length of each frame, including accepted damage after it."""
        return np.diff(self.offsets, append=self.end)

    @property
    def counts(self) -> Ints:
        """The number of events in each frame, including lost numbers after it."""
        return np.diff(self.firsts, append=self.last + 1)

    def frames(self, start: int, end: int) -> Frames:
        """These frames, verified. Raises StorageCorrupted, StorageUnavailable."""
        return self.chosen(np.arange(start, end))

    def chosen(self, indices: Ints) -> Frames:
        """Like `frames`, for any of them."""
        frames = Frames(self.segment.content, self.offsets[indices])
        verified = self.segment.verified
        if not verified[indices].all():
            which = np.flatnonzero(~verified[indices])
            if (found := frames.first_bad(which, self.end, self.segment.crc_seed)) is not None:
                index, reason = int(indices[found[0]]), found[1]
                upto = int(self.firsts[index + 1]) - 1 if index + 1 < len(self.firsts) else self.last
                raise self.segment.damaged(int(self.firsts[index]), upto, reason)
            self._check_chain(indices[which])
            for low, high in self.segment.distrusted:
                if self._of(low, high)[indices].any():
                    raise self.segment.damaged(low, high, BadFrame("on disk, but not in memory"))
            verified[indices] = True
        return frames

    def _check_chain(self, indices: Ints) -> None:
        """Raises StorageCorrupted if one of these intact frames does not follow the one before it. See `Segment`."""
        behind = indices[indices > 0]
        frames = Frames(self.segment.content, self.offsets[behind])
        before = Frames(self.segment.content, self.offsets[behind - 1])
        is_broken = before.headers["crc"] != frames.headers["previous_crc"]
        is_broken &= before.firsts + before.headers["count"] == frames.firsts
        is_other = frames.firsts != self.firsts[behind]
        for at in np.flatnonzero(is_broken | is_other).tolist():
            if is_other[at] or before.first_bad(np.array([at]), self.end, self.segment.crc_seed) is None:
                first, index = int(self.firsts[behind[at]]), int(behind[at])
                upto = int(self.firsts[index + 1]) - 1 if index + 1 < len(self.firsts) else self.last
                raise self.segment.damaged(first, upto, BadFrame("it does not follow the frame before it"))


class FollowedSegment:
    """One mapped segment file. Not thread-safe, except for its snapshots."""

    def __init__(self, path: Path, log_id: bytes) -> None:
        """Raises FileNotFoundError if it was trimmed, StorageCorrupted, StorageUnavailable."""
        self._fd = -1
        self._fd = os.open(path, os.O_RDONLY)
        self.inode = os.fstat(self._fd).st_ino
        """The file's inode, taken before the file is mapped, so that a replacement is noticed."""
        try:
            self._segment = _mapped(path, log_id)
        except BaseException:
            self.close()
            raise
        self.path, self.first, self.crc_seed = path, self._segment.first, self._segment.crc_seed
        self.content = Content(self._segment.map)
        self.last, self.end = self.first - 1, SEGMENT_HEADER_BYTES
        self._frames = 0
        self._firsts: Ints = np.empty(64, np.int64)
        self._offsets: Ints = np.empty(64, np.int64)
        self.verified = np.zeros(64, np.bool_)
        """Whether each frame has been verified."""
        self.distrusted: Ranges = ()

    def distrust(self, ranges: Ranges) -> None:
        """Set the events damaged on disk. Existing snapshots no longer read them either."""
        if ranges != self.distrusted:
            self.distrusted = ranges
            self.verified[:] = False

    def followed(self) -> Followed:
        """A snapshot."""
        return Followed(self, self._firsts[: self._frames], self._offsets[: self._frames], self.last, self.end)

    def adopt(self, index_directory: Path) -> None:
        """Read the frames of a sealed segment from its places file, if that exists and is intact."""
        if self._frames:
            return
        try:
            places = FramePlaces(index_directory / places_name(self.first))
        except (OSError, ValueError):
            return  # not written yet, or about to be rebuilt: the headers have it too
        if len(places.offsets) and places.end <= self._segment.size:
            self._add(np.array(places.firsts, np.int64), np.array(places.offsets, np.int64))
            last = Frames(self.content, self._offsets[self._frames - 1 : self._frames])
            self.last, self.end = int(last.firsts[0] + last.counts[0]) - 1, places.end

    def walk(self, upto: int, gaps: Ranges) -> None:
        """Find the frames up to that durable number by their headers. Raises StorageCorrupted if they end before it."""
        firsts, offsets, bad = [], [], None
        window, start, length = b"", 0, 0
        while self.last < upto:
            at = self.end - start
            if at + _START.size > len(window):
                size = HEADER_BYTES if length > _LARGE else _WINDOW_BYTES
                window, start, at = os.pread(self._fd, size, self.end), self.end, 0
            try:
                length, count, first = _read_start(window, at)
                self._check(first, count, length, gaps)
            except BadFrame as found:
                if (behind := self._behind(upto, gaps)) is None:
                    bad = found
                    break
                self.end, window = behind, b""
                continue
            firsts.append(first)
            offsets.append(self.end)
            self.last, self.end = first + count - 1, self.end + length
        self._add(np.array(firsts, np.int64), np.array(offsets, np.int64))
        if bad is not None:
            raise self._missing(upto, bad)

    def damaged(self, first: int, last: int, reason: BadFrame) -> StorageCorrupted:
        """The error for events that are not as they were written."""
        return self._segment.corrupted(f"events {first} to {last} are damaged ({reason})")

    def close(self) -> None:
        """Read no more headers; the map is freed with its last user."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _add(self, firsts: Ints, offsets: Ints) -> None:
        frames = self._frames + len(firsts)
        if frames > len(self._firsts):  # snapshots keep the old arrays
            size = max(frames, 2 * len(self._firsts))
            self._firsts, self._offsets, self.verified = (
                np.concatenate([each[: self._frames], np.zeros(size - self._frames, each.dtype)])
                for each in (self._firsts, self._offsets, self.verified)
            )
        self._firsts[self._frames : frames] = firsts
        self._offsets[self._frames : frames] = offsets
        self._frames = frames

    def _check(self, first: int, count: int, length: int, gaps: Ranges) -> None:
        if first <= self.last or (first > self.last + 1 and not is_covered(self.last + 1, first - 1, gaps)):
            raise BadFrame(f"it begins with event {first}, after event {self.last}")
        if gaps and is_covered(first, first, gaps):
            raise BadFrame("its loss was accepted")  # its header may be good, but cannot be trusted
        if not count or length < HEADER_BYTES or length & 7 or self.end + length > self._segment.size:
            raise BadFrame(f"invalid length {length}")

    def _missing(self, upto: int, reason: BadFrame) -> StorageCorrupted:
        """The error for frames that end before that number: a wrong header misleads about what follows its frame."""
        if self._frames:
            self.verified[self._frames - 1] = False
            try:
                self.followed().frames(self._frames - 1, self._frames)
            except StorageCorrupted as error:
                return error
        return self.damaged(self.last + 1, upto, reason)

    def _behind(self, upto: int, gaps: Ranges) -> int | None:
        """Where the next intact frame begins, if the loss of the frames here was accepted."""
        if not is_covered(self.last + 1, self.last + 1, gaps):
            return None
        content = os.pread(self._fd, self._segment.size - self.end, self.end)
        offset = 0
        while (offset := content.find(MAGIC, offset + 4)) >= 0:
            if offset % 8 == 0 and self._is_whole(content, offset, upto):
                return self.end + offset
        return None

    def _is_whole(self, content: bytes, offset: int, upto: int) -> bool:
        try:
            length, count, first = _read_start(content, offset)
        except BadFrame:
            return False
        crc = int.from_bytes(content[offset + 4 : offset + 8], "little")
        is_here = self.last < first <= upto and count > 0
        return is_here and google_crc32c.extend(self.crc_seed, content[offset + 8 : offset + length]) == crc


def _mapped(path: Path, log_id: bytes) -> Segment:
    try:
        return Segment(path, log_id)
    except ValueError:  # cut between two reads of its size: it is sealed now, and is not cut again
        return Segment(path, log_id)


def _read_start(window: bytes, at: int) -> tuple[int, int, int]:
    """The length, count and first number of the frame there. Raises BadFrame."""
    if at + _START.size > len(window):
        raise BadFrame("the file ends within the header")
    magic, _, length, _, _, _, _, count, _, first = _START.unpack_from(window, at)
    if magic != MAGIC:
        raise BadFrame(f"expected magic {MAGIC!r}, got {magic!r}")
    return length, count, first
